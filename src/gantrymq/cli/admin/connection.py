"""How a command reaches its cluster: options, environment and a profile file, in one place.

The keys are RocketMQ's. A later source has precedence:

1. the profile file of ``GANTRYMQ_PROFILE``, else ``gantrymq/profile.conf`` in the user's configuration directory;
2. the environment: ``NAMESRV_ADDR``, ``GANTRYMQ_ACCESS_KEY``, ``GANTRYMQ_SECRET_KEY``;
3. the profile file of ``--profile``;
4. ``--set KEY=VALUE``, then the options that have names of their own.

So a profile that is named on the command line is not mixed with the name server of the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.terminal import warn
from gantrymq.errors import ConfigError

if TYPE_CHECKING:
    from gantrymq.client.settings import ClientConfig

PROFILE_VARIABLE = "GANTRYMQ_PROFILE"
_NAME_SERVERS, _ACCESS_KEY, _SECRET_KEY = "namesrvAddr", "accessKey", "secretKey"
_SECURITY_TOKEN, _TLS_ENABLE, _TLS_PREFIX = "securityToken", "tls.enable", "tls."
_VARIABLES = {
    "NAMESRV_ADDR": _NAME_SERVERS,
    "GANTRYMQ_ACCESS_KEY": _ACCESS_KEY,
    "GANTRYMQ_SECRET_KEY": _SECRET_KEY,
}
# Keys of a client that are no fields with a key of ClientConfig, and their arguments.
_ARGUMENTS = {_NAME_SERVERS: "name_servers", _SECRET_KEY: "secret_key", _SECURITY_TOKEN: "security_token"}

_PANEL = "Connection"

NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        help="host:port;host:port, else NAMESRV_ADDR of the environment.",
        rich_help_panel=_PANEL,
    ),
]
Profile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help=f"File with namesrvAddr, accessKey, secretKey, tls.…, else {PROFILE_VARIABLE}.",
        rich_help_panel=_PANEL,
    ),
]
AccessKey = Annotated[
    str | None,
    typer.Option(
        "--access-key", metavar="KEY", help="Account for ACL, else GANTRYMQ_ACCESS_KEY.", rich_help_panel=_PANEL
    ),
]
SecretKey = Annotated[
    str | None,
    typer.Option("--secret-key", metavar="KEY", help="Its secret, else GANTRYMQ_SECRET_KEY.", rich_help_panel=_PANEL),
]
Tls = Annotated[bool, typer.Option("--tls", help="Connect with TLS (tls.enable=true).", rich_help_panel=_PANEL)]
ClientKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A client's key: namespace, securityToken, mqClientApiTimeout, tls.client.…",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class ConnectionOptions:
    """The options of a command line that say how to reach a cluster. The names are those of the parameters."""

    namesrv: str | None = None
    profile: Path | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: bool = False
    set_: list[str] | None = None

    def config(self, environment: Mapping[str, str] = os.environ) -> ClientConfig:
        """The settings of a client. Raises ConfigError, also without any name server; OSError for the profile."""
        entries = _profile(_default_profile(environment))
        entries |= {key: environment[name] for name, key in _VARIABLES.items() if environment.get(name)}
        entries |= _profile(self.profile)
        entries |= _assigned(self.set_ or ())
        own = {_NAME_SERVERS: self.namesrv, _ACCESS_KEY: self.access_key, _SECRET_KEY: self.secret_key}
        entries |= {key: value for key, value in own.items() if value is not None}
        if self.tls:
            entries[_TLS_ENABLE] = "true"
        return _client_config(entries)


def _default_profile(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(PROFILE_VARIABLE)
    if named:
        return Path(named)
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = Path(base) / "gantrymq" / "profile.conf"
    return file if file.is_file() else None


def _profile(file: Path | None) -> dict[str, str]:
    """The entries of a profile file. Warns of unknown keys, and of a secret key that other users can read."""
    if file is None:
        return {}
    from gantrymq.config.properties import parse_properties

    entries = parse_properties(file.read_text("utf-8", "surrogateescape"))
    for key in [key for key in entries if not _is_known(key)]:
        warn(f"{file}: {key} is no key of a client")
        del entries[key]
    if _SECRET_KEY in entries and file.stat().st_mode & 0o077:
        warn(f"{file} has a secret key, and other users can read it: chmod 600 {file}")
    return entries


def _assigned(assignments: list[str] | tuple[()]) -> dict[str, str]:
    entries: dict[str, str] = {}
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key:
            raise ConfigError(assignment, "", "key=value")
        if not _is_known(key):
            raise ConfigError(key, value, f"a key of a client: {', '.join(_known_keys())}, or tls.…")
        entries[key] = value
    return entries


def _known_keys() -> list[str]:
    from gantrymq.client.settings import ClientConfig
    from gantrymq.config.keys import fields_by_key

    return sorted({*_ARGUMENTS, *fields_by_key(ClientConfig)})


def _is_known(key: str) -> bool:
    return key.startswith(_TLS_PREFIX) or key in _known_keys()


def _client_config(entries: Mapping[str, str]) -> ClientConfig:
    from gantrymq.client.settings import ClientConfig
    from gantrymq.config.keys import read_fields

    if not entries.get(_NAME_SERVERS):
        raise ConfigError(_NAME_SERVERS, "", "give -n HOST:PORT, set NAMESRV_ADDR, or name a --profile that has it")
    arguments: dict[str, Any] = {name: entries[key] for key, name in _ARGUMENTS.items() if key in entries}
    tls = {key: value for key, value in entries.items() if key.startswith(_TLS_PREFIX)}
    return ClientConfig(**arguments, tls=tls, **read_fields(ClientConfig, entries))
