"""What the next start of a store will do to what a rebuild has made of its log.

A recovery ends the log at the first damage that it meets: whole records behind it, and their messages, are gone then.
After a kill it dispatches the newest part of the log again, and a record that says a wrong queue enters that one. A
rebuild that gives such records entries has to say so. Where the disk
does not give back what is there, the start refuses the store instead.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import CheckCRC, Layout, decode_record
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.recover_start import FirstRecord, StartRule
from gantrymq.tools.loss import LossAccount, LostMessages, LostRange, ShortQueue

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
    """From which place on the log will be read. It has a file.

    ``page`` and ``queues_max_phy_offset`` are what checkpoint and queues will say then.
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
    """The damage at which a start that reads from ``begin`` on ends the log, or refuses the store; None without one.

    ``gaps`` are the places of the log without a whole record, in front of its end.
    """
    met = (one for one in gaps if one.start >= begin and not one.has_records)
    return min(met, key=lambda one: one.start, default=None)


def lose_refiled(account: LossAccount, begin: int, end_of: Callable[[str, int], int]) -> None:
    """Name as lost the records that say a wrong queue, and that a start dispatches again from ``begin`` on.

    ``end_of`` says where a queue ends.
    """
    undone = [one for one in account.repaired if one.said_slot is not None and one.phy_offset >= begin]
    account.repaired = [one for one in account.repaired if one not in undone]
    ends: dict[tuple[str, int], int] = {}
    for one in sorted(undone, key=lambda record: record.queue_offset, reverse=True):
        place, offset = one.phy_offset, one.queue_offset
        text = f"its record says {one.said}, and the next start, after a kill, dispatches the log again from {begin} on"
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
