"""Memory for kernels to fill and for Arrow to keep, without a copy in between.

It comes from Arrow's own pool, which gives the pages of one batch to the next: fresh pages of the operating system
would cost as much as filling them. Arrays are made of their buffers, for ``pa.array`` and ``pa.scalar`` bring in
pandas, which costs every new process a quarter of a second of its core, more than a small read itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class ValueBuffer:
    """``array`` is writable memory of at least ``size`` elements of ``dtype``; ``arrow`` the same memory for Arrow."""

    def __init__(self, size: int, dtype: type[np.generic]) -> None:
        item_bytes = np.dtype(dtype).itemsize
        self.arrow = pa.allocate_buffer(max(size, 1) * item_bytes)
        self.array: NDArray[Any] = np.frombuffer(self.arrow, dtype)


def byte_buffer(size: int) -> ValueBuffer:
    """For the bytes of values."""
    return ValueBuffer(size, np.uint8)


def offset_buffer(rows: int) -> ValueBuffer:
    """For the offsets of ``rows`` values, one more than rows."""
    return ValueBuffer(rows + 1, np.int32)


def validity(is_there: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's bitmap of what is not null; None where nothing is null."""
    return None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))


def numbers_array(values: NDArray[Any]) -> pa.Array:
    """``values``, contiguous numbers of any dtype that Arrow has, as they lie in memory."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts_array(texts: Sequence[str]) -> pa.Array:
    """Texts as an array of strings."""
    raw = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raw))])


def truths_of(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """What an array without nulls holds."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].view(np.bool_)
