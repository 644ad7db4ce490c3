"""Scans parts of a commit log in advance, on several cores.

The obvious way, one part of the file for each thread, fails because only the records before it show where a record
begins. :class:`ScanAhead` therefore scans a part from the first position that looks like a record (``find_record``).
The scan is used only if the record before it ends exactly there, so the result equals that of a single scan. Anything
other than a valid record, including the end of the log, is left to the caller:
:class:`gantrymq.store.log.record_chain.RecordChain`.

Thread rule: one owner. The threads read only bytes that were written before :meth:`ScanAhead.begin`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, TypeVar

from gantrymq.errors import StoreError
from gantrymq.format.record import SECTOR
from gantrymq.fs.api import Bytes
from gantrymq.fs.reads import HasHoles, data_end
from gantrymq.kernels.api import find_record
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, SETS, RecordBatch, Scan

# view(position, length) returns read-only bytes of a file: fewer at the end of the file, none in a hole.
View = Callable[[int, int], Bytes]

_THREADS = 4  # at most: more do not help, because one thread takes the batches
_WAITING_PARTS = 3  # parts in reserve, because the caller may run late while these threads keep every core busy
_PART_RECORDS = LARGE_BATCH_RECORDS // 2  # half a batch, because the sizes of records vary
ALONE_BYTES, FIRST_PART_BYTES = 1 << 20, 16 << 20
MIN_PART_BYTES, MAX_PART_BYTES = 1 << 20, 32 << 20
_LONGEST_RECORD_BYTES = (4 << 20) + (128 << 10)  # bytes; the caller reads a longer record itself
_PAGE_BYTES = 4096


def of_data(file: HasHoles, view: View) -> View:
    """``view`` without the hole at its end: for one page of a hole Linux reads megabytes of zeros ahead."""

    def seen(position: int, length: int) -> Bytes:
        return view(position, data_end(file, position, position + length) - position)

    return seen


def _no_file(position: int, length: int) -> Bytes:
    raise AssertionError("begin() comes first")


class _Part(NamedTuple):
    start: int
    end: int
    scan: Scan
    batch: Future[RecordBatch | None]


class ScanAhead:
    """The parts of a log that are scanned in advance. Use it as a context manager.

    ``make_scan`` makes a scan with room for ``LARGE_BATCH_RECORDS``. The first megabyte is left to the caller, because
    many logs are hardly larger.
    """

    def __init__(self, make_scan: Callable[[], Scan]) -> None:
        threads = min(os.cpu_count() or 1, _THREADS)
        self._make_scan = make_scan
        self._pool = ThreadPoolExecutor(threads, "ScanAhead")
        self._ahead = threads + _WAITING_PARTS
        self._idle: list[Scan] = []
        self._lent: deque[Scan] = deque()  # scans whose batches the caller may still use
        self._parts: deque[_Part] = deque()
        self._part_bytes = FIRST_PART_BYTES
        self._view: View = _no_file
        self._base = self._next = self._size = 0
        self._is_worth_it = False

    def begin(self, view: View, base: int, start: int, size: int) -> None:
        """Continue with a file of ``size`` bytes, from position ``start``; ``base`` is its physical offset.

        Several threads call ``view`` at once.
        """
        self._forget()
        self._view, self._base, self._size = view, base, size
        self._next = min(start + (0 if self._is_worth_it else ALONE_BYTES), size)
        if self._is_worth_it:
            self._start_parts()

    def take(self, position: int) -> RecordBatch | None:
        """The records from ``position`` of the file on; None if the caller must read them, up to :meth:`bound`.

        The batch is valid until two more were taken. Take the position after it next.
        """
        if not self._is_worth_it and position >= self._next:
            self._is_worth_it, self._next = True, position
            self._start_parts()
        while self._parts and self._parts[0].end <= position:
            self._drop()
        if not self._parts or position < self._parts[0].start:
            return None
        part = self._parts.popleft()
        batch = part.batch.result()
        if batch is None or batch.start_offset != self._base + position:
            self._idle.append(part.scan)
            self._start_parts()
            return None
        self._lent.append(part.scan)
        if len(self._lent) > SETS:
            self._idle.append(self._lent.popleft())
        self._start_parts()
        record_bytes = (batch.end_offset - batch.start_offset) // batch.count
        self._part_bytes = min(max(record_bytes * _PART_RECORDS, MIN_PART_BYTES), MAX_PART_BYTES)
        return batch

    def bound(self, position: int, stop: int) -> int:
        """The position up to which the caller must read by itself: the beginning of the next part, or ``stop``."""
        starts = [part.start for part in self._parts] if self._is_worth_it else [self._next]
        return min([stop, *(start for start in starts if start > position)])

    def _start_parts(self) -> None:
        while len(self._parts) < self._ahead and self._next < self._size:
            start, end = self._next, min(self._next + self._part_bytes, self._size)
            scan = self._idle.pop() if self._idle else self._make_scan()
            self._parts.append(_Part(start, end, scan, self._pool.submit(self._read, scan, self._view, start, end)))
            self._next = end

    def _read(self, scan: Scan, view: View, start: int, end: int) -> RecordBatch | None:
        """The records that begin in [start, end) of the file, up to the first position without a valid record."""
        lead = start % SECTOR
        try:
            buffer = view(start - lead, min(end + _LONGEST_RECORD_BYTES, self._size) - start + lead)
        except (OSError, StoreError):
            return None  # the caller reads there again, and raises the error
        stop = lead + end - start
        if not buffer[lead : lead + _PAGE_BYTES].any():
            return None  # most likely the end of the log: only zeros to search
        base = self._base + start - lead
        begin = find_record(buffer, lead, min(stop, lead + _LONGEST_RECORD_BYTES), base)
        batch = scan(buffer, base, begin, stop, len(buffer)).batch
        return batch if batch.count else None

    def _drop(self) -> None:
        part = self._parts.popleft()
        if not part.batch.cancel():
            part.batch.exception()  # wait for its end, because its memory is reused
        self._idle.append(part.scan)

    def _forget(self) -> None:
        while self._parts:
            self._drop()

    def __enter__(self) -> ScanAhead:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the threads."""
        self._forget()
        self._pool.shutdown()


Item = TypeVar("Item")


def one_ahead(scanner: Iterable[Item]) -> Iterator[Item]:
    """The items of ``scanner``; a second thread makes the next one while the caller works on this one.

    Read the attributes of ``scanner`` only after the iteration, because they belong to the item in advance.
    """
    batches = iter(scanner)
    with ThreadPoolExecutor(1, "LogScanner") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch
