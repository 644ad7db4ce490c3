"""The options of a read, under the names of Spark's Kafka connector where it has one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gantrymq.errors import ConfigError

_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options; picklable. Field by field they stand in docs/spark.md."""

    path: Path
    subscribe: frozenset[str] | None = None
    subscribe_pattern: str | None = None
    min_partitions: int = 0
    decompress: bool = True
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    broker_name: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read Spark's options, whose names know no upper and lower case; raises ConfigError."""
        values: dict[str, Any] = {}
        for name, text in options.items():
            option = _OPTIONS.get(name.lower())
            if option is None:
                spelt = {known.lower(): known for known in _NAMES}
                near = [spelt[known] for known in get_close_matches(name.lower(), spelt, 3)]
                raise ConfigError(name, text, f"no such option; there is {', '.join(near or _NAMES)}")
            shown, field, read = option
            if field in values:
                raise ConfigError(shown, text, "given twice under two names")
            values[field] = read(shown, text)
        if "path" not in values:
            raise ConfigError("path", "", "the directory of a store")
        if {"subscribe", "subscribe_pattern"} <= values.keys():
            raise ConfigError("subscribePattern", values["subscribe_pattern"], "either this or subscribe")
        return cls(**values)

    def require_store(self) -> None:
        """Raise NotAStoreError where the path holds no store."""
        from gantrymq.fs.real import RealFileSystem
        from gantrymq.store.geometry import require_store

        require_store(RealFileSystem(), self.path)


def _path(name: str, text: str) -> Path:
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in {"", "localhost"}:
        return Path(unquote(url.path))
    if not text or re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise ConfigError(name, text, "a directory that every executor sees as a local one")
    return Path(text).absolute()


def _names(name: str, text: str) -> frozenset[str]:
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ConfigError(name, text, "names of topics, separated by commas")
    return names


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(name, text, f"a regular expression ({error})") from None
    return text


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(name, text, "a whole number of at least 1")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.strip().lower() not in _TRUTH:
        raise ConfigError(name, text, "true or false")
    return _TRUTH[text.strip().lower()]


def _text(name: str, text: str) -> str:
    return text


# Option, field, and how its text is read.
_TABLE: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("path", "path", _path),
    ("subscribe", "subscribe", _names),
    ("topic", "subscribe", _names),
    ("subscribePattern", "subscribe_pattern", _pattern),
    ("minPartitions", "min_partitions", _count),
    ("decompress", "decompress", _truth),
    ("verifyCRC", "verify_crc", _truth),
    ("failOnDataLoss", "fail_on_data_loss", _truth),
    ("brokerName", "broker_name", _text),
)
_NAMES = [option for option, _, _ in _TABLE]
_OPTIONS = {option.lower(): (option, field, read) for option, field, read in _TABLE}
assert {field for _, field, _ in _TABLE} == {spec.name for spec in fields(ReadOptions)}
