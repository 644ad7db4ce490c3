"""How far the log reached, by what is not the log: the checkpoint and the index.

Both outlive a lost log file. The queues say it too, and more: :mod:`gantrymq.tools.queue_account`.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, decode_checkpoint, encode_checkpoint
from gantrymq.format.index import ENTRY_SIZE, HEADER_SIZE, decode_entry, decode_header, entry_at
from gantrymq.format.names import is_index_name
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.small_files_check import read_small


class LogClaim(NamedTuple):
    """The log reached at least up to ``end``, by the word of ``source``."""

    end: int
    source: str


def furthest_claim(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> LogClaim | None:
    """The claim that reaches furthest; None where nothing says anything. ``config`` has the sizes of index files."""
    return max([*_of_checkpoint(fs, paths), *_of_index(fs, paths, config)], default=None)


def _of_checkpoint(fs: FileSystem, paths: StorePaths) -> Iterator[LogClaim]:
    try:
        raw = read_small(fs, paths.checkpoint, CHECKPOINT_SIZE)
    except (OSError, StoreError):
        return
    page = decode_checkpoint(raw)
    # -1 is RocketMQ's for a master that does not count. One that is no checkpoint says nothing.
    if any(number < -1 for number in astuple(page)) or not encode_checkpoint(page).startswith(raw):
        return
    for key, offset in (
        ("confirmPhyOffset", page.confirm_phy_offset),
        ("masterFlushedOffset", page.master_flushed_offset),
        ("logicsPhysicalOffset", page.logics_physical_offset),
    ):
        yield LogClaim(offset, f"{key} of the checkpoint")


def _of_index(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig) -> Iterator[LogClaim]:
    for entry in fs.scan(paths.index):
        if entry.is_directory or not is_index_name(entry.name):
            continue
        try:
            file = fs.open(paths.index / entry.name)
            try:
                header = decode_header(file.read_at(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
                last = file.read_at(entry_at(config.max_hash_slot_num, max(header.index_count - 1, 0)), ENTRY_SIZE)
            finally:
                file.close()
        except (OSError, StoreError, ValueError):
            continue
        # A header alone may be damaged: its last entry has to say the same.
        if len(last) == ENTRY_SIZE and decode_entry(last, 0).phy_offset == header.end_phy_offset > 0:
            yield LogClaim(header.end_phy_offset + 1, f"the index file {entry.name}")
