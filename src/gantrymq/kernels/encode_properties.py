"""The bytes of records' properties from columns of values, one column for each name.

Values come as in Arrow: ``values`` (uint8, read-only), ``offsets`` (int64, one more than rows), ``validity`` (uint8,
read-only: Arrow's bitmap, whose bit ``validity_offset`` + i is row i's; without elements every row is there). A row
that is null or empty has no such property.

Source: MessageDecoder.messageProperties2String; ``gantrymq.format.properties.encode_properties``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gantrymq.kernels.arrays import ALL_VALID, Bytes, Int64s, read_only
from gantrymq.kernels.codes import STOP_DONE, STOP_SEPARATOR
from gantrymq.kernels.entries import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, find_byte
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.machine import copy


class PropertyColumn(NamedTuple):
    """The values of the property ``name`` (UTF-8) in every row."""

    name: bytes
    values: Bytes
    offsets: Int64s
    validity: Bytes = ALL_VALID
    validity_offset: int = 0


def encode_properties_batch(properties: Sequence[PropertyColumn], n: int) -> tuple[Bytes, Int64s]:
    """(values, offsets) of the encoded properties of ``n`` rows, in the order of ``properties``.

    Raises ValueError where a name or a value holds a separator: it could not be read back.
    """
    sizes = np.zeros(n + 1, np.int64)
    for name, values, offsets, validity, shift in properties:
        done, code, _ = size_property(len(name), values, offsets, validity, shift, n, sizes[1:])
        if code != STOP_DONE or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name:
            where = f"in row {done} " if code == STOP_SEPARATOR else ""
            raise ValueError(f"property {name!r} {where}holds a separator (0x01 or 0x02)")
    ends = np.cumsum(sizes)
    cursors, out = ends[:-1].copy(), np.empty(int(ends[-1]), np.uint8)
    for name, values, offsets, validity, shift in properties:
        fill_property(read_only(name), values, offsets, validity, shift, n, cursors, out)
    return out, ends


@helper
def _is_valid(validity: Bytes, i: int) -> bool:
    return validity.size == 0 or int(validity[i >> 3]) >> (i & 7) & 1 == 1


@kernel
def size_property(
    name_length: int,
    values: Bytes,
    offsets: Int64s,
    validity: Bytes,
    validity_offset: int,
    n: int,
    sizes: Int64s,
) -> tuple[int, int, int]:
    """Add to ``sizes[i]`` what ``name 0x01 value 0x02`` of row i takes; returns (done, stop code, row).

    Rows that are null or empty take nothing. ``validity`` (uint8, read-only) is Arrow's bitmap, whose bit
    ``validity_offset`` + i is row i's; without elements every row counts. STOP_SEPARATOR: the row's value holds 0x02.
    """
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        if start < stop and _is_valid(validity, validity_offset + i):
            if find_byte(values, start, stop, PROPERTY_SEPARATOR) < stop:
                return i, STOP_SEPARATOR, i
            sizes[i] += name_length + 2 + stop - start
    return n, STOP_DONE, n


@kernel
def fill_property(
    name: Bytes,
    values: Bytes,
    offsets: Int64s,
    validity: Bytes,
    validity_offset: int,
    n: int,
    cursors: Int64s,
    out: Bytes,
) -> None:
    """Write the entries that :func:`size_property` measured to ``out``, row i's at ``cursors[i]``, and move that on."""
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        if start < stop and _is_valid(validity, validity_offset + i):
            at = cursors[i]
            copy(out, at, name, 0, name.size)
            out[at + name.size] = NAME_VALUE_SEPARATOR
            copy(out, at + name.size + 1, values, start, stop - start)
            out[at + name.size + 1 + stop - start] = PROPERTY_SEPARATOR
            cursors[i] = at + name.size + 2 + stop - start
