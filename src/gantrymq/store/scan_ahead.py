"""Scanning parts of a file before they are asked for, by several cores.

Where records begin in the middle of a file only those before can tell for sure. A part begins with the first place that
looks like a record (``find_record``), and counts only where the record before it is found to end just there; so what is
read is what one scan after the other would read. Everything that is not a plain record, the end of the log first of
all, is left to whoever asks.

Thread rule: one owner; its threads read what was written before :meth:`ScanAhead.begin`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from gantrymq.errors import StoreError
from gantrymq.format.record import SECTOR
from gantrymq.fs.api import Bytes, File
from gantrymq.fs.holes import data_end
from gantrymq.kernels.api import find_record
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.record_scan import LARGE_BATCH_RECORDS, SETS, Scan

# (position, length) of a file: its bytes, read-only; fewer where the file ends, none where it is known to be empty.
View = Callable[[int, int], Bytes]

_THREADS = 4  # at most; what takes the batches is not faster
_WAITING_PARTS = 3  # whoever asks gets his turn late, by some parts, while these threads have every core
_PART_RECORDS = LARGE_BATCH_RECORDS // 2  # records differ
ALONE_BYTES, FIRST_PART_BYTES = 1 << 20, 16 << 20
LEAST_PART_BYTES, MOST_PART_BYTES = 1 << 20, 32 << 20
_LONGEST_RECORD_BYTES = (4 << 20) + (128 << 10)  # of usual ones; a longer one is whoever asks' to read
_PAGE_BYTES = 4096


def of_data(file: File, view: View) -> View:
    """``view`` of a file, but none of a hole: a look at one page of that would bring in megabytes of zeros."""

    def seen(position: int, length: int) -> Bytes:
        return view(position, data_end(file, position, position + length) - position)

    return seen


def _no_file(position: int, length: int) -> Bytes:
    raise AssertionError("begin() comes first")


class _Part(NamedTuple):
    start: int
    end: int
    scan: Scan
    found: Future[RecordBatch | None]


class ScanAhead:
    """Use it as a context manager. ``make_scan`` makes a scan with room for ``LARGE_BATCH_RECORDS``.

    The first records of all are left to whoever asks: many a log is hardly begun.
    """

    def __init__(self, make_scan: Callable[[], Scan]) -> None:
        threads = min(os.cpu_count() or 1, _THREADS)
        self._make_scan = make_scan
        self._pool = ThreadPoolExecutor(threads, "ScanAhead")
        self._ahead = threads + _WAITING_PARTS
        self._idle: list[Scan] = []
        self._lent: deque[Scan] = deque()  # those whose batches still live
        self._parts: deque[_Part] = deque()
        self._part_bytes = FIRST_PART_BYTES
        self._view: View = _no_file
        self._base = self._next = self._size = 0
        self._is_worth_it = False

    def begin(self, view: View, base: int, start: int, size: int) -> None:
        """Go on with a file of ``size`` bytes, of which ``start`` is asked for first; ``base`` is its physical offset.

        ``view`` is called by several threads at once.
        """
        self._forget()
        self._view, self._base, self._size = view, base, size
        self._next = min(start + (0 if self._is_worth_it else ALONE_BYTES), size)
        if self._is_worth_it:
            self._start_parts()

    def take(self, position: int) -> RecordBatch | None:
        """The records from ``position`` of the file on; None where whoever asks must read them, up to :meth:`bound`.

        The batch lives until two more were taken. What comes behind it is to be asked for next.
        """
        if not self._is_worth_it and position >= self._next:
            self._is_worth_it, self._next = True, position
            self._start_parts()
        while self._parts and self._parts[0].end <= position:
            self._drop()
        if not self._parts or position < self._parts[0].start:
            return None
        part = self._parts.popleft()
        batch = part.found.result()
        if batch is None or batch.start_offset != self._base + position:
            self._idle.append(part.scan)
            self._start_parts()
            return None
        self._lent.append(part.scan)
        if len(self._lent) > SETS:
            self._idle.append(self._lent.popleft())
        self._start_parts()
        record_bytes = (batch.end_offset - batch.start_offset) // batch.count
        self._part_bytes = min(max(record_bytes * _PART_RECORDS, LEAST_PART_BYTES), MOST_PART_BYTES)
        return batch

    def bound(self, position: int, stop: int) -> int:
        """Up to where whoever asks is to read from ``position`` on: where a part may be had again, ``stop`` at most."""
        starts = [part.start for part in self._parts] if self._is_worth_it else [self._next]
        return min([stop, *(start for start in starts if start > position)])

    def _start_parts(self) -> None:
        while len(self._parts) < self._ahead and self._next < self._size:
            start, end = self._next, min(self._next + self._part_bytes, self._size)
            scan = self._idle.pop() if self._idle else self._make_scan()
            self._parts.append(_Part(start, end, scan, self._pool.submit(self._read, scan, self._view, start, end)))
            self._next = end

    def _read(self, scan: Scan, view: View, start: int, end: int) -> RecordBatch | None:
        """The records of [start, end) of the file, as many as there are up to the first thing that is none."""
        lead = start % SECTOR
        try:
            buffer = view(start - lead, min(end + _LONGEST_RECORD_BYTES, self._size) - start + lead)
        except (OSError, StoreError):
            return None  # whoever asks gets that error
        stop = lead + end - start
        if not buffer[lead : lead + _PAGE_BYTES].any():
            return None  # most likely the end of the log, and nothing but zeros to search
        base = self._base + start - lead
        begin = find_record(buffer, lead, min(stop, lead + _LONGEST_RECORD_BYTES), base)
        batch = scan(buffer, base, begin, stop, len(buffer)).batch
        return batch if batch.count else None

    def _drop(self) -> None:
        part = self._parts.popleft()
        if not part.found.cancel():
            part.found.exception()  # its end: its memory is used again
        self._idle.append(part.scan)

    def _forget(self) -> None:
        while self._parts:
            self._drop()

    def __enter__(self) -> ScanAhead:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its threads."""
        self._forget()
        self._pool.shutdown()
