"""Parsers for the texts of options, those of TLS included. Each raises ConfigError.

A parser takes the option's name and text. The options of TLS have the client keys of RocketMQ's tls.properties, for
reads and writes.

Source: TlsSystemConfig.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from gantrymq.config.name_servers import ALLOWED, name_server_addresses
from gantrymq.errors import ConfigError
from gantrymq.model.spans import parse_span_ms
from gantrymq.spark.write.writer_names import has_file_name, is_made_up

Positions = dict[tuple[str, str | None, int], int]
"""A number for each (topic, broker, queue id). The broker None stands for the only broker."""

Queues = frozenset[tuple[str, str | None, int]]

LATEST, EARLIEST = -1, -2
_MAX_LONG = (1 << 63) - 1

_TRUTH = {"true": True, "false": False}
LOG, START = "#log", "#start"
"""Keys beside the topics in the offsets of a checkpoint; neither is a valid topic name."""

_SECRETS = ("key", "secret", "passw", "sasl")
_POSITIONS = '{"topic":{"broker":{"0":23}}}, or {"topic":{"0":23}} where there is one broker'
_QUEUES = '{"topic":{"broker":[0,1]}}, or {"topic":[0,1]} where there is one broker'


def unknown(name: str, text: str, allowed: str) -> ConfigError:
    """The error for an unknown option. Its value is hidden if the name looks like a misspelt secret."""
    is_secret = any(part in name.lower() for part in _SECRETS)
    return ConfigError(name, "…" if is_secret else text, allowed)


def names(name: str, text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ConfigError(name, text, "names separated by commas")
    return parts


def tags(name: str, text: str) -> str:
    """Tags joined by ``||``, or ``*`` for all."""
    if not any(part.strip() for part in text.split("||")):
        raise ConfigError(name, text, "tags joined by ||, or * for all")
    return text


def pattern(name: str, text: str) -> str:
    """A Python regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(name, text, f"a regular expression ({error})") from None
    return text


def size_bytes(name: str, text: str) -> int:
    """A number of bytes, or with a unit of 1024: 512k, 64m, 1g."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)i?b?\s*", text.lower())
    if match is None or not int(match[1]):
        raise ConfigError(name, text, "a number of bytes of at least 1, or with its unit, such as 512k, 64m or 1g")
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def reset_policy(name: str, text: str) -> str:
    """The policy for a queue that was recreated: ``earliest``, ``latest`` or ``fail``."""
    word = text.strip().lower()
    if word not in ("earliest", "latest", "fail"):
        raise ConfigError(name, text, "earliest, latest or fail")
    return word


def count(name: str, text: str) -> int:
    """A whole number of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(name, text, "a whole number of at least 1")
    return int(text)


def truth(name: str, text: str) -> bool:
    """Parse true or false."""
    if text.strip().lower() not in _TRUTH:
        raise ConfigError(name, text, "true or false")
    return _TRUTH[text.strip().lower()]


def plain(name: str, text: str) -> str:
    """The text itself, which must not be empty."""
    if not text.strip():
        raise ConfigError(name, text, "a text that is not empty")
    return text


def writer(name: str, text: str) -> str:
    """The name of a writer, for the ledger."""
    if is_made_up(plain(name, text)):
        raise ConfigError(name, text, "another name: names of this form are reserved")
    if not has_file_name(text):
        raise ConfigError(name, text, "another or a shorter name: the ledger cannot have a file of this name")
    return text


def addresses(name: str, text: str) -> str:
    """Name servers in RocketMQ's form: ``host:port``, several joined by semicolons."""
    servers = name_server_addresses(name, text)
    if not servers:
        raise ConfigError(name, text, ALLOWED)
    return ";".join(servers)


def number(name: str, text: str, what: str = "") -> int:
    """A whole number of at least 0. ``what`` is the unit for the error text."""
    if not text.strip().isdecimal() or int(text) > _MAX_LONG:
        raise ConfigError(name, text, f"{what}a whole number of at least 0 that Java's long can hold")
    return int(text)


def timestamp_ms(name: str, text: str) -> int:
    """Milliseconds since 1970-01-01 UTC."""
    return number(name, text, "milliseconds since 1970 UTC, ")


def duration_ms(name: str, text: str) -> int:
    """A number with a unit: 500ms, 30s, 15m, 2h, 1 day. Returns milliseconds."""
    duration = parse_span_ms(text.strip().lower(), accepts_words=True)
    if duration is None:
        raise ConfigError(name, text, "a time with its unit, such as 500ms, 30s, 15m, 2h or 1 day")
    return duration


def offsets(name: str, text: str) -> str | Positions:
    """``earliest``, ``latest``, or an offset for each queue as JSON, with -2 for earliest and -1 for latest."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    if not word.startswith("{"):
        raise ConfigError(name, text, f"earliest, latest, or JSON: {_POSITIONS}")
    return positions(name, text, minimum=EARLIEST)


def timestamps(name: str, text: str) -> Positions:
    """A timestamp in ms for each queue as JSON."""
    return positions(name, text, minimum=0)


def positions(name: str, text: str, *, minimum: int) -> Positions:
    """JSON with a number of at least ``minimum`` for each queue."""
    parsed: Positions = {}
    for topic, inner in _json_object(name, text, _POSITIONS).items():
        if topic in (LOG, START):
            continue
        for broker, numbers in _by_broker(name, text, inner):
            for queue_id, number in numbers.items():
                if not queue_id.isdecimal() or type(number) is not int or not minimum <= number <= _MAX_LONG:
                    raise ConfigError(
                        name, text, f"{_POSITIONS}, numbers of at least {minimum} and at most {_MAX_LONG}"
                    )
                parsed[topic, broker, int(queue_id)] = number
    return parsed


def _by_broker(name: str, text: str, inner: Any) -> list[tuple[str | None, dict[str, Any]]]:
    if not isinstance(inner, dict) or not inner:
        raise ConfigError(name, text, _POSITIONS)
    if all(isinstance(value, dict) for value in inner.values()):
        return list(inner.items())
    return [(None, inner)]


def parse_assign(name: str, text: str) -> Queues:
    """Queues as JSON, as ``assign`` of the Kafka connector."""
    assigned: set[tuple[str, str | None, int]] = set()
    for topic, inner in _json_object(name, text, _QUEUES).items():
        for broker, ids in inner.items() if isinstance(inner, dict) else [(None, inner)]:
            if not isinstance(ids, list) or not all(type(queue_id) is int and queue_id >= 0 for queue_id in ids):
                raise ConfigError(name, text, _QUEUES)
            assigned |= {(topic, broker, queue_id) for queue_id in ids}
    if not assigned:
        raise ConfigError(name, text, _QUEUES)
    return frozenset(assigned)


def paths(name: str, text: str) -> tuple[str, ...]:
    """One path, several separated by commas, or a JSON array of them; a path may be a glob or a URI."""
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            listed = None
        if isinstance(listed, list) and listed and all(isinstance(path, str) and path for path in listed):
            return tuple(listed)
    if not text.strip():
        raise ConfigError(name, text, "the directory of a store, several separated by commas, or a glob")
    return (text,)


def _json_object(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(name, text, f"JSON: {shape} ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(name, text, f"JSON: {shape}")
    return value


TlsSettings = tuple[tuple[str, str], ...]

ENABLE, AUTH_SERVER, TRUSTED = "tls.enable", "tls.client.authServer", "tls.client.trustCertPath"
_READ: dict[str, Callable[[str, str], object]] = {
    ENABLE: truth,
    AUTH_SERVER: truth,
    TRUSTED: plain,
    "tls.client.certPath": plain,
    "tls.client.keyPath": plain,
    "tls.client.keyPassword": lambda *_: None,
    "tls.ciphers": plain,
    "tls.protocols": plain,
}
_KEYS = {key.lower(): key for key in _READ} | {"usetls": ENABLE}


def is_tls_option(name: str) -> bool:
    """Whether an option is a TLS option (``tls.…`` or ``useTLS``). Spark ignores case in names."""
    return name.lower().startswith("tls.") or name.lower() in _KEYS


def tls_settings(given: Mapping[str, str]) -> TlsSettings:
    """The TLS options in ``given`` as settings of tls.properties. Raises ConfigError.

    Options without an effect are refused, because a user who names certificates expects them to be used.
    """
    settings: dict[str, str] = {}
    for name, text in given.items():
        if not is_tls_option(name):
            continue
        key = _KEYS.get(name.lower())
        if key is None:
            near = [_KEYS[near_key] for near_key in get_close_matches(name.lower(), _KEYS, 3)]
            raise unknown(name, text, f"no such option; there is {', '.join(near or _READ)}")
        if key in settings:
            raise ConfigError(name, text, f"given twice, also as {key}")
        settings[key] = text.strip()
        _READ[key](name, text)
    _check_together(settings)
    return tuple(sorted(settings.items()))


def _check_together(settings: Mapping[str, str]) -> None:
    others = [key for key in settings if key != ENABLE]
    if others and settings.get(ENABLE, "false").lower() != "true":
        raise ConfigError(others[0], "…", f"only with {ENABLE}=true (or useTLS=true)")
    if TRUSTED in settings and settings.get(AUTH_SERVER, "false").lower() != "true":
        raise ConfigError(TRUSTED, settings[TRUSTED], f"only with {AUTH_SERVER}=true: without it no server is checked")
    if "tls.client.keyPath" in settings and "tls.client.certPath" not in settings:
        raise ConfigError("tls.client.keyPath", settings["tls.client.keyPath"], "only with tls.client.certPath")
