"""The account of loss of one result: queues, checkpoint and index of the old store against the result.

The checkpoint and the index outlive a lost log file, and record how far the log reached. So do the queues, which have
more evidence (:mod:`gantrymq.tools.audit.queue_account`).

A rebuild keeps the units of damaged newest messages, so that their offsets are not assigned again
(:mod:`gantrymq.tools.repair.queue_ends`). A reader checks no CRC and gets the record that lies there. If only the
bodyCRC of the record has a flipped bit, the reader gets the whole message, so it is not lost.

A recovery ends the log at its first damage. The queues show which messages were after the end. Records that were in no
queue yet are reported as a range of the log.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import offset_name
from gantrymq.format.record import body_crc
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.audit.log_claims import LogClaim, log_claims
from gantrymq.tools.audit.queue_account import QueueAccount, RecordsElsewhere
from gantrymq.tools.read.log_extent import LogExtent, Suspect
from gantrymq.tools.read.queue_files import ResultQueues, place_of_unit
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.reports import LossAccount, LostMessages, LostRange, RepairedRecord

BODY_CRC_AT = 8  # offset in a record
_SAID = "another CRC of its body, which differs in one bit"


def forget_readable(account: LossAccount, result: ResultQueues, lookup: RecordLookup, end: int) -> None:
    """Report the lost messages of ``account`` that readers of ``result`` get unchanged as repaired instead.

    ``end`` is the physical offset up to which the log is kept; ``lookup`` reads the log.
    """

    def is_readable(lost: LostMessages) -> bool:
        is_kept = (
            lost.count == 1
            and lost.phy_end <= end
            and result.points_to((lost.topic, lost.queue_id), lost.begin, lost.phy_offset)
        )
        return is_kept and _has_flipped_crc(lookup, lost.phy_offset)

    readable = [lost for lost in account.messages if is_readable(lost)]
    phy_offsets = {lost.phy_offset for lost in readable}
    account.messages = [lost for lost in account.messages if lost not in readable]
    account.ranges = [gap for gap in account.ranges if gap.start not in phy_offsets]
    account.repaired += [
        RepairedRecord(lost.topic, lost.queue_id, lost.begin, lost.phy_offset, lost.phy_end - lost.phy_offset, _SAID)
        for lost in readable
    ]


def _has_flipped_crc(lookup: RecordLookup, phy_offset: int) -> bool:
    """Whether the stored bodyCRC differs from the body's CRC in exactly one bit.

    A damaged body would change many bits of its CRC.
    """
    record = lookup.record(phy_offset)
    if record is None:
        return False
    raw, layout = record
    stated_crc = int.from_bytes(raw[BODY_CRC_AT : BODY_CRC_AT + 4], "big")
    body = raw[layout.body_at : layout.body_at + layout.body_length]
    return (stated_crc ^ body_crc(body)).bit_count() == 1


def take_account(
    fs: FileSystem,
    old: StorePaths,
    config: MessageStoreConfig,
    extent: LogExtent,
    log_end: int,
    roots: Sequence[StorePaths],
    lookup: RecordLookup,
) -> tuple[LossAccount, list[Suspect]]:
    """Compare the store at ``old`` with the queues below ``roots``, made from the log in ``extent``.

    Returns the losses and the suspects: units that point to a whole record which is not at their offset. ``config`` has
    the file sizes of the old store; ``lookup`` reads the log. Whole records reach to ``log_end``; those after the end
    of the extent will not stay. ``ranges`` of the account are those of the extent, and what is missing after its end.
    """
    size = config.mapped_file_size_consume_queue
    result = ResultQueues(fs, roots, size)
    elsewhere = RecordsElsewhere(
        lookup, result.points_to, result.has, partial(place_of_unit, fs, old.consume_queue, size)
    )
    queues = QueueAccount(fs, old, size, extent, elsewhere)
    account = queues.compare(result.by_name)
    account.ranges = list(extent.lost)
    forget_readable(account, result, lookup, extent.end)
    if extent.end < log_end:
        account.ranges.append(_range(old, config, extent.end, log_end, extent.behind))
    account.ranges += missing_end(fs, old, config, replace(extent, end=log_end), account)
    account.ranges.sort(key=lambda gap: gap.start)
    return account, queues.suspects


def missing_end(
    fs: FileSystem, old: StorePaths, config: MessageStoreConfig, extent: LogExtent, account: LossAccount
) -> list[LostRange]:
    """The missing range after the log's end, according to the queues, the checkpoint and the index.

    Adds the parts of checkpoint and index that could not be compared to ``account``.
    """
    by_others = log_claims(fs, old, config)
    account.not_compared += by_others.not_compared
    by_queue = max((lost.phy_end for lost in account.messages), default=-1)
    claims = [LogClaim(by_queue, "the consume queues"), by_others.furthest]
    end, source = max(claim for claim in claims if claim is not None)
    if end <= extent.end:
        return []
    reason = f"missing at the end of the log, which reached {end} by {source}"
    return [_range(old, config, extent.end, end, reason)]


def _range(old: StorePaths, config: MessageStoreConfig, start: int, end: int, reason: str) -> LostRange:
    base = start - start % config.mapped_file_size_commit_log
    return LostRange(old.commit_log / offset_name(base), start, end, reason)
