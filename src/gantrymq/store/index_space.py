"""The disk space of one index file, which is written through its mapping, mostly, and must have space before that.

A file takes all of its space when it is begun. Where the disk has no room for that, a large one (that of RocketMQ's
default geometry is 420 MB) takes the pages that its entries touch, as they come. Either leaves the last of the disk to
the queues: an index can be made again at any time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskFullError
from gantrymq.format.index import HEADER_SIZE, SLOT_SIZE, entry_at, file_size
from gantrymq.fs.api import File
from gantrymq.kernels.arrays import Int32s

_PAGE_SIZE = 4096
_LEFT_BYTES = 1 << 20
_SPARSE_FROM_BYTES = 4 << 20


class IndexSpace:
    """The space of ``file`` with ``slots`` slots and ``entries`` entries. One dispatcher takes it."""

    def __init__(self, file: File, slots: int, entries: int) -> None:
        self._file = file
        self._slots = slots
        self._size = file_size(slots, entries)
        self.has_all = False  # whether all of the file has its space
        self._pages: NDArray[np.bool_] | None = None  # which pages have their space, where not all could be had

    def take(self, hashes: Int32s, first: int) -> None:
        """Take what entry ``first`` and those behind it, with these key hashes, will touch; raises DiskFullError."""
        if self.has_all:
            return
        if self._pages is None:
            try:
                self._file.reserve(0, self._size, leave=_LEFT_BYTES)
            except DiskFullError:
                if self._size < _SPARSE_FROM_BYTES:
                    raise
                self._pages = np.zeros(-(-self._size // _PAGE_SIZE), np.bool_)
            else:
                self.has_all = True
                return
        self._take_pages(self._pages, hashes, first)

    def _take_pages(self, pages: NDArray[np.bool_], hashes: Int32s, first: int) -> None:
        begin, end = entry_at(self._slots, first), min(entry_at(self._slots, first + len(hashes)), self._size)
        slots = (HEADER_SIZE + hashes.astype(np.int64) % self._slots * SLOT_SIZE) // _PAGE_SIZE
        wanted = np.unique(np.concatenate(([0], slots, np.arange(begin // _PAGE_SIZE, -(-end // _PAGE_SIZE)))))
        for page in wanted[~pages[wanted]].tolist():
            length = min(_PAGE_SIZE, self._size - page * _PAGE_SIZE)
            self._file.reserve(page * _PAGE_SIZE, length, leave=_LEFT_BYTES)
            pages[page] = True
