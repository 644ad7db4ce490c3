"""One index file, and what a query takes from it.

File format: ``gantrymq.format.index``. Invariant: entries are numbered from 1; a chain goes from newer to older
entries only; the header in the file says what it holds whenever nobody is writing. A file that is streamed has no
header before the end of that, and nobody queries it.

Thread rule: one dispatcher writes; queries may run meanwhile and see a file that is whole up to some entry.

Source: IndexFile.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexHeader,
    decode_header,
    encode_header,
    entry_at,
    file_size,
)
from gantrymq.fs.api import File
from gantrymq.fs.holes import data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_put, index_select
from gantrymq.kernels.arrays import Int32s, Int64s, read_only
from gantrymq.kernels.codes import INDEX_PAGE_BYTES
from gantrymq.store.held_entries import HeldEntries
from gantrymq.store.index_space import IndexSpace
from gantrymq.store.index_stream import IndexStream
from gantrymq.store.record_batch import IndexEntries


class IndexFile:
    """The file at ``path`` with ``slots`` slots and room for ``entries`` - 1 entries.

    One that ``is_new`` has no header yet, and nobody looks for it: Linux would bring in megabytes of a hole.
    """

    def __init__(self, file: File, slots: int, entries: int, *, is_new: bool = False) -> None:
        self.path: Path = file.path
        self.slots = slots
        self.entries = entries
        self.size = file_size(slots, entries)
        self._file = file
        self._array = file.map()
        self._pages = np.zeros(-(-len(self._array) // INDEX_PAGE_BYTES), np.uint8)  # 1: was brought in for a query
        self._can_append = is_new  # whether the pages that an entry changes were brought in
        self._space = IndexSpace(file, slots, entries)
        self._held: HeldEntries | None = None  # of a file in doubt, until something differs
        self._stream: IndexStream | None = None
        if not is_new:
            file.fetch(0, HEADER_SIZE)
        self.header: IndexHeader = IndexHeader() if is_new else decode_header(self._array[:HEADER_SIZE].data)
        # No more than there are: a damaged count must not grow out of its field.
        self.header.hash_slot_count = min(self.header.hash_slot_count, slots)

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.header.index_count >= self.entries

    def reserve(self, hashes: Int32s) -> None:
        """Take the space that these entries need, for another program may have left a hole; raises DiskFullError."""
        self._space.take(hashes[: max(self.entries - self.header.index_count, 0)], self.header.index_count)

    def stream(self) -> None:
        """Write what is put up to the next :meth:`settle` or :meth:`flush` past the page cache.

        For a new file with its space reserved, of which nobody asks anything before that.
        """
        if self._space.has_all:
            self._stream = IndexStream(self._file, self.slots, self.entries)

    def begin_again(self) -> None:
        """Forget what the file holds; what is put now and stands there already is not written again.

        A file that a killed process left is nearly always whole, but only the log can say so. The header in the file
        stays until something differs, or until :meth:`settle`.
        """
        self._file.fetch(0, data_end(self._file, 0, self.size))
        self._can_append = True
        self._held = HeldEntries(self._array, self.slots, self.entries, self.header.index_count)
        self.header = IndexHeader()

    def settle(self) -> None:
        """End what :meth:`begin_again` or :meth:`stream` began; without effect where nothing is to end."""
        if self._stream is not None:
            self._stream.end(self.header)
            self._stream = None
        if self._held is not None:
            numbers = _numbers(self.header)
            self._end_held(self._held, numbers)
            self._take_numbers(numbers)

    def _end_held(self, held: HeldEntries, numbers: Int64s) -> None:
        # The header first: one that counts what is cleared would leave, after a kill, a file that proves nothing.
        self._held = None
        self._take_numbers(numbers)
        held.end(numbers)

    def begin_after(self, previous: IndexHeader) -> None:
        """Start with the end of the file before, as RocketMQ does until the first entry is in."""
        if previous.end_phy_offset > 0:
            self.header.begin_phy_offset = self.header.end_phy_offset = previous.end_phy_offset
        if previous.end_timestamp_ms > 0:
            self.header.begin_timestamp_ms = self.header.end_timestamp_ms = previous.end_timestamp_ms
        self._write_header()

    def end_at(self, phy_offset: int) -> None:
        """Vouch for nothing from ``phy_offset`` on: the log was cut there, and other records will follow."""
        if self.header.end_phy_offset > phy_offset:
            self.header.end_phy_offset = phy_offset
            self._write_header()
            self.flush()

    def put(self, entries: IndexEntries, start: int) -> int:
        """Put entries from ``start`` on until the file is full; returns how many went in."""
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
        if not self._can_append:  # slots are read before they are changed, and so is the page of the next entry
            self._file.fetch(0, data_end(self._file, 0, entry_at(self.slots, 0)))
            self._file.fetch(entry_at(self.slots, int(numbers[codes.INDEX_COUNT])), ENTRY_SIZE)
            self._can_append = True
        where = (self._array, self.slots, self._array, entry_at(self.slots, 0), self.entries)
        return int(index_put(*where, numbers, *entries, start, len(entries.hashes)))

    def _take_numbers(self, numbers: Int64s) -> None:
        self.header = IndexHeader(*numbers.tolist())
        self._write_header()

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file can hold entries of this time (isTimeMatched)."""
        first, last = self.header.begin_timestamp_ms, self.header.end_timestamp_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select(self, key_hash: int, begin_ms: int, end_ms: int, max_num: int) -> list[int]:
        """Physical offsets under ``key_hash``, newest first, at most ``max_num`` (selectPhyOffset); DiskError."""
        out = np.empty(min(max_num, self.entries), np.int64)  # a client may ask for more than there can be
        array, numbers, state = read_only(self._array.data), _numbers(self.header), np.zeros(3, np.int64)
        asked = (key_hash, begin_ms, end_ms, len(out), out)
        while (page := index_select(array, self.slots, self.entries, numbers, *asked, self._pages, state)) >= 0:
            self._file.fetch(page * INDEX_PAGE_BYTES, INDEX_PAGE_BYTES)
            self._pages[page] = 1
        return [int(offset) for offset in out[: state[0]]]

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
    """The header as the kernels have it; dataclasses.astuple copies each number, at more than a query costs."""
    times = header.begin_timestamp_ms, header.end_timestamp_ms
    offsets = header.begin_phy_offset, header.end_phy_offset
    return np.array((*times, *offsets, header.hash_slot_count, header.index_count), np.int64)
