"""One index file: its disk space, its entries, and its queries.

File format: ``gantrymq.format.index``.

Invariant: entries are numbered from 1. A chain goes from newer to older entries only. While no write is running, the
header in the file agrees with its entries. A streamed file has no header before its end, and no query reads it.

A file reserves all of its space when it is begun. If the disk has no room for a large one (420 MB in RocketMQ's default
geometry), the file reserves the pages that its entries touch, as they come. Both leave the last of the disk to the
queues, because an index can be rebuilt at any time.

:class:`IndexRevalidator` keeps the entries of a doubtful file and lets the log confirm them one after the other.
Invariant: each entry before the header's count is right by itself. The chains are known to be right after
:meth:`IndexRevalidator.end`, which repairs broken ones.

Thread rule: one dispatcher writes. Queries may run meanwhile and see a file that is whole up to some entry.

Source: IndexFile.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskFullError
from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    decode_header,
    encode_header,
    entry_at,
    file_size,
)
from gantrymq.fs.api import Bytes, File
from gantrymq.fs.reads import data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_balance, index_clear, index_confirm, index_put, index_repair, index_select
from gantrymq.kernels.arrays import Int32s, Int64s
from gantrymq.kernels.codes import INDEX_PAGE_BYTES
from gantrymq.store.index.index_stream import IndexStream
from gantrymq.store.log.record_batch import IndexEntries

REBUILD_INDEX = "`gantrymq store rebuild --index` rebuilds the index from the commit log"
_PAGE_SIZE = 4096
_LEFT_BYTES = 1 << 20
_SPARSE_FROM_BYTES = 4 << 20


class IndexSpace:
    """The disk space of ``file`` with ``slots`` slots and ``entries`` entries. Thread rule: one dispatcher."""

    def __init__(self, file: File, slots: int, entries: int) -> None:
        self._file = file
        self._slots = slots
        self._size = file_size(slots, entries)
        self.has_all = False  # whether the whole file is reserved
        self._pages: NDArray[np.bool_] | None = None  # which pages are reserved, if the whole file could not be

    def take(self, hashes: Int32s, first: int) -> None:
        """Reserve the pages that entry ``first`` and those after it, with these key hashes, touch.

        Raises DiskFullError.
        """
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


class IndexRevalidator:
    """Checks the old content of the mapped file ``array``, of which its old header counted ``index_count`` entries."""

    def __init__(self, array: Bytes, slots: int, entries: int, index_count: int) -> None:
        self._array = array
        self._slots = slots
        self._entries = entries
        # Entries after the header's count are unreachable.
        self._end = min(index_count + 1, entries)
        self._seed = int.from_bytes(os.urandom(8), "big") >> 1  # the module secrets imports all of OpenSSL
        self._balance: int = index_balance(array, slots, self._seed)

    def confirm(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        """Return how many of ``entries`` from ``start`` on come next in the file. ``numbers`` are updated for them."""
        where, known = (self._array, self._slots, self._entries, numbers), (self._seed, self._balance)
        done, self._balance = index_confirm(*where, *entries, start, len(entries.hashes), *known)
        return int(done)

    def end(self, numbers: Int64s) -> None:
        """Clear what was not confirmed and repair the chains. ``numbers`` become those of the header."""
        count = int(numbers[codes.INDEX_COUNT])
        if self._balance:
            table = np.zeros(self._slots * SLOT_SIZE, np.uint8)
            numbers[codes.SLOT_COUNT] = index_repair(self._array, table, self._slots, count)
        index_clear(self._array, self._slots, count, self._end)


class IndexFile:
    """The index file ``file``, with ``slots`` slots and room for ``entries`` - 1 entries.

    If it ``is_new`` its header is not read: reading a hole would make Linux read ahead megabytes of it.
    """

    def __init__(self, file: File, slots: int, entries: int, *, is_new: bool = False) -> None:
        self.path: Path = file.path
        self.slots = slots
        self.entries = entries
        self.size = file_size(slots, entries)
        self._file = file
        self._array = file.map()
        # 1: the page is in memory for queries
        self._pages = np.zeros(-(-len(self._array) // INDEX_PAGE_BYTES), np.uint8)
        self._can_append = is_new  # whether the pages that an append changes are in memory
        self._space = IndexSpace(file, slots, entries)
        self._held: IndexRevalidator | None = None  # set for a doubtful file, until its content differs from the log
        self._stream: IndexStream | None = None
        if not is_new:
            file.fetch(0, HEADER_SIZE)
        self.header: IndexHeader = IndexHeader() if is_new else decode_header(self._array[:HEADER_SIZE].data)
        # Limited: a damaged count must not exceed its field.
        self.header.hash_slot_count = min(self.header.hash_slot_count, slots)

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another entry."""
        return self.header.index_count >= self.entries

    def reserve(self, hashes: Int32s) -> None:
        """Reserve the space that these entries need. Another program may have left a hole there.

        Raises DiskFullError.
        """
        self._space.take(hashes[: max(self.entries - self.header.index_count, 0)], self.header.index_count)

    def stream(self) -> None:
        """Write the following puts past the page cache, until :meth:`settle` or :meth:`flush`.

        Only for a new file with its space reserved that is not queried before that.
        """
        if self._space.has_all:
            self._stream = IndexStream(self._file, self.slots, self.entries)

    def begin_again(self) -> None:
        """Restart the file. Entries that are put now and are already in place are not written again.

        A file that a killed process left is nearly always intact, but only the log can confirm that. The header in the
        file stays until something differs, or until :meth:`settle`.
        """
        self._file.fetch(0, data_end(self._file, 0, self.size))
        self._can_append = True
        self._held = IndexRevalidator(self._array, self.slots, self.entries, self.header.index_count)
        self.header = IndexHeader()

    def settle(self) -> None:
        """End what :meth:`begin_again` or :meth:`stream` began, if anything."""
        if self._stream is not None:
            self._stream.end(self.header)
            self._stream = None
        if self._held is not None:
            numbers = _numbers(self.header)
            self._end_held(self._held, numbers)
            self._take_numbers(numbers)

    def _end_held(self, held: IndexRevalidator, numbers: Int64s) -> None:
        # The header first: after a kill, a header that counts cleared entries would make the geometry of the file
        # unprovable.
        self._held = None
        self._take_numbers(numbers)
        held.end(numbers)

    def begin_after(self, previous: IndexHeader) -> None:
        """Begin with the end of the previous file in the header, as RocketMQ does until the first entry is put."""
        if previous.end_phy_offset > 0:
            self.header.begin_phy_offset = self.header.end_phy_offset = previous.end_phy_offset
        if previous.end_timestamp_ms > 0:
            self.header.begin_timestamp_ms = self.header.end_timestamp_ms = previous.end_timestamp_ms
        self._write_header()

    def end_at(self, phy_offset: int) -> None:
        """Lower the end offset to ``phy_offset``: the log was cut there, and other records will follow."""
        if self.header.end_phy_offset > phy_offset:
            self.header.end_phy_offset = phy_offset
            self._write_header()
            self.flush()

    def put(self, entries: IndexEntries, start: int) -> int:
        """Put entries from ``start`` on until the file is full. Returns how many."""
        numbers, held, done = _numbers(self.header), self._held, 0
        if held is not None:
            done = held.confirm(numbers, entries, start)
            if start + done < len(entries.hashes) and numbers[-1] < self.entries:
                self._end_held(held, numbers)
        if self._held is None:
            done += self._append(numbers, entries, start + done)
        self._take_numbers(numbers)
        return done

    def _append(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        if self._stream is not None:
            return self._stream.put(numbers, entries, start)
        if not self._can_append:  # slots, and the page of the next entry, are read before they are changed
            self._file.fetch(0, data_end(self._file, 0, entry_at(self.slots, 0)))
            self._file.fetch(entry_at(self.slots, int(numbers[codes.INDEX_COUNT])), ENTRY_SIZE)
            self._can_append = True
        where = (self._array, self.slots, self._array, entry_at(self.slots, 0), self.entries)
        return int(index_put(*where, numbers, *entries, start, len(entries.hashes)))

    def _take_numbers(self, numbers: Int64s) -> None:
        self.header = IndexHeader(*numbers.tolist())
        self._write_header()

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file can have entries of this time (isTimeMatched)."""
        first, last = self.header.begin_timestamp_ms, self.header.end_timestamp_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select(self, key_hash: int, begin_ms: int, end_ms: int, max_num: int) -> list[int]:
        """Return physical offsets under ``key_hash``, newest first, at most ``max_num`` (selectPhyOffset).

        Raises DiskError.
        """
        out = np.empty(min(max_num, self.entries), np.int64)  # a client may ask for more than the file can hold
        array, numbers, state = self._array, _numbers(self.header), np.zeros(3, np.int64)
        criteria = (key_hash, begin_ms, end_ms, len(out), out)
        while (page := index_select(array, self.slots, self.entries, numbers, *criteria, self._pages, state)) >= 0:
            self._file.fetch(page * INDEX_PAGE_BYTES, INDEX_PAGE_BYTES)
            self._pages[page] = 1
        found: list[int] = out[: state[0]].tolist()
        return found

    def _write_header(self) -> None:
        if self._held is None and self._stream is None:
            self._array[:HEADER_SIZE] = np.frombuffer(encode_header(self.header), np.uint8)

    def flush(self) -> None:
        """Make the file durable."""
        if self._stream is not None:
            self.settle()
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._file.close()


def _numbers(header: IndexHeader) -> Int64s:
    """Return the header in the form that the kernels take.

    dataclasses.astuple copies each number, which costs more than a query.
    """
    times = header.begin_timestamp_ms, header.end_timestamp_ms
    offsets = header.begin_phy_offset, header.end_phy_offset
    return np.array((*times, *offsets, header.hash_slot_count, header.index_count), np.int64)
