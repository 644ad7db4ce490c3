"""The records of one commit log file, each of which begins where the one before ends.

All code that reads a log forward uses a :class:`RecordChain`. It stops at the first position without a valid record and
reports what is there. Only this class turns a kernel's stop code into a
:class:`~gantrymq.format.stop_reason.StopReason`. :func:`next_record` finds the position at which a log continues after
damage. Both read any :class:`LogSource`. The users differ in what they do at a stop:

- :class:`~gantrymq.store.log.log_scanner.LogScanner` reads the mapped files of a store and ends at the first stop that
  is not a blank. Recovery and dispatch use it. Dispatch sets a new range for each batch.
- :class:`~gantrymq.store.log.log_reader.LogFileReader` reads a whole file as events, damage included. The tools use it.
- ``gantrymq store log`` shows the blanks too, and continues only after bytes that the disk cannot read.
- Spark's executors (``spark/read/log.py``) and its tail of a log (``spark/plan/log_tail.py``) read ranges.

:class:`~gantrymq.store.log.scan_ahead.ScanAhead` also looks for records in the middle of a file, but only as a guess
that the chain confirms.

Thread rule: a chain and its source belong to one thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from gantrymq.errors import StoreError
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, PHY_OFFSET_AT
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes
from gantrymq.fs.reads import HasHoles, data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record, scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.store.log.record_batch import RecordBatch, Scan
from gantrymq.store.log.scan_ahead import ScanAhead

_HEAD = struct.Struct(">iI")
_MAGICS = (MAGIC_V1, MAGIC_V2)
_SEARCH_BYTES = 4 << 20  # bytes of one window; more than a page
_SEARCHED_HEAD_BYTES = PHY_OFFSET_AT + 8  # bytes that find_record reads
_LENGTH_BYTES = 4
_PAGE_BYTES = 4096
_STOPS = {
    codes.STOP_BLANK: StopReason.BLANK,
    codes.STOP_ZEROS: StopReason.ZEROS,
    codes.STOP_HALF: StopReason.HALF,
    codes.STOP_MAGIC: StopReason.MAGIC,
    codes.STOP_SIZE: StopReason.SIZE,
    codes.STOP_CRC: StopReason.CRC,
    codes.STOP_NO_BLANK: StopReason.NO_BLANK,
}


def stop_reason(code: int) -> StopReason:
    """The reason of a kernel's stop code; NONE if the whole request was done."""
    return _STOPS.get(code, StopReason.NONE)


class Window(NamedTuple):
    """Bytes of a file in memory: the byte at position p is ``buffer[p - origin]``, for p before ``end``.

    ``origin`` is a multiple of SECTOR, as a batch needs it. Positions count from the beginning of the file. ``error``
    is the reason why the window ends before the requested end.
    """

    buffer: Bytes
    origin: int
    end: int
    error: StoreError | None = None


class LogSource(HasHoles, Protocol):
    """The bytes of one log file, read in windows.

    ``base`` is the physical offset of the first byte, ``size`` the number of bytes that may hold records, and
    ``window_bytes`` the number of bytes to read at once.
    """

    base: int
    size: int
    window_bytes: int

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        """Return the bytes [position, end) of the file. A window is valid as long as a batch of the scan.

        If the disk cannot read a byte, a source returns zeros, raises an error, or ends the window before that byte,
        with the error. ``is_search``: load nothing after ``end``, and do not end the window early.
        """
        ...


class RecordChain:
    """The records of ``source`` from ``start`` to ``stop_at``, both positions in the file, as ``scan`` reads them.

    Iterate over the batches; none is empty. ``position`` is the end of the last one. After the iteration ``stop`` is
    the reason of its end: NONE at ``stop_at``, else what is at ``position``. ``head`` has the first two numbers there,
    the size (signed) and the magic code; zeros if the file is too short for them. If the disk cannot read the bytes
    there, ``stop`` is UNREADABLE and ``error`` is the error of the window. A batch is valid as long as those of
    ``scan``. Raises the errors of the source.

    ``ahead`` scans parts of the file in advance; the owner of the chain has called its ``begin``. With ``cuts_holes`` a
    window ends at the beginning of the hole at its end, so that the hole is not read.
    """

    def __init__(
        self,
        source: LogSource,
        scan: Scan,
        start: int,
        stop_at: int,
        ahead: ScanAhead | None = None,
        *,
        cuts_holes: bool = True,
    ) -> None:
        self.position = start
        self.stop = StopReason.NONE
        self.error: StoreError | None = None
        self.head = (0, 0)
        self._source = source
        self._scan = scan
        self._stop_at = stop_at
        self._ahead = ahead
        self._cuts_holes = cuts_holes

    def continue_at(self, position: int) -> None:
        """Prepare the next iteration, from ``position`` on."""
        self.position, self.stop, self.error, self.head = position, StopReason.NONE, None, (0, 0)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Yield the batches up to the first position without a valid record."""
        base = self._source.base
        while self.position < self._stop_at and (batch := self._next_batch()) is not None:
            self.position = batch.end_offset - base
            yield batch

    def _next_batch(self) -> RecordBatch | None:
        source, position, bound = self._source, self.position, self._stop_at
        if self._ahead is not None:
            if (ready := self._ahead.take(position)) is not None:
                return ready
            bound = self._ahead.bound(position, bound)
        end = min(position + source.window_bytes, bound)
        if self._cuts_holes:
            end = data_end(source, position, end)
        end = max(end, min(position + BLANK_SIZE, source.size))
        while True:
            buffer, origin, got, error = source.read(position, end)
            stop, limit = min(bound, got) - origin, got - origin
            batch, code, _ = self._scan(buffer, source.base + origin, position - origin, stop, limit)
            if batch.count:
                return batch
            if error is not None:
                self.stop, self.error = StopReason.UNREADABLE, error
                return None
            if got - position >= BLANK_SIZE:
                self.head = _HEAD.unpack_from(buffer.data, position - origin)
            elif got == source.size:
                self.head = (0, 0)
            needed = self._end_needed(got)
            if needed <= got:
                self.stop = self._reason(code)
                return None
            end = needed

    def _end_needed(self, got: int) -> int:
        """The end of the bytes that validating the record at ``position`` needs. Those up to ``got`` are loaded."""
        rest, (size, magic) = self._source.size - self.position, self.head
        if got - self.position < min(BLANK_SIZE, rest):
            return self.position + min(BLANK_SIZE, rest)
        return self.position + size if magic in _MAGICS and MIN_RECORD_SIZE <= size <= rest else got

    def _reason(self, code: int) -> StopReason:
        size, magic = self.head
        if magic == MAGIC_BLANK:  # the scan has validated it with a window that may end within it
            return StopReason.BLANK if size <= self._source.size - self.position else StopReason.SIZE
        return stop_reason(code)


class NextRecord(NamedTuple):
    """The position of the next whole record, None if there is none.

    ``written_end`` is then after the last byte that is not zero, or where the search began. Otherwise it is
    ``position``.
    """

    position: int | None
    written_end: int


def next_record(
    source: LogSource, begin: int, accepts: Callable[[int, int], bool] = lambda _position, _size: True
) -> NextRecord:
    """Search for the first whole record of ``source`` at or after position ``begin``.

    A record is whole if its parts add up, its body matches its CRC, it carries its own physical offset, and
    ``accepts(position, size)`` is True.
    """
    at = written = begin
    # The first bytes of a record may be zeros, those of its length, and so the end of a hole.
    while (at := max(source.data_from(at) - _LENGTH_BYTES, at)) < source.size:
        # Only up to the end of a page: pages that were read are not a hole any more, even if they are zeros.
        stop = min(at - at % _PAGE_BYTES + _SEARCH_BYTES, source.size)
        end = max(data_end(source, at, stop), min(at + _SEARCHED_HEAD_BYTES, stop))
        buffer, origin, *_ = source.read(at, end, is_search=True)
        chunk = buffer[at - origin : end - origin]
        if end < stop:  # the zeros into which a head may extend
            chunk = read_only(chunk.tobytes() + bytes(_SEARCHED_HEAD_BYTES))
        head_at = len(chunk)
        if chunk.any():
            head_at = int(find_record(chunk, 0, head_at, source.base + at))
            if end_of_data := _data_end(chunk[:head_at]):
                written = at + end_of_data
        if head_at == len(chunk):
            at = end if end < stop or end == source.size else end - _SEARCHED_HEAD_BYTES + 1
        elif (size := _whole_size(source, at + head_at)) and accepts(at + head_at, size):
            return NextRecord(at + head_at, at + head_at)
        else:
            at += head_at + 1
    return NextRecord(None, written)


def _data_end(chunk: Bytes) -> int:
    """The position after the last byte that is not zero; 0 if all are zeros."""
    data = np.flatnonzero(chunk)
    return int(data[-1]) + 1 if len(data) else 0


def _whole_size(source: LogSource, position: int) -> int:
    """The size of the record that begins at ``position``; 0 if it is not whole."""
    if source.size - position < MIN_RECORD_SIZE:
        return 0
    buffer, origin, *_ = source.read(position, position + BLANK_SIZE, is_search=True)
    size, magic = _HEAD.unpack_from(buffer.data, position - origin)
    if magic not in _MAGICS or not MIN_RECORD_SIZE <= size <= source.size - position:
        return 0
    buffer, origin, *_ = source.read(position, position + size, is_search=True)
    begin, end = position - origin, position - origin + size
    count, _, _ = scan(buffer, begin, end, end, codes.CHECK_BODY, new_columns(1))
    return int(size) if count else 0
