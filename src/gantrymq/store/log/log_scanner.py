"""Reading the commit log forward in batches of columns, with several cores scanning in advance.

Where records begin in the middle of a file is certain only from the records before. :class:`ScanAhead` therefore scans
a part of the file from the first place that looks like a record (``find_record``), and the scan counts only if the
record before it ends exactly there. The result equals that of one scan after the other. Everything that is not a plain
record, the end of the log included, is left to the caller.

Thread rule: one owner a scanner. It reads what was written before it came there; the threads of ScanAhead read what
was written before :meth:`ScanAhead.begin`.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeVar

from gantrymq.errors import StoreError
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SECTOR
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes, File
from gantrymq.fs.holes import data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record
from gantrymq.kernels.arrays import read_only
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, SETS, RecordBatch, Scan, stop_reason

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


Item = TypeVar("Item")

_WINDOW_BYTES = 8 << 20
_HEAD = struct.Struct(">iI")


class LogScanner:
    """Scans ``log`` from ``start`` to ``end`` (None: to the end of the files), as ``scan`` reads records.

    With ``ahead`` parts of it are scanned by others before. They see what is written when a file's turn comes.

    Iterate over the batches; afterwards ``offset`` is where the records ended and ``stop`` why: NONE where ``end``
    was reached, BLANK where the last file ended in one. A batch lives while two more are asked for.
    """

    def __init__(self, log: CommitLog, start: int, end: int | None, scan: Scan, ahead: ScanAhead | None = None) -> None:
        self.offset = start
        self.stop = StopReason.NONE
        self._log = log
        self._end = end
        self._scan = scan
        self._ahead = ahead
        self._scanned: tuple[MappedFile, Bytes] | None = None

    def aim(self, start: int, end: int | None) -> None:
        """Scan from ``start`` to ``end`` next. Who reads little and often keeps a scanner and its memory."""
        self.offset, self._end, self.stop = start, end, StopReason.NONE

    def __iter__(self) -> Iterator[RecordBatch]:
        """The batches; none is empty."""
        while self._end is None or self.offset < self._end:
            file = self._log.queue.find(self.offset)
            if file is None:
                self.stop = self.stop or StopReason.NO_BLANK
                return
            stop = yield from self._scan_file(file)
            if stop is not StopReason.BLANK:
                return
            following = self._log.roll_next_file(self.offset)
            if self._log.queue.find(following) is None:
                return
            self.offset, self.stop = following, StopReason.NONE

    def skip_file(self) -> bool:
        """After a stop: go on with the file behind; False where there is none."""
        self.offset = self._log.roll_next_file(self.offset)
        self.stop = StopReason.NONE
        return self._log.queue.find(self.offset) is not None and (self._end is None or self.offset < self._end)

    def _scan_file(self, file: MappedFile) -> Generator[RecordBatch, None, StopReason]:
        buffer = self._buffer_of(file)
        base = file.file_from_offset
        stop_at = file.size if self._end is None else min(file.size, self._end - base)
        if self._ahead is not None:
            view = of_data(file.file, partial(_fetched, file, buffer))
            self._ahead.begin(view, base, self.offset - base, stop_at)
        while True:
            batch, code = self._next_batch(file, buffer, stop_at)
            self.stop = stop_reason(code)
            if batch.count:
                yield batch
            if code != codes.STOP_FULL:
                return self.stop

    def _next_batch(self, file: MappedFile, buffer: Bytes, stop: int) -> tuple[RecordBatch, int]:
        """What lies at ``offset``, which moves behind it, and the code of why there is no more. Raises DiskError."""
        base = file.file_from_offset
        start, bound = self.offset - base, stop
        if self._ahead is not None:
            batch = self._ahead.take(start)
            if batch is not None:
                self.offset = batch.end_offset
                return batch, codes.STOP_FULL if self.offset < base + stop else codes.STOP_RANGE
            bound = self._ahead.bound(start, stop)
        limit = self._fetch_window(file, start, bound)
        batch, code, position = self._scan(buffer, base, start, min(bound, limit), limit)
        while not batch.count and (needed := min(start + _bytes_needed(buffer, start, limit), file.size)) > limit:
            file.fetch(start, needed - start)
            limit = needed
            batch, code, position = self._scan(buffer, base, start, min(bound, limit), limit)
        if batch.count and limit < file.size and code != codes.STOP_RANGE:
            code = codes.STOP_FULL  # the window may end within the next record
        self.offset = base + position
        return batch, codes.STOP_FULL if code == codes.STOP_RANGE and position < stop else code

    def _fetch_window(self, file: MappedFile, start: int, bound: int) -> int:
        """Bring the bytes from ``start`` on into memory, at most up to ``bound``; returns where they end."""
        end = min(bound, start + _WINDOW_BYTES)
        if self._end is None:  # a log mostly ends in a hole, which is not worth reading
            end = data_end(file.file, start, end)
        file.fetch(start, end - start)
        return end

    def _buffer_of(self, file: MappedFile) -> Bytes:
        """The same array for the same file: a kernel knows it again."""
        if self._scanned is None or self._scanned[0] is not file:
            self._scanned = file, read_only(file.array.data)
        return self._scanned[1]


def _fetched(file: MappedFile, buffer: Bytes, position: int, length: int) -> Bytes:
    file.fetch(position, length)
    return buffer[position : position + length]


def _bytes_needed(buffer: Bytes, start: int, limit: int) -> int:
    """How many bytes what stands at ``start`` needs to be judged, of which those up to ``limit`` are in memory."""
    if limit - start < BLANK_SIZE:
        return BLANK_SIZE
    size, magic = _HEAD.unpack_from(buffer.data, start)
    return int(size) if magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) else 0


def one_ahead(scanner: Iterable[Item]) -> Iterator[Item]:
    """The batches of ``scanner``, the next one scanned by a second thread while the caller is at work on this one.

    A scanner's ``offset`` and ``stop`` run ahead with it; they are right when the iteration has ended.
    """
    batches = iter(scanner)
    with ThreadPoolExecutor(1, "LogScanner") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch
