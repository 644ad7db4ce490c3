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

from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, decode_checkpoint, encode_checkpoint
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, decode_entry, decode_header, entry_at
from gantrymq.format.names import is_index_name, offset_name
from gantrymq.format.record import body_crc
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import cause_of, read_part
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import REBUILD
from gantrymq.store.recovery.recovery import RecoveryReport
from gantrymq.tools.audit.queue_account import QueueAccount, RecordsElsewhere
from gantrymq.tools.read.index_files import find_index_files
from gantrymq.tools.read.log_extent import LogExtent, Suspect
from gantrymq.tools.read.queue_files import ResultQueues, place_of_unit
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.reports import LossAccount, LostMessages, LostRange, NotCompared, RepairedRecord, ShortQueue

BODY_CRC_AT = 8  # offset in a record
_SAID = "another CRC of its body, which differs in one bit"


class LogClaim(NamedTuple):
    """Evidence from ``source`` that the log reached at least to the physical offset ``end``."""

    end: int
    source: str


class LogClaims(NamedTuple):
    """The claim that reaches furthest, or None, and the files that could not be read for claims."""

    furthest: LogClaim | None
    not_compared: Sequence[NotCompared]


def log_claims(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> LogClaims:
    """The claims of checkpoint and index. The number of slots comes from ``config``, else from the index files."""
    claims: list[LogClaim] = []
    not_compared: list[NotCompared] = []
    for claim in (*_of_checkpoint(fs, paths), *_of_index(fs, paths, config)):
        if isinstance(claim, LogClaim):
            claims.append(claim)
        else:
            not_compared.append(claim)
    return LogClaims(max(claims, default=None), not_compared)


def _of_checkpoint(fs: FileSystem, paths: StorePaths) -> Iterator[LogClaim | NotCompared]:
    path = paths.checkpoint
    try:
        raw = read_part(fs, path, 0, CHECKPOINT_SIZE)
    except FileNotFoundError:
        yield NotCompared(path, "missing", is_damage=False)
        return
    except (OSError, StoreError) as error:
        yield NotCompared(path, cause_of(error))
        return
    page = decode_checkpoint(raw)
    # RocketMQ writes -1 for a master that does not count.
    if any(number < -1 for number in astuple(page)) or not encode_checkpoint(page).startswith(raw):
        yield NotCompared(path, "negative, or bytes where zeros should be")
        return
    if not any(raw):
        yield NotCompared(path, "empty, or all zeros", is_damage=False)
    elif len(raw) < CHECKPOINT_SIZE:
        yield NotCompared(path, f"is {len(raw)} bytes long, not {CHECKPOINT_SIZE}")
    for key, offset in (
        ("confirmPhyOffset", page.confirm_phy_offset),
        ("masterFlushedOffset", page.master_flushed_offset),
        ("logicsPhysicalOffset", page.logics_physical_offset),
    ):
        yield LogClaim(offset, f"{key} of the checkpoint")


def _of_index(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> Iterator[LogClaim | NotCompared]:
    is_closed = not fs.exists(paths.abort)
    slots, is_sure = config.max_hash_slot_num, False
    for entry in fs.scan(paths.index):
        if entry.is_directory or not is_index_name(entry.name):
            continue
        claims = list(_of_index_file(fs, paths.index / entry.name, slots, is_closed=is_closed))
        if not is_sure and any(isinstance(claim, NotCompared) for claim in claims):
            # The settings may be those of an index that is not built yet. Then the files themselves give their slots.
            slots, is_sure = _slots_of_files(fs, paths, config), True
            claims = list(_of_index_file(fs, paths.index / entry.name, slots, is_closed=is_closed))
        yield from claims


def _slots_of_files(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> int:
    try:
        files = find_index_files(fs, paths, config, ())
    except (OSError, StoreError):
        return config.max_hash_slot_num
    return files.slots if files.is_readable else config.max_hash_slot_num


def _of_index_file(fs: FileSystem, path: Path, slots: int, *, is_closed: bool) -> Iterator[LogClaim | NotCompared]:
    try:
        header = decode_header(read_part(fs, path, 0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        last_at = entry_at(slots, max(header.index_count - 1, 0))
        last = read_part(fs, path, last_at, ENTRY_SIZE)
    except (OSError, StoreError, ValueError) as error:
        yield NotCompared(path, cause_of(error))
        return
    # The header alone may be damaged, so the last entry must confirm it.
    end = header.end_phy_offset
    if len(last) == ENTRY_SIZE and decode_entry(last, 0).phy_offset == end > 0:
        yield LogClaim(end + 1, f"the index file {path.name}")
    elif header.index_count > 1 or end:
        reason = "its header and its last entry do not name the same place of the log"
        yield NotCompared(path, reason, is_damage=is_closed)  # a kill may come between the two


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


def recovery_account(paths: StorePaths, report: RecoveryReport, claims: LogClaims) -> LossAccount:
    """What the store at ``paths`` lost in the recovery; ``claims`` say how far the log reached before."""
    account, end = LossAccount(not_compared=list(claims.not_compared)), report.max_phy_offset
    account.groups_ahead = list(report.groups_ahead)
    for late in report.late_queues:
        path = paths.consume_queue / late.topic / str(late.queue_id)
        text = f"begins at offset {late.begin}, although the log has its first file; {REBUILD}"
        account.not_compared.append(NotCompared(path, text, is_damage=False))
    claim = claims.furthest
    stop = f": {report.stop_reason}" if report.stop_reason else ""
    if report.cut_bytes:
        text = f"cut after the end of the log{stop}; store salvage of an earlier copy keeps the valid records there"
        account.ranges.append(LostRange(paths.commit_log, end, end + report.cut_bytes, text))
    cut_end = end + report.cut_bytes
    if claim is not None and claim.end > cut_end:
        text = f"missing at the end of the log, which reached {claim.end} by {claim.source}"
        account.ranges.append(LostRange(paths.commit_log, cut_end, claim.end, text))
    for queue_cut in report.cut_queues:
        reason = f"after the end of the log at {end}{stop}"
        queue = queue_cut.topic, queue_cut.queue_id
        account.messages.append(LostMessages(*queue, queue_cut.end, queue_cut.was_end, -1, -1, reason))
        account.short_queues.append(ShortQueue(*queue, queue_cut.was_end, queue_cut.end))
    return account
