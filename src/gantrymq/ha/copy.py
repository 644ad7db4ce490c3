"""The checked copy of a master's log: what a frame brings is appended to a store record by record.

Bytes wait in memory until their record is whole, or until a file's blank end is. A record is appended only if its
magic code, its lengths, the CRC of its body and the position that it names are right. All bytes that one call makes
whole go into the log by one write, so a kill leaves whole records, or a half one that the next start cuts.

Source: DefaultHAClient.HAClient.dispatchReadRequest, CommitLog.appendData, which check nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum

import numpy as np

from gantrymq.errors import LogCopyError
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.store.log.record_batch import RecordBatch, RecordScan, check_code
from gantrymq.store.log.record_chain import stop_reason

_HEAD = struct.Struct(">iI")
_MAGICS = (MAGIC_V1, MAGIC_V2)

# append(bytes, physical offset, store time of the last record in ms), as MessageStore.append_copied.
Append = Callable[[Bytes, int, int], None]


class CopyState(StrEnum):
    """What a copy does, or why it does not go on."""

    CONNECTING = "connecting"
    COPYING = "copying"
    IN_SYNC = "in sync"
    MASTER_EMPTY = "master empty"
    DISCONNECTED = "disconnected"
    # Of a slave, which tries again.
    NO_MASTER = "no master"
    DISK_FULL = "disk full"
    APPEND_FAILED = "append failed"
    # Tried again with a new connection, and the end if that brings nothing.
    BAD_FRAME = "bad frame"
    WRONG_OFFSET = "wrong offset"
    BAD_RECORD = "bad record"
    # Of a slave, which tries again: the master does not take its user, or does not ask for one.
    LOGIN_FAILED = "login failed"
    # The end: no new connection helps.
    BEHIND_RETENTION = "behind retention"
    AHEAD = "ahead"
    DIVERGED = "diverged"
    OTHER_FILE_SIZE = "other file size"


class CheckedLogCopy:
    """Appends a master's log to a log with files of ``file_size`` bytes that ends at ``end_offset``.

    ``received`` are bytes after that end which are known already. ``records`` and ``newest_ms`` are the number of
    appended records and the store time of the newest one; 0 before the first.

    Thread rule: one thread.
    """

    def __init__(self, append: Append, file_size: int, end_offset: int, received: bytes = b"") -> None:
        self.end_offset = self._begin_offset = end_offset
        self.records = 0
        self.newest_ms = 0
        self._append, self._file_size = append, file_size
        self._waiting = [received]
        self._waiting_bytes = len(received)
        self._needed_bytes = 0  # what must wait before a record can be whole
        self._scan = RecordScan(check_code(CheckCRC.BODY), sets=1)

    @property
    def received_offset(self) -> int:
        """The offset after the last received byte: the end of the log and of what waits to be whole."""
        return self.end_offset + self._waiting_bytes

    @property
    def record_bytes(self) -> int:
        """The average size of an appended record; 0 before the first."""
        return (self.end_offset - self._begin_offset) // self.records if self.records else 0

    def receive(self, offset: int, body: bytes | memoryview) -> None:
        """Take bytes of the log from ``offset`` on, and append what is whole now.

        Raises LogCopyError if they are not the next ones, or if a record fails its check; the records before it are
        appended. Raises the errors of the append, too.
        """
        if offset != self.received_offset:
            raise LogCopyError(CopyState.WRONG_OFFSET, f"the master sent offset {offset}, not {self.received_offset}")
        self._waiting.append(bytes(body))
        self._waiting_bytes += len(body)
        if self._waiting_bytes >= self._needed_bytes:
            self._append_whole(np.frombuffer(b"".join(self._waiting), np.uint8))

    def _append_whole(self, data: Bytes) -> None:
        at, self._needed_bytes = 0, 0
        try:
            while at < len(data) and not self._needed_bytes:
                rest = self._file_size - self.end_offset % self._file_size
                at += self._take(data[at : at + rest], rest)
        finally:
            self._waiting, self._waiting_bytes = [data[at:].tobytes()], len(data) - at

    def _take(self, part: Bytes, rest: int) -> int:
        """Append what is whole of ``part``, the bytes at the end of the log; ``rest`` is the file's. Returns its size.

        If that is nothing, ``_needed_bytes`` says how many must be there.
        """
        batch, code, end = self._scan(part, self.end_offset, 0, len(part), len(part))
        if not batch.count:
            self._needed_bytes = self._needed(part, rest, stop_reason(code))
            if self._needed_bytes > len(part):
                return 0
            self._needed_bytes, end = 0, rest  # a blank end: it is copied as it is
        else:
            end = self._right_end(batch, end)
            self.newest_ms = int(batch.columns[codes.STORE_TIMESTAMP, batch.count - 1])
        self._append(part[:end], self.end_offset, self.newest_ms)
        self.records += batch.count
        self.end_offset += end
        return end

    def _needed(self, part: Bytes, rest: int, reason: StopReason) -> int:
        """How many bytes the record or the blank at the begin of ``part`` has. Raises LogCopyError for neither."""
        if len(part) < min(BLANK_SIZE, rest):
            return min(BLANK_SIZE, rest)
        if rest < BLANK_SIZE:
            raise self._bad(StopReason.NO_BLANK)
        size, magic = _HEAD.unpack_from(part.data)
        is_whole_blank = magic == MAGIC_BLANK and size == rest
        if is_whole_blank or (magic in _MAGICS and MIN_RECORD_SIZE <= size <= rest and size > len(part)):
            return int(size)
        raise self._bad(StopReason.SIZE if magic == MAGIC_BLANK else reason)

    def _right_end(self, batch: RecordBatch, end: int) -> int:
        """The end of the records that name their own position. Raises LogCopyError if the first one does not."""
        named = batch.columns[codes.PHY_OFFSET, : batch.count]
        wrong = np.flatnonzero(named != batch.columns[codes.POS, : batch.count] + self.end_offset)
        if not len(wrong):
            return end
        if wrong[0] == 0:
            raise LogCopyError(
                CopyState.BAD_RECORD, f"the record at offset {self.end_offset} names the offset {int(named[0])}"
            )
        batch.count = int(wrong[0])
        return int(batch.columns[codes.POS, wrong[0]])

    def _bad(self, reason: StopReason) -> LogCopyError:
        return LogCopyError(
            CopyState.BAD_RECORD, f"the master sent no valid record at offset {self.end_offset}: {reason}"
        )
