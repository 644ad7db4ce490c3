"""Arrays that obey the typing rule of this package. Nothing here imports Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantrymq.kernels.codes import N_COLUMNS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


def read_only(buffer: ReadableBuffer) -> Bytes:
    """A read-only uint8 view of ``buffer``: how every byte array that is only read goes into a kernel."""
    return np.frombuffer(memoryview(buffer).toreadonly(), np.uint8)


def int64s(values: ArrayLike) -> Int64s:
    """``values`` as a writable, contiguous int64 array, copied only where it is not one already."""
    return np.require(values, np.int64, ["C", "W", "A"])


def new_columns(capacity: int) -> Int64s:
    """An empty column matrix for at least ``capacity`` records.

    Its rows are an odd number of cache lines long: rows at equal distances of a power of two would all compete
    for the same few places of the first-level cache.
    """
    lines = -(-capacity // 8)
    return np.empty((N_COLUMNS, (lines | 1) * 8), np.int64)
