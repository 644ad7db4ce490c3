"""A new index file, written from front to back past the page cache.

The index of a whole log needs hundreds of megabytes of new pages and is not read soon. Allocating them in the page
cache costs more than all other work (docs/perf/puts.md). Therefore the slots, which are accessed at random, stay in
private memory until the end. The entries, which are sequential, go through a few buffers that a thread writes.

::

    [header | slots | … page … | entries ……………………………………]
    [        table           ]
                    [ buffer ][ buffer ][ buffer ]…            one after the other, each reused

The page in which the entries begin is in both the table and the first buffer. The table, which is written last, has all
of it.

Thread rule: one dispatcher, and one thread of its own that writes.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, IndexHeader, encode_header, entry_at, file_size
from gantrymq.fs.api import Bytes, File
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_put
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.log.record_batch import IndexEntries

_PAGE_BYTES = 4096
_BUFFER_BYTES = 1 << 20
_BUFFERS = 4


class IndexStream:
    """Writes the entries of a new ``file`` with ``slots`` slots and ``entries`` entries. Its space must be reserved."""

    def __init__(self, file: File, slots: int, entries: int) -> None:
        self._file, self._slots, self._entries = file, slots, entries
        self._first_entry = entry_at(slots, 0)
        self._begin = self._at = self._first_entry - self._first_entry % _PAGE_BYTES
        self._pool = ThreadPoolExecutor(1, "IndexStream")
        self._table = _pages(self._begin + _PAGE_BYTES)
        # A new page that is read before it is written is faulted in twice.
        self._table_is_there = self._pool.submit(np.copyto, self._table, 0)
        self._buffer = _pages(_BUFFER_BYTES + _PAGE_BYTES)  # the last entry may cross the end
        self._written: deque[tuple[Bytes, Future[None]]] = deque()
        self._lost: Exception | None = None

    def put(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        """Put entries from ``start`` on until the file is full. Returns how many.

        ``numbers`` are the header's and are updated. Raises DiskError, and DiskFullError if the file system has no room
        for reserved space. The file is lost then, and every later call raises the same error.
        """
        with self._losing():
            return self._put(numbers, entries, start)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Remember an error and raise it again on later calls: the content of the file is unknown after it."""
        if self._lost is not None:
            raise self._lost
        try:
            yield
        except Exception as error:
            self._lost = error
            raise

    def _put(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        self._table_is_there.result()
        begin, stop = start, len(entries.hashes)
        while start < stop and numbers[codes.INDEX_COUNT] < self._entries:
            room = -(-(self._at + _BUFFER_BYTES - self._end(int(numbers[codes.INDEX_COUNT]))) // ENTRY_SIZE)
            if room <= 0:
                self._turn()
                continue
            where = (self._table, self._slots, self._buffer, self._first_entry - self._at, self._entries)
            start += int(index_put(*where, numbers, *entries, start, min(start + room, stop)))
        return start - begin

    def _end(self, count: int) -> int:
        """Return the position of the next entry if the header counts ``count``."""
        return entry_at(self._slots, count)

    def _turn(self) -> None:
        """Hand the full buffer to the writing thread. The next buffer begins with the entry that crosses the border."""
        full, fresh = self._buffer, None
        if len(self._written) == _BUFFERS - 1:
            fresh, written = self._written.popleft()
            written.result()
        self._complete_table()
        self._written.append((full, self._pool.submit(self._write, self._at, full[:_BUFFER_BYTES])))
        self._buffer = _pages(len(full)) if fresh is None else fresh
        self._buffer[:ENTRY_SIZE] = full[_BUFFER_BYTES : _BUFFER_BYTES + ENTRY_SIZE]
        self._at += _BUFFER_BYTES

    def _complete_table(self) -> None:
        if self._at == self._begin:
            slots_end = self._first_entry - self._begin
            self._table[self._first_entry :] = self._buffer[slots_end:_PAGE_BYTES]

    def _write(self, position: int, data: Bytes) -> None:
        whole = len(data) - len(data) % _PAGE_BYTES
        self._file.write_past_cache(position, data[:whole].data)
        if whole < len(data):
            self._file.write_at(position + whole, data[whole:].data)

    def end(self, header: IndexHeader) -> None:
        """Return when everything is written to the file, without a sync. Raises like put."""
        with self._losing():
            self._end_with(header)
        self.close()

    def _end_with(self, header: IndexHeader) -> None:
        self._table_is_there.result()
        self._complete_table()
        self._table[:HEADER_SIZE] = np.frombuffer(encode_header(header), np.uint8)
        used = self._end(header.index_count) - self._at
        self._written.append((self._buffer, self._pool.submit(self._write, self._at, self._buffer[: max(used, 0)])))
        # a small file ends inside the last page of the table
        table = self._table[: file_size(self._slots, self._entries)]
        self._written.append((table, self._pool.submit(self._write, 0, table)))
        for _, written in self._written:
            written.result()

    def close(self) -> None:
        """Wait for the thread. Buffers that are not written are lost."""
        self._pool.shutdown(cancel_futures=True)


def _pages(size_bytes: int) -> Bytes:
    """Return page-aligned memory, which direct writes need."""
    return np.frombuffer(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
