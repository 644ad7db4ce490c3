"""What the next start of a store does to a rebuilt log, and which broken file ends are no damage.

A recovery ends the log at the first damage and discards whole records after it. In a closed store a record with a right
body is no such damage: the start dispatches it, although a sector of its properties is zeros. After a kill it
dispatches the newest part of the log again, and a quarantined record enters the queue that it names. If a part of the
log is unreadable, the start refuses the store.

A blank follows the last record of a file, because the next record did not fit. If the blank is damaged, the rest of the
file holds no whole record. That is no loss if the first record of the next file would not have fitted into the rest and
every queue has all its messages.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, StoreError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import BLANK_SIZE, CheckCRC, Layout, decode_record
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.recovery.recover_start import FirstRecord, StartRule
from gantrymq.tools.reports import LossAccount, LostMessages, LostRange, Quarantined


def forget_broken_blanks(fs: FileSystem, files: Sequence[LogFile], account: LossAccount) -> None:
    """Remove the ranges that are broken blanks from ``account``; ``files`` are the files of the log, in order."""
    if any(lost.phy_offset < 0 for lost in account.messages):
        return  # any range may hold one of these messages
    by_base = {file.base: file for file in files}
    ends = {file.end for file in files}
    account.ranges = [
        gap
        for gap in account.ranges
        if not (
            gap.end in ends
            and not gap.has_records
            and gap.end - gap.start < _first_size(fs, by_base.get(gap.end)) + BLANK_SIZE
            and not any(lost.phy_offset < gap.end and gap.start < lost.phy_end for lost in account.messages)
        )
    ]


def _first_size(fs: FileSystem, file: LogFile | None) -> int:
    """The size in the first record of a file; a number that is too small if there is none."""
    if file is None:
        return -BLANK_SIZE
    try:
        return int.from_bytes(read_part(fs, file.path, 0, 4), "big", signed=True)
    except (OSError, StoreError):
        return -BLANK_SIZE


def next_start_begins_at(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    page: Checkpoint,
    queues_max_phy_offset: int,
    *,
    last_exit_ok: bool,
) -> int:
    """The physical offset from which the next start reads the log, which must have a file.

    ``page`` and ``queues_max_phy_offset`` are what checkpoint and queues will say at that start.
    """
    log = CommitLog(fs, paths, config.mapped_file_size_commit_log)
    log.load()
    try:
        rule = StartRule(config, page, queues_max_phy_offset, last_exit_ok)

        def first_record(file: MappedFile) -> FirstRecord | None:
            try:
                layout = log.check(file.file_from_offset, CheckCRC.BODY)
            except DiskError:
                return None
            if not isinstance(layout, Layout):
                return None
            message = decode_record(file.array.data, 0, layout)
            return FirstRecord(message.phy_offset, message.store_timestamp_ms)

        files = log.queue.files
        return files[rule.choose(files, first_record)].file_from_offset
    finally:
        log.close()


def next_stop(gaps: Sequence[LostRange], begin: int) -> LostRange | None:
    """The damage at which a start that reads from ``begin`` ends the log or refuses the store; None without one.

    ``gaps`` are the ranges without a whole record before the log's end.
    """
    met = (gap for gap in gaps if gap.start >= begin and not gap.has_records)
    return min(met, key=lambda gap: gap.start, default=None)


def accepted_by_start(gaps: Sequence[LostRange], begin: int) -> frozenset[int]:
    """The physical offsets of damaged records that the start of a closed store takes, if it reads from ``begin``.

    It compares only the CRC of the body, as RocketMQ does, and ends at the first record that fails.
    """
    accepted = set[int]()
    for gap in sorted(gaps, key=lambda gap: gap.start):
        if gap.start >= begin and not gap.has_records:
            if not gap.has_right_body:
                break
            accepted.add(gap.start)
    return frozenset(accepted)


def lose_displaced(
    account: LossAccount, records: Iterable[Quarantined], begin: int, place_of: Callable[[QueueName, int], int]
) -> None:
    """Report the messages whose slot a quarantined record takes when a start dispatches the log again from ``begin``.

    ``place_of(queue, queue offset)`` is the physical offset in a unit of the result.
    """
    for record in records:
        displaced_offset = place_of(record.slot[:2], record.queue_offset)
        if begin <= record.phy_offset < displaced_offset:
            text = f"the next start, after a kill, dispatches the log again from {begin} on, and takes the quarantined "
            reason = f"{text}record at {record.phy_offset} for this message; store salvage keeps it"
            account.messages.append(LostMessages(*record.slot, record.queue_offset + 1, displaced_offset, -1, reason))
