"""The checkpoint file: how far records, units and index entries are durable. Kept in memory and written as one page.

The ``tmp_logics_*`` numbers run ahead with the dispatcher. They go into the checkpoint when the queues have been
flushed completely. Recovery relies on that order.

Source: StoreCheckpoint.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from gantrymq.clock import Clock, SystemClock
from gantrymq.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint
from gantrymq.fs.api import FileSystem

CLOCKS_DIFFER_MS = 60_000


def possible(page: Checkpoint, now_ms: int) -> Checkpoint:
    """Return the page with impossible numbers (negative ones, times in the future) set to 0, which means unknown."""
    return Checkpoint(
        **{
            key: 0 if number < 0 or (key.endswith("_ms") and number > now_ms + CLOCKS_DIFFER_MS) else number
            for key, number in asdict(page).items()
        }
    )


class StoreCheckpoint:
    """The checkpoint of one store.

    Thread rule: each number is written by one service, and any thread may read.
    """

    def __init__(self, fs: FileSystem, path: Path, clock: Clock | None = None) -> None:
        self._fs = fs
        self._clock = clock or SystemClock()
        self._path = path
        self.page = self._read()
        self._is_frozen = False
        self.tmp_logics_msg_timestamp_ms = 0
        self.tmp_logics_physical_offset = 0

    def _read(self) -> Checkpoint:
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError:
            return Checkpoint()
        try:
            return decode_checkpoint(file.read_at(0, CHECKPOINT_SIZE))
        finally:
            file.close()

    def drop_impossible(self, now_ms: int) -> None:
        """Set impossible numbers (negative ones, times in the future) to 0, which means unknown.

        Recovery then examines more than it needs, and never less.
        """
        self.page = possible(self.page, now_ms)

    def note_queue_entry(self, store_timestamp_ms: int, phy_offset: int) -> None:
        """Note that the dispatcher has written the unit of this record."""
        self.tmp_logics_msg_timestamp_ms = store_timestamp_ms
        self.tmp_logics_physical_offset = phy_offset

    def queues_flushed(self, store_timestamp_ms: int, phy_offset: int) -> None:
        """Note that all queues are durable up to the unit of the record at ``phy_offset``. A time of 0 means unknown.

        Offset 0 is not noted: recovery then uses the time alone, and records stored in the same millisecond, perhaps
        files later, would count as durable.
        """
        if phy_offset > 0:
            self.page.logics_physical_offset = phy_offset
            self.page.logics_msg_timestamp_ms = store_timestamp_ms or self.page.logics_msg_timestamp_ms

    def freeze(self) -> None:
        """Stop all writes of the checkpoint, because its numbers may not be true after a failed sync."""
        self._is_frozen = True

    def log_ended_at(self, end_offset: int) -> None:
        """Cover nothing after the end of the log, since other records will be written there. Raises DiskFullError."""
        page = self.page
        is_stale = end_offset == 0 and max(page.logics_msg_timestamp_ms, page.index_msg_timestamp_ms) > 0
        if is_stale or max(page.logics_physical_offset, page.confirm_phy_offset) > end_offset:
            if is_stale:  # a power cut may restore removed queues and index files
                page.logics_msg_timestamp_ms = page.index_msg_timestamp_ms = 0
            page.logics_physical_offset = min(page.logics_physical_offset, end_offset)
            page.confirm_phy_offset = min(page.confirm_phy_offset, end_offset)
            self.flush()

    def queues_end_at(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Cover no unit after the record at ``phy_offset``, which has that store time. Raises DiskFullError."""
        page = self.page
        page.logics_physical_offset = min(page.logics_physical_offset, phy_offset)
        page.logics_msg_timestamp_ms = min(page.logics_msg_timestamp_ms, store_timestamp_ms if phy_offset else 0)
        self.flush()

    def flush(self) -> None:
        """Write the page and make it durable, unless it is frozen. Raises DiskFullError.

        The times come from records, which may have a flipped bit. Times that the next start would not accept are
        written as 0, which means unknown.
        """
        if self._is_frozen:
            return
        is_new = not self._fs.exists(self._path)
        file = self._fs.open(self._path, writable=True, create=True)
        try:
            if file.size() > CHECKPOINT_SIZE:
                file.resize(CHECKPOINT_SIZE)
            file.write_at(0, encode_checkpoint(possible(self.page, self._clock.now_ms())))
            file.sync()
        finally:
            file.close()
        if is_new:
            self._fs.sync_directory(self._path.parent)
