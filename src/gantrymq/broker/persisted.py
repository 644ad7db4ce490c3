"""A table in the shape that RocketMQ's configuration files have it.

The fields of an object stand in the order of their names, those that are null are left out; the entries of a map keep
the order they came in, which after loading a file is that file's; keys that are numbers stay numbers.

Source: RemotingSerializable over fastjson2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gantrymq.model.java import string_hash


def persisted(value: Any) -> Any:
    """A body, or what one holds, as dicts and lists that share nothing with it."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {name: getattr(value, field) for name, field in sorted(names)}
        return {name: persisted(one) for name, one in fields.items() if one is not None}
    if isinstance(value, dict):
        return {key: persisted(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [persisted(one) for one in value]
    return value


def in_hash_map_order(keys: Iterable[str], size: int) -> list[str]:
    """The order in which a java.util.HashMap, made with room for ``size`` (a power of two), gives its keys back."""
    given = list(keys)
    while len(given) > size * 3 // 4:
        size *= 2
    return sorted(given, key=lambda key: _spread(string_hash(key)) & (size - 1))


def _spread(code: int) -> int:
    code &= 0xFFFFFFFF
    return code ^ code >> 16
