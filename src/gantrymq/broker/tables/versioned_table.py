"""A table in the format of RocketMQ's configuration files, and its version.

The fields of an object are sorted by name, and null fields are left out. The entries of a map keep their order of
insertion; after a load that is the order of the file. Numeric keys stay numbers. Name servers and slaves compare
versions to find the newer table.

Source: DataVersion, RemotingSerializable over fastjson2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gantrymq.clock import Clock
from gantrymq.model.java import string_hash
from gantrymq.remoting.bodies.topic import DataVersion


class TableVersion:
    """The version of a table. Thread rule: that of the table."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._value = DataVersion(timestamp=clock.now_ms())
        self._changed_ms = self._changes = 0  # since _value was made: each transaction changes a table twice

    @property
    def value(self) -> DataVersion:
        """The version, an object that is never changed, so that it may be kept."""
        if self._changes:
            self._value = DataVersion(timestamp=self._changed_ms, counter=self._value.counter + self._changes)
            self._changes = 0
        return self._value

    @value.setter
    def value(self, value: DataVersion) -> None:
        self._value, self._changes = value, 0

    def next(self) -> None:
        """Set the next version, because the table has changed."""
        self._changed_ms = self._clock.now_ms()
        self._changes += 1


def persisted(value: Any) -> Any:
    """A body, or a part of one, as new dicts and lists."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {name: getattr(value, field) for name, field in sorted(names)}
        return {name: persisted(member) for name, member in fields.items() if member is not None}
    if isinstance(value, dict):
        return {key: persisted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [persisted(item) for item in value]
    return value


def in_hash_map_order(keys: Iterable[str], size: int) -> list[str]:
    """The keys in the order of a java.util.HashMap with initial capacity ``size`` (a power of two)."""
    given = list(keys)
    while len(given) > size * 3 // 4:
        size *= 2
    return sorted(given, key=lambda key: _spread(string_hash(key)) & (size - 1))


def _spread(code: int) -> int:
    code &= 0xFFFFFFFF
    return code ^ code >> 16
