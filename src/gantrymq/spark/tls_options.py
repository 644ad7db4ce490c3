"""TLS to name servers and brokers: the client keys of RocketMQ's tls.properties as options of reads and writes.

Source: TlsSystemConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from gantrymq.errors import ConfigError
from gantrymq.spark import option_texts as texts

TlsSettings = tuple[tuple[str, str], ...]

ENABLE, AUTH_SERVER, TRUSTED = "tls.enable", "tls.client.authServer", "tls.client.trustCertPath"
_READ: dict[str, Callable[[str, str], object]] = {
    ENABLE: texts.truth,
    AUTH_SERVER: texts.truth,
    TRUSTED: texts.plain,
    "tls.client.certPath": texts.plain,
    "tls.client.keyPath": texts.plain,
    "tls.client.keyPassword": lambda *_: None,
    "tls.ciphers": texts.plain,
    "tls.protocols": texts.plain,
}
_KEYS = {key.lower(): key for key in _READ} | {"usetls": ENABLE}


def is_tls_option(name: str) -> bool:
    """Whether an option is a TLS option (``tls.…`` or ``useTLS``). Spark ignores case in names."""
    return name.lower().startswith("tls.") or name.lower() in _KEYS


def tls_settings(given: Mapping[str, str]) -> TlsSettings:
    """The TLS options in ``given`` as settings of tls.properties. Raises ConfigError.

    Options without an effect are refused, because a user who names certificates expects them to be used.
    """
    found: dict[str, str] = {}
    for name, text in given.items():
        if not is_tls_option(name):
            continue
        key = _KEYS.get(name.lower())
        if key is None:
            near = [_KEYS[one] for one in get_close_matches(name.lower(), _KEYS, 3)]
            raise texts.unknown(name, text, f"no such option; there is {', '.join(near or _READ)}")
        if key in found:
            raise ConfigError(name, text, f"given twice, also as {key}")
        found[key] = text.strip()
        _READ[key](name, text)
    _check_together(found)
    return tuple(sorted(found.items()))


def _check_together(found: Mapping[str, str]) -> None:
    others = [key for key in found if key != ENABLE]
    if others and found.get(ENABLE, "false").lower() != "true":
        raise ConfigError(others[0], "…", f"only with {ENABLE}=true (or useTLS=true)")
    if TRUSTED in found and found.get(AUTH_SERVER, "false").lower() != "true":
        raise ConfigError(TRUSTED, found[TRUSTED], f"only with {AUTH_SERVER}=true: without it no server is checked")
    if "tls.client.keyPath" in found and "tls.client.certPath" not in found:
        raise ConfigError("tls.client.keyPath", found["tls.client.keyPath"], "only with tls.client.certPath")
