"""Encodes records' properties from columns of values, one column for each name.

Values are as in Arrow: ``values`` (uint8, read-only) and ``offsets`` (int64, one more than rows). A row with an empty
value does not get the property.

Source: MessageDecoder.messageProperties2String; ``gantrymq.format.properties.encode_properties``.
"""

from __future__ import annotations

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.entries import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from gantrymq.kernels.intrinsics import copy
from gantrymq.kernels.jit import kernel


@kernel
def fill_property(name: Bytes, values: Bytes, offsets: Int64s, n: int, cursors: Int64s, out: Bytes) -> None:
    """Write ``name 0x01 value 0x02`` of each of n rows to ``out``.

    Row i's is written at ``cursors[i]``, which is moved to its end.
    """
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        if start < stop:
            at = cursors[i]
            copy(out, at, name, 0, name.size)
            out[at + name.size] = NAME_VALUE_SEPARATOR
            copy(out, at + name.size + 1, values, start, stop - start)
            out[at + name.size + 1 + stop - start] = PROPERTY_SEPARATOR
            cursors[i] = at + name.size + 2 + stop - start
