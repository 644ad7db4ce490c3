"""A new index file, written from front to back past the page cache.

Pages of a file that has none yet are the dearest memory there is (docs/perf/puts.md), the index of a whole log is
hundreds of megabytes of them, and nobody reads it soon. So the slots, which are reached at random, stay in memory of
our own until the end; entries, which only follow each other, go through a few buffers that a thread writes away.

::

    [header | slots | … page … | entries ……………………………………]
    [        table           ]
                    [ buffer ][ buffer ][ buffer ]…            one after the other, each a few times

The page in which entries begin is in the table and in the first buffer; the table, which is written last, has it whole.

Thread rule: one dispatcher, and a thread of its own that writes.
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
    """What is put into ``file``, which is new, has its space, and takes ``entries`` entries at ``slots`` slots."""

    def __init__(self, file: File, slots: int, entries: int) -> None:
        self._file, self._slots, self._entries = file, slots, entries
        self._first_entry = entry_at(slots, 0)
        self._begin = self._at = self._first_entry - self._first_entry % _PAGE_BYTES
        self._pool = ThreadPoolExecutor(1, "IndexStream")
        self._table = _pages(self._begin + _PAGE_BYTES)
        # Read before they are written, new pages would be asked for twice.
        self._table_is_there = self._pool.submit(np.copyto, self._table, 0)
        self._buffer = _pages(_BUFFER_BYTES + _PAGE_BYTES)  # the last entry may end behind it
        self._written: deque[tuple[Bytes, Future[None]]] = deque()
        self._lost: Exception | None = None

    def put(self, numbers: Int64s, entries: IndexEntries, start: int) -> int:
        """Put entries from ``start`` on until the file is full; returns how many went in.

        ``numbers`` are those of the header, and count them. Raises DiskError, and DiskFullError where a file system
        has no room for what was reserved; the file is lost then, and every later call raises the same.
        """
        with self._losing():
            return self._put(numbers, entries, start)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Nobody knows what stands in the file after an error, nor where the next entry would go."""
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
        """Where the next entry goes when the header counts so many."""
        return entry_at(self._slots, count)

    def _turn(self) -> None:
        """Write the buffer away and go on with the next one, which begins with what ended behind this one."""
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
        """Return when all of it stands in the file, which is not synced by that; raises as put does."""
        with self._losing():
            self._end_with(header)
        self.close()

    def _end_with(self, header: IndexHeader) -> None:
        self._table_is_there.result()
        self._complete_table()
        self._table[:HEADER_SIZE] = np.frombuffer(encode_header(header), np.uint8)
        used = self._end(header.index_count) - self._at
        self._written.append((self._buffer, self._pool.submit(self._write, self._at, self._buffer[: max(used, 0)])))
        table = self._table[: file_size(self._slots, self._entries)]  # a small file ends within its last page
        self._written.append((table, self._pool.submit(self._write, 0, table)))
        for _, written in self._written:
            written.result()

    def close(self) -> None:
        """Wait for the thread; what was not written is lost."""
        self._pool.shutdown(cancel_futures=True)


def _pages(size_bytes: int) -> Bytes:
    """Memory that begins at a page, as the system wants it of who writes past its cache."""
    return np.frombuffer(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
