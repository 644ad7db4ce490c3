"""The checkpoint file: what was flushed, kept in memory and written as one page.

The ``tmp_logics_*`` numbers run ahead with the dispatcher; they become the checkpoint's when the queues have been
flushed thoroughly. Recovery relies on that order.

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
    """The page without numbers that no store has, negative ones and times in the future: they become 0, unknown."""
    return Checkpoint(
        **{
            key: 0 if number < 0 or (key.endswith("_ms") and number > now_ms + CLOCKS_DIFFER_MS) else number
            for key, number in asdict(page).items()
        }
    )


class StoreCheckpoint:
    """The checkpoint of one store. Plain numbers: each is written by one service, any thread may read."""

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
        """Take numbers for unknown that no store has: negative ones, and times that lie in the future.

        A recovery then looks at more than it needs to, and not at less.
        """
        self.page = possible(self.page, now_ms)

    def note_queue_entry(self, store_timestamp_ms: int, phy_offset: int) -> None:
        """The dispatcher has put the unit of this record into its queue."""
        self.tmp_logics_msg_timestamp_ms = store_timestamp_ms
        self.tmp_logics_physical_offset = phy_offset

    def queues_flushed(self, store_timestamp_ms: int, phy_offset: int) -> None:
        """All queues are on the disk up to the unit of the record at ``phy_offset``; the time may be 0, unknown.

        The log's first record alone is not noted: where the offset is 0 recovery believes the time, and what was stored
        within the same millisecond, perhaps files behind, would count as durable.
        """
        if phy_offset > 0:
            self.page.logics_physical_offset = phy_offset
            self.page.logics_msg_timestamp_ms = store_timestamp_ms or self.page.logics_msg_timestamp_ms

    def freeze(self) -> None:
        """Write nothing any more: what the page says of the disk may not be true."""
        self._is_frozen = True

    def log_ended_at(self, end_offset: int) -> None:
        """Nothing is vouched for behind the end of the log: other records will stand there. Raises DiskFullError."""
        page = self.page
        is_stale = end_offset == 0 and max(page.logics_msg_timestamp_ms, page.index_msg_timestamp_ms) > 0
        if is_stale or max(page.logics_physical_offset, page.confirm_phy_offset) > end_offset:
            if is_stale:  # a power cut may bring removed queues and index files back
                page.logics_msg_timestamp_ms = page.index_msg_timestamp_ms = 0
            page.logics_physical_offset = min(page.logics_physical_offset, end_offset)
            page.confirm_phy_offset = min(page.confirm_phy_offset, end_offset)
            self.flush()

    def queues_end_at(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """No queue is vouched for behind the record at ``phy_offset``, stored then. Raises DiskFullError."""
        page = self.page
        page.logics_physical_offset = min(page.logics_physical_offset, phy_offset)
        page.logics_msg_timestamp_ms = min(page.logics_msg_timestamp_ms, store_timestamp_ms if phy_offset else 0)
        self.flush()

    def flush(self) -> None:
        """Write the page and make it durable, unless it is frozen; raises DiskFullError.

        Times are those that records say, of which a bit may have flipped: what the next start would not believe is
        written as 0, unknown.
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
