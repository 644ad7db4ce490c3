"""How far the log reached, by checkpoint and index, and what a recovery lost by that.

The checkpoint and the index outlive a lost log file, and record how far the log reached. A recovery ends the log at its
first damage. What it cut from the queues shows which messages were after the end. Records that were in no queue yet are
reported as a range of the log.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, decode_checkpoint, encode_checkpoint
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, decode_entry, decode_header, entry_at
from gantrymq.format.names import is_index_name
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import cause_of, read_part
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queue import REBUILD
from gantrymq.store.recovery.recovery import RecoveryReport
from gantrymq.tools.read.index_files import find_index_files
from gantrymq.tools.reports import LossAccount, LostMessages, LostRange, NotCompared, ShortQueue


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
