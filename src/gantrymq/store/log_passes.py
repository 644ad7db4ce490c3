"""The two ways in which a recovery reads the log, for callers that must read exactly what it reads.

Which records go to queues and index must not depend on who reads: the plan of a recovery that brings the index later
(:mod:`gantrymq.store.recovered_index`) is the recovery only if both take the same batches.

Thread rule: iterate in one thread; others scan ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import CheckCRC
from gantrymq.kernels import codes
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.log_scanner import LogScanner
from gantrymq.store.lost_records import LostRecords
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.record_scan import LARGE_BATCH_RECORDS, SETS, DigestScan, Scan, check_code
from gantrymq.store.scan_ahead import ScanAhead


def recovery_check(config: MessageStoreConfig) -> CheckCRC:
    """What of each record a recovery compares with its CRC."""
    if not config.check_crc_on_recover:
        return CheckCRC.OFF
    return CheckCRC.WHOLE_RECORD if config.force_verify_prop_crc else CheckCRC.BODY


@contextmanager
def forward_scanner(
    log: CommitLog, config: MessageStoreConfig, begin: int, end: int | None = None
) -> Iterator[LogScanner]:
    """Reads forward from ``begin``, with CRC, to the first thing that is no record, or to ``end``."""
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
    """The records of whole files from ``begin`` to ``end``; damage is passed over by the file, ``lost`` bytes alone."""
    if begin >= end:
        return
    with _scanner(log, config, begin, end, CheckCRC.OFF) as scanner:
        while True:
            for batch in behind_lost(scanner, lost, end):
                if (own := (batch if lost is None else lost.whole_of(batch)).without_copied()).count:
                    yield own
                progress(batch.end_offset - begin, end - begin)
            if not scanner.stop or not scanner.skip_file():
                return


def behind_lost(scanner: LogScanner, lost: LostRecords | None, end: int | None) -> Iterator[RecordBatch]:
    """What a reader's scanner gives, up to ``end``, also behind what the disk does not give back."""
    yield from scanner
    while goes_on_behind_lost(scanner, lost, end):
        yield from scanner


def goes_on_behind_lost(scanner: LogScanner, lost: LostRecords | None, end: int | None = None) -> bool:
    """Let a reader's scanner go on behind what the disk does not give back; False where that is not why it stopped."""
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
    """The records that go to queues and index: no copies, and with duplicationEnable only what is confirmed."""
    if config.duplication_enable:
        ends = batch.columns[codes.PHY_OFFSET, : batch.count] + batch.columns[codes.SIZE, : batch.count]
        batch = batch.head(int(np.searchsorted(ends, page.confirm_phy_offset, side="right")))
    return batch.without_copied()
