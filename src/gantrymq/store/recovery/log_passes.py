"""The two ways in which a recovery reads the log, shared with the code that plans a recovery.

Which records go to queues and index must not depend on the caller. The plan of a recovery that makes the index later
(:mod:`gantrymq.store.recovery.recovered_index`) equals the recovery only if both read the same batches.

:class:`LostRecords` finds the records that the disk cannot read completely, in a reader's private view of the log. A
writer's recovery ends the log there, or refuses the store. A reader also shows the records after them.

Thread rule: iterate in one thread; other threads scan ahead. A page counts as lost once the file system has noted it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import BLANK_SIZE, MAGIC_V1, MAGIC_V2, CheckCRC
from gantrymq.fs.reads import LostPages
from gantrymq.kernels import codes
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_scanner import LogScanner, MappedSource
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, SETS, DigestScan, RecordBatch, Scan, check_code
from gantrymq.store.log.record_chain import next_record
from gantrymq.store.log.scan_ahead import ScanAhead

_HEAD = struct.Struct(">iI")


class LostRecords:
    """The unreadable records of ``log``. Its file system notes in ``lost`` the bytes that read as zeros."""

    def __init__(self, log: CommitLog, lost: LostPages) -> None:
        self._log = log
        self._lost = lost

    def are_whole(self, batch: RecordBatch) -> NDArray[np.bool_]:
        """A bool for each record of a batch: whether the disk could read all of it."""
        whole = np.ones(batch.count, np.bool_)
        file = self._log.queue.find(batch.start_offset) if batch.count else None
        if file is not None:
            begins = batch.columns[codes.POS, : batch.count] + batch.base - file.file_from_offset
            ends = begins + batch.columns[codes.SIZE, : batch.count]
            for begin, end, _ in self._lost.ranges(file.path):
                whole &= (begins >= end) | (begin >= ends)
        return whole

    def whole_of(self, batch: RecordBatch) -> RecordBatch:
        """The records of a batch that the disk could read completely."""
        whole = self.are_whole(batch)
        return batch if whole.all() else batch.take(whole)

    def leading_whole(self, batch: RecordBatch) -> int:
        """The number of records at the beginning of a batch before the first one that is not readable."""
        whole = self.are_whole(batch)
        return batch.count if whole.all() else int(np.argmin(whole))

    def first_at(self, offset: int) -> DiskError | None:
        """The error of the first lost byte of the record or blank at ``offset``; None if all of it is readable."""
        file = self._log.queue.find(offset)
        if file is None or (end := self._end_of_lost(file, position := offset - file.file_from_offset)) is None:
            return None
        return self._lost.first(file.path, position, end - position)

    def behind(self, offset: int) -> int | None:
        """The offset at which the log continues, if it ended at ``offset`` only because of an unreadable part.

        That is the next whole record of the file, or else the next file. None if there is neither, or if the log ended
        for another reason.
        """
        file = self._log.queue.find(offset)
        if file is None or (begin := self._end_of_lost(file, offset - file.file_from_offset)) is None:
            return None
        head_at = next_record(MappedSource(file), begin, lambda at, size: file.file.lost_in(at, size) is None).position
        following = self._log.roll_next_file(offset) if head_at is None else file.file_from_offset + head_at
        return following if self._log.queue.find(following) is not None else None

    def _end_of_lost(self, file: MappedFile, position: int) -> int | None:
        """The end of the lost bytes that overlap the record or blank at ``position``; None if none do."""
        ranges = [lost_range for lost_range in self._lost.ranges(file.path) if lost_range[1] > position]
        if not ranges or file.size - position < BLANK_SIZE:
            return ranges[0][1] if ranges else None
        begin, end, _ = ranges[0]
        file.fetch(position, BLANK_SIZE)
        size, magic = _HEAD.unpack_from(file.array.data, position)
        length = size if magic in (MAGIC_V1, MAGIC_V2) and begin >= position + BLANK_SIZE else BLANK_SIZE
        return end if begin < position + length else None


def recovery_check(config: MessageStoreConfig) -> CheckCRC:
    """The part of each record that a recovery compares with its CRC."""
    if not config.check_crc_on_recover:
        return CheckCRC.OFF
    return CheckCRC.WHOLE_RECORD if config.force_verify_prop_crc else CheckCRC.BODY


@contextmanager
def forward_scanner(
    log: CommitLog, config: MessageStoreConfig, begin: int, end: int | None = None
) -> Iterator[LogScanner]:
    """Read forward from ``begin``, with CRC, up to ``end`` or the first position without a valid record."""
    with _scanner(log, config, begin, end, recovery_check(config)) as scanner:
        yield scanner


def unjudged(
    log: CommitLog,
    config: MessageStoreConfig,
    begin: int,
    end: int,
    progress: Callable[[int, int], None],
    lost: LostRecords | None = None,
) -> Iterator[RecordBatch]:
    """The records of whole files from ``begin`` to ``end``, without CRC.

    After damage it continues with the next file, after ``lost`` bytes with the next record.
    """
    if begin >= end:
        return
    with _scanner(log, config, begin, end, CheckCRC.OFF) as scanner:
        while True:
            for batch in across_lost(scanner, lost, end):
                if (own := (batch if lost is None else lost.whole_of(batch)).without_copied()).count:
                    yield own
                progress(batch.end_offset - begin, end - begin)
            if not scanner.stop or not scanner.skip_file():
                return


def across_lost(scanner: LogScanner, lost: LostRecords | None, end: int | None) -> Iterator[RecordBatch]:
    """The batches of a reader's scanner up to ``end``, including those after bytes that the disk cannot read."""
    yield from scanner
    while skip_lost(scanner, lost, end):
        yield from scanner


def skip_lost(scanner: LogScanner, lost: LostRecords | None, end: int | None = None) -> bool:
    """Let a reader's scanner continue after bytes that the disk cannot read; False if it stopped for another reason."""
    if lost is None or not scanner.stop or (following := lost.behind(scanner.offset)) is None:
        return False
    scanner.aim(following, end)
    return True


@contextmanager
def _scanner(
    log: CommitLog, config: MessageStoreConfig, begin: int, end: int | None, check: CheckCRC
) -> Iterator[LogScanner]:
    def scan(sets: int) -> Scan:
        return DigestScan(check_code(check), config.delay_levels_ms, LARGE_BATCH_RECORDS, sets)

    with ScanAhead(lambda: scan(1)) as ahead:
        yield LogScanner(log, begin, end, scan(SETS), ahead)


def dispatched(batch: RecordBatch, config: MessageStoreConfig, page: Checkpoint) -> RecordBatch:
    """The records that go to queues and index: no copies, and with duplicationEnable only confirmed ones."""
    if config.duplication_enable:
        ends = batch.columns[codes.PHY_OFFSET, : batch.count] + batch.columns[codes.SIZE, : batch.count]
        batch = batch.head(int(np.searchsorted(ends, page.confirm_phy_offset, side="right")))
    return batch.without_copied()
