"""Reading records of a buffer into memory that is used again and again.

Thread rule: one scan belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from gantrymq.format.record import CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.kernels.api import digest, scan
from gantrymq.kernels.arrays import new_columns
from gantrymq.store.record_batch import Digest, RecordBatch, most_entries
from gantrymq.store.seen_queues import SeenQueues

BATCH_RECORDS = 4096
LARGE_BATCH_RECORDS = 32_768  # for whole logs: what the steps of a batch cost beside their records is then nothing
SETS = 3  # one is scanned or waits, one goes into queues, one into the index
_CHECKS = {
    CheckCRC.OFF: codes.CHECK_OFF,
    CheckCRC.BODY: codes.CHECK_BODY,
    CheckCRC.WHOLE_RECORD: codes.CHECK_WHOLE_RECORD,
}
_STOPS = {
    codes.STOP_BLANK: StopReason.BLANK,
    codes.STOP_ZEROS: StopReason.ZEROS,
    codes.STOP_HALF: StopReason.HALF,
    codes.STOP_MAGIC: StopReason.MAGIC,
    codes.STOP_SIZE: StopReason.SIZE,
    codes.STOP_CRC: StopReason.CRC,
    codes.STOP_NO_BLANK: StopReason.NO_BLANK,
}


class Scanned(NamedTuple):
    """The records from a position on, perhaps none, and why there are no more: a stop code and where it stands.

    STOP_FULL: there are more, from that position on.
    """

    batch: RecordBatch
    code: int
    position: int


class Scan(Protocol):
    """Reads whole records of ``buffer[start:stop]``; no byte behind ``limit`` is looked at.

    ``base`` is the physical offset of the buffer's first byte, which is that of a sector. A batch with records lives
    until two more such batches were read.
    """

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """Read as many as one batch holds."""
        ...


def check_code(check: CheckCRC) -> int:
    """The kernels' code of a check that ends at what is wrong."""
    return _CHECKS[check]


def stop_reason(code: int) -> StopReason:
    """The reason that a stop code of a kernel stands for; NONE where what was asked for was done."""
    return _STOPS.get(code, StopReason.NONE)


class RecordScan:
    """Records and nothing else. ``check`` is one of the kernels' CHECK codes."""

    def __init__(self, check: int, batch_records: int = BATCH_RECORDS) -> None:
        self._check = check
        self._columns = tuple(new_columns(batch_records) for _ in range(SETS))
        self._turn = 0

    def begin_again(self) -> None:
        """The batches of before are written over. Who reads little and often finds the same memory in the cache."""
        self._turn = 0

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """See :class:`Scan`."""
        columns = self._columns[self._turn]
        count, code, position = scan(buffer, start, stop, limit, self._check, columns)
        self._turn = (self._turn + bool(count)) % SETS
        return Scanned(RecordBatch(base, buffer, columns, count), code, position)


class DigestScan:
    """Records with what dispatch wants to know of them, each of which is looked at once. ``sets`` batches live."""

    def __init__(self, check: int, delay_levels_ms: Sequence[int], batch_records: int, sets: int = SETS) -> None:
        self._check = check
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._batch_records, self._most_sets = batch_records, sets
        self._sets: list[_Memory] = []
        self._record = new_columns(1)
        self._queues = SeenQueues()
        self._turn = 0

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """See :class:`Scan`."""
        if self._turn == len(self._sets):  # few logs need them all, and they are large
            self._sets.append(_Memory(self._batch_records))
        to, queues = self._sets[self._turn], self._queues
        count, code, position = 0, codes.STOP_TABLE_FULL, start
        while code == codes.STOP_TABLE_FULL and not count:
            count, code, position, found, torn, misplaced = digest(
                buffer, base, start, stop, limit, self._check, self._record,
                to.columns, queues.table, to.ordinals, self._delay_levels_ms, to.tags_codes, to.hashes, to.hashed,
            )  # fmt: skip
            if code == codes.STOP_TABLE_FULL:
                queues.grow()
        queues.note()
        self._turn = (self._turn + bool(count)) % self._most_sets
        known = Digest(
            queues, to.ordinals[:count], to.tags_codes[:count], to.hashes[:found], to.hashed[:found], torn, misplaced
        )
        code = codes.STOP_FULL if code == codes.STOP_TABLE_FULL else code
        return Scanned(RecordBatch(base, buffer, to.columns, count, known), code, position)


class _Memory:
    def __init__(self, batch_records: int) -> None:
        self.columns = new_columns(batch_records, codes.N_DISPATCH_COLUMNS)
        self.ordinals, self.tags_codes = np.empty((2, self.columns.shape[1]), np.int64)
        self.hashes, self.hashed = np.empty((2, most_entries(batch_records)), np.int32)
