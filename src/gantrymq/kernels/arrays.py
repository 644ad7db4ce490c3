"""Arrays that obey the typing rule of this package. Nothing here imports Numba."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gantrymq.kernels.codes import N_COLUMNS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
MAX_ENTRIES = 8192  # per record: 32767 bytes hold no more properties that count
MAX_REPAIRED = 3 * 32767


def read_only(buffer: ReadableBuffer) -> Bytes:
    """Return a read-only uint8 view of ``buffer``. A kernel takes every byte array that it only reads in this form."""
    return np.frombuffer(memoryview(buffer).toreadonly(), np.uint8)


def int64s(values: ArrayLike) -> Int64s:
    """Return ``values`` as a writable, contiguous int64 array. Copies only if it is not one already."""
    return np.require(values, np.int64, ["C", "W", "A"])


def new_columns(capacity: int, rows: int = N_COLUMNS) -> Int64s:
    """Return an empty column matrix with its first ``rows`` rows, for at least ``capacity`` records.

    Each row is an odd number of cache lines long: rows at distances of a power of two would all compete for the same
    few sets of the first-level cache.
    """
    lines = -(-capacity // 8)
    return np.empty((rows, (lines | 1) * 8), np.int64)


class Scratch(NamedTuple):
    """The working memory of ``columns.properties_map``: four numbers for each entry of a record, and repaired bytes."""

    entries: Int64s
    repaired: Bytes


def new_scratch() -> Scratch:
    """Return the scratch memory for one thread."""
    return Scratch(np.empty((4, MAX_ENTRIES), np.int64), np.empty(MAX_REPAIRED, np.uint8))
