"""The records that were appended to a commit log since its store was opened.

A trigger reads only the new part of the log, so a micro-batch is cheap to plan. Records are validated as in a recovery:
sizes that add up, the CRC of the body, and no sectors that a power cut has torn. The tail ends after the last valid
record, until the next refresh.

Memory: 16 bytes per record. Thread rule: one thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.stop_reason import StopReason
from gantrymq.kernels import codes
from gantrymq.spark.log_file import NotThereError, OpenLogFile, RangeSource
from gantrymq.spark.queue_filter import QueueFilter
from gantrymq.store.log.record_batch import RecordBatch, RecordScan, first_torn
from gantrymq.store.log.record_chain import RecordChain
from gantrymq.tools.locations import Location

_FIRST_READ_BYTES = 64 << 10
_MAX_READ_BYTES = 4 << 20
_RECORDS = 16_384
_MARK_BYTES = 256


class LogChangedError(StoreError):
    """The log is not the one that was read before: a recovery has truncated it, or it was recreated.

    ``queue`` is a (topic, queue id) whose offsets were given out again, because its topic was deleted and recreated.
    """

    queue: tuple[str, int] | None = None


@dataclass(slots=True)
class TailQueue:
    """The records of one queue in the tail: physical offsets (int64) of the queue offsets from ``first_offset`` on."""

    first_offset: int
    parts: list[NDArray[np.int64]]
    count: int = 0

    @property
    def phy_offsets(self) -> NDArray[np.int64]:
        """All physical offsets as one array (int64)."""
        if len(self.parts) > 1:
            self.parts = [np.concatenate(self.parts)]
        return self.parts[0] if self.parts else np.empty(0, np.int64)


class LogTail:
    """The log in ``directory`` from ``begin`` on, which is the beginning of a record or the end of the log.

    Raises StoreError if an existing file cannot be read: that is not the end of the log.
    """

    def __init__(self, directory: Location, file_size: int, begin: int) -> None:
        self.begin = self.end = begin
        self.records = 0
        self.queues: dict[tuple[str, int], TailQueue] = {}
        self.phy_offsets: list[NDArray[np.int64]] = []
        self._directory = directory
        self._file_size = file_size
        self._filter = QueueFilter()
        self._scan = RecordScan(codes.CHECK_BODY, _RECORDS, sets=1)
        self._mark = self._read_mark()

    def refresh(self) -> None:
        """Read the new records. Raises LogChangedError if the log is not a continuation of what was read."""
        if self._read_mark() != self._mark:
            raise LogChangedError(str(self._directory), f"has changed before offset {self.end}")
        while self._read_file():
            pass
        self._mark = self._read_mark()

    def _read_mark(self) -> bytes:
        """The bytes before the end. As long as they stay the same, new records continue this log."""
        base = self.end - self.end % self._file_size
        if base == self.end and base > self.begin:
            base -= self._file_size
        start = max(self.end - _MARK_BYTES, base)
        if start >= self.end or self._directory.path == "":
            return b""
        mark = bytearray(self.end - start)
        try:
            with OpenLogFile(self._directory / offset_name(base)) as file:
                file.read_into(memoryview(mark), start - base)
        except NotThereError:
            return b""
        return bytes(mark)

    def _read_file(self) -> bool:
        """Move the end past the valid records of its file; False if the log currently ends there. Raises StoreError."""
        base = self.end - self.end % self._file_size
        try:
            with OpenLogFile(self._directory / offset_name(base)) as file:
                source = RangeSource(file, base, self._file_size, _FIRST_READ_BYTES)
                chain = RecordChain(source, self._scan, self.end - base, self._file_size, cuts_holes=False)
                for batch in chain:
                    source.window_bytes = min(2 * source.window_bytes, _MAX_READ_BYTES)
                    whole = batch.head(first_torn(batch))
                    self._note(whole)
                    if whole.count < batch.count:
                        return False
        except NotThereError:
            return False  # neither file nor bytes: nothing was appended
        if chain.error is not None:
            raise chain.error
        if chain.stop not in (StopReason.NONE, StopReason.BLANK, StopReason.NO_BLANK):
            return False
        self.end = base + self._file_size
        return True

    def _note(self, batch: RecordBatch) -> None:
        """Add the records to their queues."""
        if not batch.count:
            return
        columns, count = batch.columns, batch.count
        numbers = self._filter.numbers(batch.buffer, columns, count)
        phy_offsets = columns[codes.POS, :count] + batch.base
        right = (numbers >= 0) & (columns[codes.PHY_OFFSET, :count] == phy_offsets)
        for number in np.unique(numbers[right]).tolist():
            topic, queue_id = self._filter.keys[number]
            if topic is not None:
                mine = right & (numbers == number)
                self._append((topic, queue_id), columns[codes.QUEUE_OFFSET, :count][mine], phy_offsets[mine])
        if right.any():
            self.phy_offsets.append(phy_offsets[right])
        self.records += int(right.sum())
        self.end = batch.end_offset

    def _append(self, key: tuple[str, int], offsets: NDArray[np.int64], phy_offsets: NDArray[np.int64]) -> None:
        queue = self.queues.setdefault(key, TailQueue(int(offsets[0]), []))
        expected = queue.first_offset + queue.count
        if not np.array_equal(offsets, np.arange(expected, expected + len(offsets))):
            error = LogChangedError(str(self._directory), f"the offsets of topic {key[0]}, queue {key[1]} have a gap")
            if int(offsets[0]) < expected or (np.diff(offsets) < 0).any():
                error.queue = key
            raise error
        queue.parts.append(phy_offsets)
        queue.count += len(phy_offsets)
