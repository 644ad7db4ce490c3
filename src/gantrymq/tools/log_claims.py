"""How far the log reached, by what is not the log: the checkpoint and the index.

Both outlive a lost log file. The queues say it too, and more: :mod:`gantrymq.tools.queue_account`.

Thread rule: plain functions.
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
from gantrymq.store.paths import StorePaths
from gantrymq.tools.bad_pages import cause_of, read_part
from gantrymq.tools.index_files import find_index_files
from gantrymq.tools.loss import NotCompared
from gantrymq.tools.small_files_check import read_small


class LogClaim(NamedTuple):
    """The log reached at least up to ``end``, by the word of ``source``."""

    end: int
    source: str


class LogClaims(NamedTuple):
    """The claim that reaches furthest, None where nothing says anything; and the files that could not be asked."""

    furthest: LogClaim | None
    not_compared: Sequence[NotCompared]


def log_claims(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> LogClaims:
    """What checkpoint and index say. ``config`` has the sizes of index files, or else these say it themselves."""
    claims: list[LogClaim] = []
    not_compared: list[NotCompared] = []
    for said in (*_of_checkpoint(fs, paths), *_of_index(fs, paths, config)):
        if isinstance(said, LogClaim):
            claims.append(said)
        else:
            not_compared.append(said)
    return LogClaims(max(claims, default=None), not_compared)


def _of_checkpoint(fs: FileSystem, paths: StorePaths) -> Iterator[LogClaim | NotCompared]:
    path = paths.checkpoint
    try:
        raw = read_small(fs, path, CHECKPOINT_SIZE)
    except FileNotFoundError:
        yield NotCompared(path, "missing", is_damage=False)
        return
    except (OSError, StoreError) as error:
        yield NotCompared(path, cause_of(error))
        return
    page = decode_checkpoint(raw)
    # -1 is RocketMQ's for a master that does not count.
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
        said = list(_of_index_file(fs, paths.index / entry.name, slots, is_closed=is_closed))
        if not is_sure and any(isinstance(one, NotCompared) for one in said):
            # The settings may be those of an index that is to be made: then the files say what they have.
            slots, is_sure = _slots_of_files(fs, paths, config), True
            said = list(_of_index_file(fs, paths.index / entry.name, slots, is_closed=is_closed))
        yield from said


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
    # A header alone may be damaged: its last entry has to say the same.
    end = header.end_phy_offset
    if len(last) == ENTRY_SIZE and decode_entry(last, 0).phy_offset == end > 0:
        yield LogClaim(end + 1, f"the index file {path.name}")
    elif header.index_count > 1 or end:
        reason = "its header and its last entry do not name the same place of the log"
        yield NotCompared(path, reason, is_damage=is_closed)  # a kill may come between the two
