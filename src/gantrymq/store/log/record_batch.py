"""A batch of records of the commit log, and the scans that fill it.

A scan reads the records of a buffer into columns. It reuses its memory, so a batch is valid for a limited time, which
the documentation of each scan states.

Thread rule: a batch and a scan belong to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import PHY_OFFSET_AT, CheckCRC, encode_crc
from gantrymq.fs.api import Bytes
from gantrymq.kernels import api, codes
from gantrymq.kernels.api import digest, scan
from gantrymq.kernels.arrays import Int32s, Int64s, new_columns
from gantrymq.kernels.queue_table import QueueTable, grow, new_table, queue_count, queue_of
from gantrymq.model.message import PROPERTY_CRC32

_HASHES_A_RECORD = 4
_LONG = np.arange(8)
BATCH_RECORDS = 4096
LARGE_BATCH_RECORDS = 32_768  # for whole logs, so that the cost per step is small compared with that of its records
SETS = 3  # one is scanned or waiting, one is dispatched to the queues, one to the index
_CHECKS = {
    CheckCRC.OFF: codes.CHECK_OFF,
    CheckCRC.BODY: codes.CHECK_BODY,
    CheckCRC.WHOLE_RECORD: codes.CHECK_WHOLE_RECORD,
}
_CRC_BEGIN = np.frombuffer(PROPERTY_CRC32.encode() + b"\x01", np.uint8)


class QueueInterner:
    """A kernel's table with the queues' names: ``names[i]``, topic and queue id, is the queue of ordinal i."""

    def __init__(self) -> None:
        self.table: QueueTable = new_table()
        self.names: list[tuple[bytes, int]] = []

    def grow(self) -> None:
        """Make room for more queues."""
        self.table = grow(self.table)

    def note(self) -> None:
        """Read the names of the queues that a kernel has added to the table."""
        for ordinal in range(len(self.names), queue_count(self.table)):
            self.names.append(queue_of(self.table, ordinal))


class IndexEntries(NamedTuple):
    """The index entries of records, in RocketMQ's order.

    Entry i has the key hash ``hashes[i]`` and belongs to record ``records[i]`` (both int32, of one length). Physical
    offsets and times of the records are in ``phy_offsets`` and ``store_timestamps_ms`` (int64). Most records have three
    entries.
    """

    hashes: Int32s
    records: Int32s
    phy_offsets: Int64s
    store_timestamps_ms: Int64s

    @classmethod
    def of_each(cls, hashes: Int64s, phy_offsets: Int64s, store_timestamps_ms: Int64s) -> IndexEntries:
        """Entries from three int64 arrays: hash, physical offset and time (ms), as if each had its own record."""
        numbers = np.arange(len(hashes), dtype=np.int32)
        offsets, times = np.ascontiguousarray(phy_offsets), np.ascontiguousarray(store_timestamps_ms)
        return cls(hashes.astype(np.int32), numbers, offsets, times)

    def each(self) -> tuple[Int64s, Int64s, Int64s]:
        """Hash, physical offset and store time (ms) of each entry, as new int64 arrays."""
        return self.hashes.astype(np.int64), self.phy_offsets[self.records], self.store_timestamps_ms[self.records]


def most_entries(records: int) -> int:
    """A capacity for the index entries of ``records`` usual records, and at least for one record with the most keys."""
    return max(_HASHES_A_RECORD * records, codes.MAX_HASHES_OF_RECORD)


class Digest(NamedTuple):
    """The data that dispatch needs of a batch, computed by the scan. The positions of its records are trusted.

    ``ordinals`` (a record's queue in ``queues``, -1 if it enters no queue) and ``tags_codes`` are int64, one for each
    record; ``hashes`` and ``hashed`` are the first two of :class:`IndexEntries`. None of the first ``whole`` records is
    torn, and none of the first ``placed`` names another position.
    """

    queues: QueueInterner
    ordinals: Int64s
    tags_codes: Int64s
    hashes: Int32s
    hashed: Int32s
    whole: int
    placed: int

    def take(self, keep: NDArray[np.bool_]) -> Digest:
        """The digest of the records where ``keep`` is True."""
        keep_hashes = keep[self.hashed]
        numbers = np.cumsum(keep, dtype=np.int32) - 1
        whole, placed = int(keep[: self.whole].sum()), int(keep[: self.placed].sum())
        return Digest(
            self.queues, self.ordinals[keep], self.tags_codes[keep],
            self.hashes[keep_hashes], numbers[self.hashed[keep_hashes]], whole, placed,
        )  # fmt: skip


@dataclass(slots=True)
class RecordBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    ``buffer`` is the file or a part of it, read-only; ``base`` the physical offset of its first byte. With a digest
    only the first ``N_DISPATCH_COLUMNS`` rows exist. Columns and digest are memory of the scan that filled them, and
    valid as long as its documentation states.
    """

    base: int
    buffer: Bytes
    columns: Int64s
    count: int
    digest: Digest | None = None

    @property
    def start_offset(self) -> int:
        """The physical offset of the first record."""
        return self.base + int(self.columns[codes.POS, 0])

    @property
    def end_offset(self) -> int:
        """The physical offset after the last record."""
        last = self.count - 1
        return self.base + int(self.columns[codes.POS, last] + self.columns[codes.SIZE, last])

    def claimed_positions(self) -> Int64s:
        """The physical offset that each record names. Call it before :meth:`trust_positions`."""
        if self.digest is None:
            offsets: Int64s = self.columns[codes.PHY_OFFSET, : self.count]
            return offsets
        at = self.columns[codes.POS, : self.count, None] + PHY_OFFSET_AT + _LONG  # the column has their real positions
        positions: Int64s = self.buffer[at].view(">i8")[:, 0].astype(np.int64)
        return positions

    def without_copied(self) -> RecordBatch:
        """The batch without runs of records that are misplaced by one distance: copies of a part of the log.

        Queues and index do not take such copies. A single such record has a flipped bit in its offset, and stays.
        """
        if not self.count or (self.digest is not None and self.digest.placed == self.count):
            return self
        distances = self.claimed_positions() - self.columns[codes.POS, : self.count] - self.base
        is_run = (distances != 0) & ((distances == np.roll(distances, 1)) | (distances == np.roll(distances, -1)))
        return self.take(~is_run) if is_run.any() and self.count > 1 else self

    def trust_positions(self) -> None:
        """Set PHY_OFFSET to the real position of each record. One bit of the offset in the record may have flipped."""
        if self.digest is None:
            np.add(self.columns[codes.POS, : self.count], self.base, out=self.columns[codes.PHY_OFFSET, : self.count])

    def head(self, count: int) -> RecordBatch:
        """The first ``count`` records, in the same memory; a copy if the batch has a digest and is cut."""
        if count == self.count:
            return self
        if self.digest is not None:
            return self.take(np.arange(self.count) < count)
        return RecordBatch(self.base, self.buffer, self.columns, count)

    def take(self, keep: NDArray[np.bool_]) -> RecordBatch:
        """A batch of the records where ``keep`` (bool, ``count`` long) is True."""
        whole = self.columns[:, : self.count]
        columns = np.ascontiguousarray(whole[:, keep])
        digest = self.digest.take(keep) if self.digest is not None else None
        return RecordBatch(self.base, self.buffer, columns, columns.shape[1], digest)


class Scanned(NamedTuple):
    """The records from a position on (possibly none), and the stop code and position at which they end.

    STOP_FULL: more records follow from that position on.
    """

    batch: RecordBatch
    code: int
    position: int


class Scan(Protocol):
    """Reads whole records of ``buffer[start:stop]``; no byte at or after ``limit`` is read.

    ``base`` is the physical offset of the buffer's first byte, at the begin of a sector. A batch with records is
    valid until two more such batches were read.
    """

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """Read up to one batch of records."""
        ...


def check_code(check: CheckCRC) -> int:
    """The kernels' code of a check that stops at a wrong CRC."""
    return _CHECKS[check]


class RecordScan:
    """Records without a digest. ``check`` is one of the kernels' CHECK codes. ``sets`` batches are valid at a time."""

    def __init__(self, check: int, batch_records: int = BATCH_RECORDS, sets: int = SETS) -> None:
        self._check = check
        self._columns = tuple(new_columns(batch_records) for _ in range(sets))
        self._turn = 0

    def begin_again(self) -> None:
        """Reuse the memory of the first batch, which is still in the CPU cache; earlier batches are overwritten."""
        self._turn = 0

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """See :class:`Scan`."""
        columns = self._columns[self._turn]
        count, code, position = scan(buffer, start, stop, limit, self._check, columns)
        self._turn = (self._turn + bool(count)) % len(self._columns)
        return Scanned(RecordBatch(base, buffer, columns, count), code, position)


class DigestScan:
    """Records with a :class:`Digest`, both read in one pass. ``sets`` batches are valid at a time."""

    def __init__(self, check: int, delay_levels_ms: Sequence[int], batch_records: int, sets: int = SETS) -> None:
        self._check = check
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._batch_records, self._most_sets = batch_records, sets
        self._sets: list[_Memory] = []
        self._record = new_columns(1)
        self._queues = QueueInterner()
        self._turn = 0

    def __call__(self, buffer: Bytes, base: int, start: int, stop: int, limit: int) -> Scanned:
        """See :class:`Scan`."""
        if self._turn == len(self._sets):  # made when needed: they are large, and short logs use one
            self._sets.append(_Memory(self._batch_records))
        to, queues = self._sets[self._turn], self._queues
        count, code, position = 0, codes.STOP_TABLE_FULL, start
        while code == codes.STOP_TABLE_FULL and not count:
            count, code, position, hash_count, torn, misplaced = digest(
                buffer, base, start, stop, limit, self._check, self._record,
                to.columns, queues.table, to.ordinals, self._delay_levels_ms, to.tags_codes, to.hashes, to.hashed,
            )  # fmt: skip
            if code == codes.STOP_TABLE_FULL:
                queues.grow()
        queues.note()
        self._turn = (self._turn + bool(count)) % self._most_sets
        known = Digest(
            queues,
            to.ordinals[:count],
            to.tags_codes[:count],
            to.hashes[:hash_count],
            to.hashed[:hash_count],
            torn,
            misplaced,
        )
        code = codes.STOP_FULL if code == codes.STOP_TABLE_FULL else code
        return Scanned(RecordBatch(base, buffer, to.columns, count, known), code, position)


class _Memory:
    def __init__(self, batch_records: int) -> None:
        self.columns = new_columns(batch_records, codes.N_DISPATCH_COLUMNS)
        self.ordinals, self.tags_codes = np.empty((2, self.columns.shape[1]), np.int64)
        self.hashes, self.hashed = np.empty((2, most_entries(batch_records)), np.int32)


def first_torn(batch: RecordBatch) -> int:
    """The number of the first torn record of the batch; ``batch.count`` if no record is torn."""
    if batch.digest is not None:
        return batch.digest.whole
    return int(api.first_torn(batch.buffer, batch.columns, batch.count))


def closes_with_crc(batch: RecordBatch) -> NDArray[np.bool_]:
    """Which records end with a CRC property (bool, ``count`` long). The end of a body may look the same."""
    columns = batch.columns[:, : batch.count]
    starts = columns[codes.POS] + columns[codes.SIZE] - CRC_PROPERTY_SIZE
    closes: NDArray[np.bool_] = batch.buffer[starts] == _CRC_BEGIN[0]  # usually none, and this test is cheap
    likely = np.flatnonzero(closes)
    if len(likely):
        closes[likely] = (batch.buffer[starts[likely, None] + np.arange(len(_CRC_BEGIN))] == _CRC_BEGIN).all(axis=1)
    return closes


def mark_by_closing_crc(batch: RecordBatch) -> None:
    """Set CRC_OK to 0 for each record with a wrong CRC over the whole record. The records must be adjacent.

    A record that names another position is right if its CRC matches either position: one bit of the offset has
    flipped, or the whole record was written for the other position.
    """
    closes = closes_with_crc(batch)
    if not closes.any():
        return
    whole, begin, end = new_columns(batch.count), int(batch.columns[codes.POS, 0]), batch.end_offset - batch.base
    scan(batch.buffer, begin, end, end, codes.CHECK_MARK_WHOLE_RECORD, whole)
    whole = whole[:, : batch.count]
    wrong = closes & (whole[codes.PROPERTIES_LENGTH] >= CRC_PROPERTY_SIZE) & (whole[codes.CRC_OK] == 0)
    for row in np.flatnonzero(wrong).tolist():
        wrong[row] = not _is_right_here(batch, row)
    batch.columns[codes.CRC_OK, : batch.count][wrong] = 0


def _is_right_here(batch: RecordBatch, row: int) -> bool:
    """Whether the record matches its CRC if its physical offset is replaced by its position."""
    at, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
    raw = bytearray(batch.buffer[at : at + size])
    raw[PHY_OFFSET_AT : PHY_OFFSET_AT + 8] = (batch.base + at).to_bytes(8, "big")
    return encode_crc(bytes(raw[:-CRC_PROPERTY_SIZE])) == raw[-CRC_PROPERTY_SIZE:]
