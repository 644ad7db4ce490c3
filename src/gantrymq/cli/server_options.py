"""The options that the servers share, and the resulting settings of a broker, its store, a name server, and TLS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.opened import read_entries
from gantrymq.cli.terminal import warn
from gantrymq.model.host import is_loopback

if TYPE_CHECKING:
    import ssl

    from gantrymq.config.broker_settings import LiveConfig
    from gantrymq.config.guards import Reason
    from gantrymq.namesrv.settings import NamesrvConfig
    from gantrymq.remoting.transport.tls import TlsServer

STORE_KEY = "storePathRootDir"
_DEFAULT_STORE = "store"  # in the home directory, as for RocketMQ
_SET_VARIABLES = "GANTRYMQ_SET_"

StoreDirectory = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        help="Directory of the store, made where it is missing.",
        show_default="~/store",
        readable=False,
    ),
]
ListenPort = Annotated[
    int | None,
    typer.Option("--listen-port", metavar="PORT", min=0, max=65535, help="0 takes a free one.", show_default="10911"),
]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        "--grpc-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve the clients of RocketMQ 5, too (RocketMQ's proxy: 8081). 0 takes a free one.",
        show_default="no gRPC",
    ),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Log to stderr which clients come and go.")]


@dataclass(frozen=True)
class ServerSettings:
    """The settings of ``-c`` and ``--set``, and methods that pick those of each part.

    ``config_file`` is that of ``-c``.
    """

    entries: Mapping[str, str]
    config_file: Path | None = None

    def store(self, given: Path | None) -> Path:
        """The store's directory: ``given``, else storePathRootDir, else ~/store."""
        return given or Path(self.entries.get(STORE_KEY) or Path.home() / _DEFAULT_STORE)

    def broker(self, listen_port: int | None, store: Path, grpc_port: int | None = None) -> LiveConfig:
        """The settings of a broker and its store at ``store``. Raises ConfigError, OSError.

        Settings that a tool changes at run time are saved in the file of ``-c``, or else in the store's
        config/broker.properties. They hold at the next start unless ``--set`` overrides them.
        """
        from gantrymq.config.broker_settings import LiveConfig

        config = LiveConfig(keep=partial(_keep, self.config_file or _saved(store)))
        config.update(self.of_broker(store))
        if listen_port is not None:
            config.broker = replace(config.broker, listen_port=listen_port)
        if grpc_port is not None:
            config.broker = replace(config.broker, grpc_server_port=grpc_port)
        return config

    def of_broker(self, store: Path) -> dict[str, str]:
        """The entries of a broker with the store at ``store``, with those that tools changed. Raises OSError."""
        changed = {} if self.config_file is not None else _changed_by_tools(_saved(store), _is_kept)
        return {**changed, **self.entries}

    def namesrv(self, listen_port: int | None, home: Path, *, own_port: bool) -> NamesrvConfig:
        """The settings of a name server with its files in ``home``. Raises ConfigError, OSError.

        ``own_port`` says that listenPort and ``-c`` are meant for it. Otherwise settings that a tool changes are saved
        in configStorePath, and hold at the next start unless they are overridden.
        """
        from gantrymq.namesrv.settings import NAMESRV_PROPERTIES, is_live, read_namesrv_config

        mine = {key: text for key, text in self.entries.items() if own_port or key != "listenPort"}
        has_file = own_port and self.config_file is not None
        if not has_file or mine.get("configStorePath"):
            settings_path = Path(mine.get("configStorePath") or home / NAMESRV_PROPERTIES)
            mine = {**_changed_by_tools(settings_path, is_live), **mine}
        config = read_namesrv_config(mine, of_broker=not own_port)
        return config if listen_port is None else replace(config, listen_port=listen_port)

    def tls(self) -> TlsServer | None:
        """The TLS settings for accepting connections; None if there are none. Raises ConfigError."""
        from gantrymq.remoting.transport.tls import tls_server

        settings = {key: text for key, text in self.entries.items() if key.startswith("tls.")}
        return tls_server(settings) if settings else None

    def warn_if_exposed(self, bind_address: str, *, acl: bool | None) -> None:
        """Warn on stderr if other hosts reach a server at ``bind_address`` that has neither ACL nor enforced TLS.

        ``acl`` says whether it has accounts or users, None for a name server without.
        """
        tls = self.tls()
        if acl or is_loopback(bind_address) or (tls is not None and tls.mode.value == "enforcing"):
            return
        risk = "change routes and settings" if acl is None else "read, write and delete"
        remedy = "authenticationEnabled=true, or " if acl is None else "authenticationEnabled=true, aclEnable=true, or "
        warn(
            f"bindAddress={bind_address} is open to other hosts: any host that reaches it can {risk}; "
            f"set {remedy}tls.server.mode=enforcing with client certificates, or bind a private address"
        )

    def client_tls(self) -> ssl.SSLContext | None:
        """The TLS context for outgoing connections (tls.enable); None: without TLS. Raises ConfigError."""
        from gantrymq.remoting.transport.tls import tls_client

        return tls_client(self.entries)


def read_server_options(
    config_file: Path | None,
    assignments: list[str] | None,
    also: Callable[[str], bool] = lambda _: False,
    on_unknown: Callable[[str], None] = warn,
) -> ServerSettings:
    """The settings of ``-c``, of the environment (``GANTRYMQ_SET_<key>``) and of ``--set``; the last one wins.

    ``also`` says which keys are known besides those of brokers and name servers. Two underscores in a variable's name
    stand for a dot, which most shells refuse there. ``on_unknown`` gets a text for each unknown key of the file, which
    begins with the key, and prints it by default. Raises ConfigError for an unknown key in the
    environment or in ``--set``, OSError.
    """
    from gantrymq.config.properties import unknown_keys
    from gantrymq.namesrv.settings import is_known

    def known(key: str) -> bool:
        return is_known(key) or also(key)

    entries = read_entries(config_file, [*_from_environment(), *(assignments or ())], also=known)
    for text in unknown_keys(entries, also=known):
        on_unknown(text)
    return ServerSettings(entries, config_file)


def warn_of_acceptances(accepted: Iterable[Reason], names: str, is_known: Callable[[str], bool]) -> None:
    """Warn on stderr of what a start takes because of acceptWithoutEffect, and of ``names`` in it that are no key."""
    from gantrymq.config.guards import accepted_names

    for reason in accepted:
        warn(f"accepted without effect: {reason.text}")
    for name in sorted(accepted_names(names)):
        if not is_known(name):
            warn(f"acceptWithoutEffect names {name}, which is no key")


def _from_environment() -> list[str]:
    given = sorted((name, value) for name, value in os.environ.items() if name.startswith(_SET_VARIABLES))
    return [f"{name.removeprefix(_SET_VARIABLES).replace('__', '.')}={value}" for name, value in given]


def _saved(store: Path) -> Path:
    return store / "config" / "broker.properties"


def _is_kept(key: str) -> bool:
    """Whether a key that a tool has saved counts at a start: it takes effect while a broker runs, or can refuse one."""
    from gantrymq.config.broker_settings import is_live, knows
    from gantrymq.config.refused_keys import REFUSALS, ServerKind

    return is_live(key) or (key in REFUSALS[ServerKind.BROKER] and not knows(key))


def _changed_by_tools(file: Path, is_live: Callable[[str], bool]) -> dict[str, str]:
    """The settings that tools changed at run time, read from the file in which they were saved; empty without it."""
    from gantrymq.config.properties import parse_properties

    try:
        text = file.read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return {}
    return {key: value for key, value in parse_properties(text).items() if is_live(key)}


def _keep(config_file: Path, entries: Mapping[str, str]) -> None:
    """Save the settings that an administrator changed. Raises DiskFullError, StorePermissionError."""
    from gantrymq.config.broker_settings import is_known
    from gantrymq.config.properties import amended
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.fs.replaced_file import ReplacedFile

    file = ReplacedFile(RealFileSystem(), config_file.resolve())
    text = next(file.versions(), b"").decode("utf-8", "surrogateescape")
    known = {name: value for name, value in entries.items() if is_known(name)}
    file.replace(amended(text, known).encode("utf-8", "surrogateescape"))
