"""Encodes records' properties from a map column: for each row any number of names and values, in their order.

Keys and items are as in Arrow (``values`` uint8 read-only, ``offsets`` int64). Row i has the entries ``row_offsets[i]``
to ``row_offsets[i + 1]``.

Source: MessageDecoder.messageProperties2String.
"""

from __future__ import annotations

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.entries import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from gantrymq.kernels.intrinsics import copy
from gantrymq.kernels.jit import kernel


@kernel
def size_map(row_offsets: Int64s, key_offsets: Int64s, item_offsets: Int64s, n: int, sizes: Int64s) -> None:
    """Add the size of row i's entries (bytes) to ``sizes[i]``."""
    for i in range(n):
        first, last = row_offsets[i], row_offsets[i + 1]
        keys = key_offsets[last] - key_offsets[first]
        items = item_offsets[last] - item_offsets[first]
        sizes[i] += keys + items + 2 * (last - first)


@kernel
def fill_map(
    row_offsets: Int64s,
    key_values: Bytes,
    key_offsets: Int64s,
    item_values: Bytes,
    item_offsets: Int64s,
    n: int,
    cursors: Int64s,
    out: Bytes,
) -> None:
    """Write the entries that :func:`size_map` measured to ``out``.

    Row i's are written at ``cursors[i]``, which is moved to their end.
    """
    for i in range(n):
        at = cursors[i]
        for entry in range(row_offsets[i], row_offsets[i + 1]):
            key, item = key_offsets[entry], item_offsets[entry]
            key_length, item_length = key_offsets[entry + 1] - key, item_offsets[entry + 1] - item
            copy(out, at, key_values, key, key_length)
            out[at + key_length] = NAME_VALUE_SEPARATOR
            at += key_length + 1
            copy(out, at, item_values, item, item_length)
            out[at + item_length] = PROPERTY_SEPARATOR
            at += item_length + 1
        cursors[i] = at
