"""Reading the commit log forward in batches of columns: the one loop under dispatch, recovery, verify and Spark.

Thread rule: one scanner belongs to one thread; it reads what was written before it came there.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes
from gantrymq.fs.holes import data_end
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import read_only
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.record_scan import Scan, stop_reason
from gantrymq.store.scan_ahead import ScanAhead, of_data

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
