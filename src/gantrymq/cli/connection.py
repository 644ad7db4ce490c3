"""The connection to a cluster: name servers, credentials, namespace and TLS, for every command that is a client.

:func:`connects` gives a command the options. A value comes from the first of these that has it:

1. an option,
2. the profile that ``--profile`` or GANTRYMQ_PROFILE names,
3. an environment variable,
4. the profile ``default``.

A profile is a table ``[profile.NAME]`` of ``~/.config/gantrymq/profile.toml``. A profile that is named beats the
environment, because a NAMESRV_ADDR in a shell must not redirect a command that names a cluster.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gantrymq.cli.advice import advice
from gantrymq.cli.terminal import warn
from gantrymq.errors import ConfigError

if TYPE_CHECKING:
    from gantrymq.client.settings import ClientSettings

DEFAULT_PROFILE = "default"
PROFILE_VARIABLE = "GANTRYMQ_PROFILE"
_OTHERS_READ = 0o077
_EVENT = re.compile(r"^event=(['\"])(.*?)\1 ?")  # the head of a line of the log
_BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_CONNECTION = "connection"


class _Value(NamedTuple):
    """One value: its name as a parameter and in a profile, its environment variable, its key of tls.properties."""

    name: str
    variable: str
    tls_key: str = ""


_VALUES = (
    _Value("namesrv", "NAMESRV_ADDR"),
    _Value("namespace", "GANTRYMQ_NAMESPACE"),
    _Value("access_key", "GANTRYMQ_ACCESS_KEY"),
    _Value("secret_key", "GANTRYMQ_SECRET_KEY"),
    _Value("security_token", "GANTRYMQ_SECURITY_TOKEN"),
    _Value("tls", "GANTRYMQ_TLS", "tls.enable"),
    _Value("tls_trust", "GANTRYMQ_TLS_TRUST", "tls.client.trustCertPath"),
    _Value("tls_cert", "GANTRYMQ_TLS_CERT", "tls.client.certPath"),
    _Value("tls_key", "GANTRYMQ_TLS_KEY", "tls.client.keyPath"),
    _Value("tls_key_password", "GANTRYMQ_TLS_KEY_PASSWORD", "tls.client.keyPassword"),
)
_NAMES = tuple(value.name for value in _VALUES)


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """How to reach a cluster. ``name_servers`` is ``host:port;host:port``, ``tls`` has keys of tls.properties."""

    name_servers: str
    namespace: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, given: Mapping[str, str | bool | None], profile: str | None = None) -> ClusterConnection:
        """The connection of the options ``given``, by parameter name; None for an option that is not there.

        Raises BadParameter without a name server, and ConfigError for an unknown profile or a wrong value of one.
        """
        options = {name: _text(name, value) for name, value in given.items() if value is not None}
        variables = {value.name: os.environ[value.variable] for value in _VALUES if os.environ.get(value.variable)}
        named = profile or os.environ.get(PROFILE_VARIABLE)
        layers = [options, variables]
        layers.insert(1 if named else 2, _profile(named))
        values = {name: text for layer in reversed(layers) for name, text in layer.items()}
        if not values.get("namesrv", "").strip():
            raise typer.BadParameter(f"no name server: give -n HOST:PORT, set NAMESRV_ADDR, or see {profile_file()}")
        return cls(
            name_servers=values["namesrv"],
            namespace=values.get("namespace", ""),
            access_key=values.get("access_key", ""),
            secret_key=values.get("secret_key", ""),
            security_token=values.get("security_token", ""),
            tls=_tls(values),
        )

    @property
    def settings(self) -> ClientSettings:
        """The settings of a client beside its name servers, as keywords."""
        return {
            "namespace": self.namespace,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "security_token": self.security_token,
            "tls": self.tls,
        }


def profile_file() -> Path:
    """The file of profiles, whether or not it exists."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "gantrymq" / "profile.toml"


def _profile(named: str | None) -> dict[str, str]:
    """The values of a profile; those of ``default``, if it exists, without a name. Raises ConfigError, OSError."""
    path = profile_file()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if named is None:
            return {}
        raise ConfigError("profile", named, f"a profile of {path}, which does not exist") from None
    try:
        profiles = tomllib.loads(raw.decode()).get("profile", {})
    except ValueError as error:  # neither TOML nor UTF-8
        raise ConfigError(str(path), str(error), "TOML with tables [profile.NAME]") from None
    name = named or DEFAULT_PROFILE
    values = profiles.get(name) if isinstance(profiles, dict) else None
    if values is None and named is None:
        return {}
    if not isinstance(values, dict):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) and profiles else "none is there"
        raise ConfigError("profile", name, f"a table [profile.NAME] of {path}: {known}")
    if "secret_key" in values and path.stat().st_mode & _OTHERS_READ:
        warn(f"{path} has a secret key and others may read it: chmod 600 {path}")
    return {key: _profile_text(path, name, key, value) for key, value in values.items()}


def _profile_text(path: Path, profile: str, key: str, value: object) -> str:
    where = f"{path}: profile.{profile}.{key}"
    if key not in _NAMES:
        raise ConfigError(where, value, "one of " + ", ".join(_NAMES))
    if not isinstance(value, str | bool):
        raise ConfigError(where, value, "a text, or true or false")
    return _text(where, value)


def _text(name: str, value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _tls(values: Mapping[str, str]) -> dict[str, str]:
    """The keys of tls.properties. A file implies TLS. A trusted certificate makes the client verify the servers."""
    keys = {value.tls_key: values[value.name] for value in _VALUES if value.tls_key and values.get(value.name)}
    if not keys:
        return {}
    enabled = keys.get("tls.enable", "true")
    if enabled.lower() not in _BOOLEANS:
        raise ConfigError("tls", enabled, "true or false")
    keys["tls.enable"] = _BOOLEANS[enabled.lower()]
    if "tls.client.trustCertPath" in keys:
        keys["tls.client.authServer"] = "true"
    return keys


class _Warnings(logging.Handler):
    """Prints the warnings of clients as those of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(_EVENT.sub(r"\2 ", record.getMessage()).rstrip())


@contextmanager
def client_warnings() -> Iterator[None]:
    """Print the warnings that clients log as those of a command, for the duration of the block."""
    logger, handler = logging.getLogger("gantrymq.client"), _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _option(*names: str, metavar: str | None = None, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel="Connection")


def _options(
    namesrv: Annotated[
        str | None,
        _option("-n", "--namesrv", metavar="ADDRESSES", help="Name servers, host:port;host:port (NAMESRV_ADDR)."),
    ] = None,
    profile: Annotated[
        str | None,
        _option("--profile", metavar="NAME", help="A profile of ~/.config/gantrymq/profile.toml (GANTRYMQ_PROFILE)."),
    ] = None,
    namespace: Annotated[
        str | None, _option("--namespace", metavar="NAME", help="Namespace of topics and groups (GANTRYMQ_NAMESPACE).")
    ] = None,
    access_key: Annotated[
        str | None, _option("--access-key", metavar="KEY", help="ACL: the account (GANTRYMQ_ACCESS_KEY).")
    ] = None,
    secret_key: Annotated[
        str | None,
        _option(
            "--secret-key",
            metavar="KEY",
            help="ACL: its secret (GANTRYMQ_SECRET_KEY). `ps` shows it to others; a profile does not.",
        ),
    ] = None,
    security_token: Annotated[
        str | None, _option("--security-token", metavar="TOKEN", help="ACL: its token (GANTRYMQ_SECURITY_TOKEN).")
    ] = None,
    tls: Annotated[bool | None, _option("--tls/--no-tls", help="Connect with TLS (GANTRYMQ_TLS=true).")] = None,
    tls_trust: Annotated[
        str | None,
        _option(
            "--tls-trust",
            metavar="FILE",
            help="Verify the servers by these certificates; without it all are accepted (GANTRYMQ_TLS_TRUST).",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None, _option("--tls-cert", metavar="FILE", help="The client's own certificate (GANTRYMQ_TLS_CERT).")
    ] = None,
    tls_key: Annotated[
        str | None, _option("--tls-key", metavar="FILE", help="Its key; GANTRYMQ_TLS_KEY_PASSWORD opens it.")
    ] = None,
) -> None:
    """The options of a connection; :func:`connects` copies this signature."""


def connection_parameters() -> Mapping[str, inspect.Parameter]:
    """The options of a connection as parameters of a command, by name: those of :meth:`ClusterConnection.read`."""
    return inspect.signature(_options, eval_str=True).parameters


def connects(command: Callable[..., None], *, unless: str | None = None) -> Callable[..., None]:
    """Replace a command's parameter ``connection`` by the options of a connection, after its other options.

    The command is called with a :class:`ClusterConnection`. ``unless`` names a parameter that replaces the
    cluster by another source. If it is given, ``connection`` is None, and an option of a connection is a usage error.
    """
    shared = connection_parameters()
    own = inspect.signature(command, eval_str=True).parameters

    @wraps(command)
    def called(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in shared}
        profile = given.pop("profile")
        if unless is None or arguments[unless] is None:
            with client_warnings(), advice():
                command(connection=ClusterConnection.read(given, profile), **arguments)
            return
        for name, value in (("profile", profile), *given.items()):
            if value is not None:
                raise typer.BadParameter(f"--{name.replace('_', '-')} is for a cluster, --{unless} takes none")
        command(connection=None, **arguments)

    parameters = [parameter for parameter in own.values() if parameter.name != _CONNECTION] + list(shared.values())
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    called.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
    return called
