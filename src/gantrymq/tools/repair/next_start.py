"""What the next start of a store does to a rebuilt log, and which broken file ends are no damage.

A recovery ends the log at the first damage and discards whole records after it. After a kill it dispatches the newest
part of the log again, and a record with a wrong queue id enters the wrong queue again. A rebuild that gives such
records units must report that. If a part of the log is unreadable, the start refuses the store.

A blank follows the last record of a file, because the next record did not fit. If the blank is damaged, the rest of the
file holds no whole record. That is no loss if the first record of the next file would not have fitted into the rest and
every queue has all its messages.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from gantrymq.store.recovery.recover_start import FirstRecord, StartRule
from gantrymq.tools.loss.loss import LossAccount, LostMessages, LostRange, ShortQueue


def forget_broken_blanks(fs: FileSystem, files: Sequence[LogFile], account: LossAccount) -> None:
    """Remove the ranges that are broken blanks from ``account``; ``files`` are the files of the log, in order."""
    if any(one.phy_offset < 0 for one in account.messages):
        return  # any range may hold one of these messages
    by_base = {file.base: file for file in files}
    ends = {file.end for file in files}
    account.ranges = [
        one
        for one in account.ranges
        if not (
            one.end in ends
            and not one.has_records
            and one.end - one.start < _first_size(fs, by_base.get(one.end)) + BLANK_SIZE
            and not any(lost.phy_offset < one.end and one.start < lost.phy_end for lost in account.messages)
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


_KEEPS = "store salvage keeps it"


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
    met = (one for one in gaps if one.start >= begin and not one.has_records)
    return min(met, key=lambda one: one.start, default=None)


def lose_refiled(account: LossAccount, begin: int, end_of: Callable[[str, int], int]) -> None:
    """Report records that name a wrong queue as lost if a start dispatches them again, from ``begin`` on.

    ``end_of`` returns the end of a queue.
    """
    undone = [one for one in account.repaired if one.stated_slot is not None and one.phy_offset >= begin]
    account.repaired = [one for one in account.repaired if one not in undone]
    ends: dict[tuple[str, int], int] = {}
    for one in sorted(undone, key=lambda record: record.queue_offset, reverse=True):
        place, offset = one.phy_offset, one.queue_offset
        text = (
            f"its record says {one.stated}, and the next start, after a kill, dispatches the log again from {begin} on"
        )
        account.messages.append(
            LostMessages(
                one.topic, one.queue_id, offset, offset + 1, place, place + one.size_bytes, f"{text}; {_KEEPS}"
            )
        )
        name = one.topic, one.queue_id
        if ends.setdefault(name, end_of(*name)) == offset + 1:
            ends[name] = offset
    was = {(one.topic, one.queue_id): one for one in account.short_queues}
    for name, end in ends.items():
        whole = end_of(*name)
        if end < whole:
            was_end = max(whole, was[name].was_end) if name in was else whole
            account.short_queues = [one for one in account.short_queues if (one.topic, one.queue_id) != name]
            account.short_queues.append(ShortQueue(*name, was_end, end))
