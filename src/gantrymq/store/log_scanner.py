"""Reading the commit log forward in batches of columns: the one loop under dispatch, recovery, verify and Spark.

Thread rule: one scanner belongs to one thread; it reads what was written before it came there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.record import CheckCRC, RecordStop
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.mapped_file import MappedFile

BATCH_RECORDS = 4096
SETS_OF_COLUMNS = 3  # one is scanned, one goes into queues, one into the index

Item = TypeVar("Item")

_CHECKS = {
    CheckCRC.OFF: codes.CHECK_OFF,
    CheckCRC.BODY: codes.CHECK_BODY,
    CheckCRC.WHOLE_RECORD: codes.CHECK_WHOLE_RECORD,
}
_STOPS = {
    codes.STOP_BLANK: RecordStop.BLANK,
    codes.STOP_ZEROS: RecordStop.ZEROS,
    codes.STOP_HALF: RecordStop.HALF,
    codes.STOP_MAGIC: RecordStop.MAGIC,
    codes.STOP_SIZE: RecordStop.SIZE,
    codes.STOP_CRC: RecordStop.CRC,
    codes.STOP_NO_BLANK: RecordStop.NO_BLANK,
}


@dataclass(slots=True)
class RecordBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    ``buffer`` is the file or a part of it, read-only; ``base`` the physical offset of its first byte. The columns are
    the scanner's own and are written over by the third batch after it.
    """

    base: int
    buffer: Bytes
    columns: NDArray[np.int64]
    count: int

    @property
    def start_offset(self) -> int:
        """Where the first record of the batch lies."""
        return self.base + int(self.columns[codes.POS, 0])

    @property
    def end_offset(self) -> int:
        """Behind the last record of the batch."""
        last = self.count - 1
        return self.base + int(self.columns[codes.POS, last] + self.columns[codes.SIZE, last])

    def believe_places(self) -> None:
        """Let PHY_OFFSET be where each record lies, whatever it says of itself (one bit of it may have flipped)."""
        np.add(self.columns[codes.POS, : self.count], self.base, out=self.columns[codes.PHY_OFFSET, : self.count])

    def take(self, keep: NDArray[np.bool_]) -> RecordBatch:
        """A batch of the records where ``keep`` (bool, ``count`` long) says so."""
        columns = np.ascontiguousarray(self.columns[:, : self.count][:, keep])
        return RecordBatch(self.base, self.buffer, columns, columns.shape[1])


class LogScanner:
    """Scans ``log`` from ``start`` to ``end`` (None: to the end of the files), verifying CRCs as ``check`` says.

    Iterate over the batches; afterwards ``offset`` is where the records ended and ``stop`` why: None where ``end``
    was reached, BLANK where the last file ended in one. A batch has ``batch_records`` at most.
    """

    def __init__(
        self, log: CommitLog, start: int, end: int | None, check: CheckCRC, batch_records: int = BATCH_RECORDS
    ) -> None:
        self.offset = start
        self.stop: RecordStop | None = None
        self._log = log
        self._end = end
        self._check = _CHECKS[check]
        self._columns = tuple(new_columns(batch_records) for _ in range(SETS_OF_COLUMNS))
        self._turn = 0
        self._scanned: tuple[MappedFile, Bytes] | None = None

    def aim(self, start: int, end: int | None) -> None:
        """Scan from ``start`` to ``end`` next; the batches of before are written over.

        Who reads little and often keeps a scanner and its memory.
        """
        self.offset, self._end, self.stop, self._turn = start, end, None, 0

    def __iter__(self) -> Iterator[RecordBatch]:
        """The batches. Sets of columns are used in turn, so a batch lives while two more are asked for."""
        while self._end is None or self.offset < self._end:
            file = self._log.queue.find(self.offset)
            if file is None:
                self.stop = self.stop or RecordStop.NO_BLANK
                return
            stop = yield from self._scan_file(file)
            if stop is not RecordStop.BLANK:
                return
            following = self._log.roll_next_file(self.offset)
            if self._log.queue.find(following) is None:
                return
            self.offset, self.stop = following, None

    def skip_file(self) -> bool:
        """After a stop: go on with the file behind; False where there is none."""
        self.offset = self._log.roll_next_file(self.offset)
        self.stop = None
        return self._log.queue.find(self.offset) is not None and (self._end is None or self.offset < self._end)

    def _scan_file(self, file: MappedFile) -> Generator[RecordBatch, None, RecordStop | None]:
        buffer = self._buffer_of(file)
        base = file.file_from_offset
        limit = file.size
        stop_at = limit if self._end is None else min(limit, self._end - base)
        while True:
            columns = self._columns[self._turn]
            self._turn = (self._turn + 1) % SETS_OF_COLUMNS
            count, code, position = scan(buffer, self.offset - base, stop_at, limit, self._check, columns)
            self.offset = base + position
            self.stop = _STOPS.get(code)
            if count:
                yield RecordBatch(base, buffer, columns, count)
            if code != codes.STOP_FULL:
                return self.stop

    def _buffer_of(self, file: MappedFile) -> Bytes:
        """The same array for the same file: a kernel knows it again."""
        if self._scanned is None or self._scanned[0] is not file:
            self._scanned = file, read_only(file.array.data)
        return self._scanned[1]


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
