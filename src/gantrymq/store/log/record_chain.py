"""The records of one commit log file, each of which begins where the one before ends.

:class:`RecordChain` reads forward to the first thing that is no record, and says what stands there: it alone turns a
kernel's stop code into a :class:`~gantrymq.format.stop_reason.StopReason`. :func:`next_record` finds the place where a
log goes on behind damage. Both read any :class:`LogSource`. Their users decide what a stop means:

- :class:`~gantrymq.store.log.log_scanner.LogScanner` reads the mapped files of a store and ends at the first stop that
  is not a blank. Recovery, dispatch and Spark's planning use it.
- :class:`~gantrymq.store.log.log_reader.LogFileReader` reads a whole file, whatever is in it. The tools use it.

:class:`~gantrymq.store.log.scan_ahead.ScanAhead` looks for records in the middle of a file too, but only as a guess
that the chain then confirms.

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
from gantrymq.fs.holes import HasHoles, data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record, scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.store.log.record_batch import RecordBatch, Scan
from gantrymq.store.log.scan_ahead import ScanAhead

_HEAD = struct.Struct(">iI")
_MAGICS = (MAGIC_V1, MAGIC_V2)
_SEARCH_BYTES = 4 << 20
_SEARCHED_HEAD_BYTES = PHY_OFFSET_AT + 8  # what find_record looks at
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
    """The reason that a stop code of a kernel stands for; NONE where what was asked for was done."""
    return _STOPS.get(code, StopReason.NONE)


class Window(NamedTuple):
    """Bytes of a file in memory: the byte at position p is ``buffer[p - origin]``, for p in front of ``end``.

    ``origin`` is a multiple of SECTOR, as a batch needs it. Positions count from the file's begin. ``error`` is why the
    window ends earlier than it was asked for.
    """

    buffer: Bytes
    origin: int
    end: int
    error: StoreError | None = None


class LogSource(HasHoles, Protocol):
    """The bytes of one log file, as a reader asks for them.

    ``base`` is the physical offset of its first byte, ``size`` how many bytes may hold records, ``window_bytes`` how
    many are read at once.
    """

    base: int
    size: int
    window_bytes: int

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        """The bytes [position, end), which lie within the file. A window lives as long as a batch does.

        Where the disk does not give back a byte, a source gives zeros, raises an error, or ends the window in front of
        it with that error. ``is_search``: bring nothing behind ``end`` into memory; the window does not end early.
        """
        ...


class RecordChain:
    """The records of ``source`` from ``start`` to ``stop_at``, both positions in the file, as ``scan`` reads them.

    Iterate over the batches, none of which is empty. ``position`` is behind the last one. When the iteration has ended,
    ``stop`` is why: NONE at ``stop_at``, else what stands at ``position``; ``head`` is what that says of itself (its
    size, signed, and its magic code; zeros where the file has no room for them). A batch lives as long as ``scan``
    says. Raises what the source raises. If a window ends early and no record in front of its end is left, ``stop`` is
    UNREADABLE and ``error`` is that of the window.

    ``ahead`` scans parts of the file before their turn comes; the owner of the chain has let it begin. ``cuts_holes``:
    a window ends where the file's last hole begins, which is not worth reading.
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

    def go_on_at(self, position: int) -> None:
        """Iterate again from ``position``, where a record begins."""
        self.position, self.stop, self.error, self.head = position, StopReason.NONE, None, (0, 0)

    def __iter__(self) -> Iterator[RecordBatch]:
        """The batches up to the first thing that is no record."""
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
        """Up to where bytes are needed to judge what stands at ``position``, of which those up to ``got`` are there."""
        rest, (size, magic) = self._source.size - self.position, self.head
        if got - self.position < min(BLANK_SIZE, rest):
            return self.position + min(BLANK_SIZE, rest)
        return self.position + size if magic in _MAGICS and MIN_RECORD_SIZE <= size <= rest else got

    def _reason(self, code: int) -> StopReason:
        size, magic = self.head
        if magic == MAGIC_BLANK:  # the bytes behind it are not read
            return StopReason.BLANK if size <= self._source.size - self.position else StopReason.SIZE
        return stop_reason(code)


class NextRecord(NamedTuple):
    """Where the next whole record begins, None where there is none, and behind the last byte in front that is no zero.

    ``written_end`` is where the search began if all bytes are zeros.
    """

    position: int | None
    written_end: int


def next_record(
    source: LogSource, begin: int, accepts: Callable[[int, int], bool] = lambda _position, _size: True
) -> NextRecord:
    """The first whole record of ``source`` that begins at ``begin`` or behind it.

    A record is whole if its parts add up, its body has the CRC that it says, it says that it lies there, and
    ``accepts(position, size)`` says so too. Bytes that the disk does not give back count as the source gives them.
    """
    at = written = begin
    # The first bytes of a record may be zeros, those of its length, and so the end of a hole.
    while (at := max(source.data_from(at) - _LENGTH_BYTES, at)) < source.size:
        # Up to a page's end, and no further: pages that were read are no hole, not even those of zeros.
        stop = min(at - at % _PAGE_BYTES + _SEARCH_BYTES, source.size)
        end = max(data_end(source, at, stop), min(at + _SEARCHED_HEAD_BYTES, stop))
        buffer, origin, *_ = source.read(at, end, is_search=True)
        chunk = buffer[at - origin : end - origin]
        if end < stop:  # the zeros that a head reaches into
            chunk = read_only(chunk.tobytes() + bytes(_SEARCHED_HEAD_BYTES))
        found = len(chunk)
        if chunk.any():
            found = int(find_record(chunk, 0, found, source.base + at))
            if end_of_data := _data_end(chunk[:found]):
                written = at + end_of_data
        if found == len(chunk):
            at = end if end < stop or end == source.size else end - _SEARCHED_HEAD_BYTES + 1
        elif (size := _whole_size(source, at + found)) and accepts(at + found, size):
            return NextRecord(at + found, written)
        else:
            at += found + 1
    return NextRecord(None, written)


def _data_end(chunk: Bytes) -> int:
    """Behind the last byte that is not zero; 0 if all are zeros."""
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
