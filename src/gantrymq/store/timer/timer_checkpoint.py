"""``config/timercheck``: the positions up to which timer messages are durably in the wheel, or delivered.

All messages of the timer topic before ``timer_queue_offset`` are in the timer log, or delivered. The master's offset
(RocketMQ's limit for a slave) is larger only while the timer log is rebuilt. Messages between the two are in no slot
yet; those that were due at ``last_read_time_ms`` are delivered.

Thread rule: one thread writes; any thread reads ``page``.

Source: TimerCheckpoint.
"""

from __future__ import annotations

from pathlib import Path

from gantrymq.format.timer import (
    TIMER_CHECKPOINT_BYTES,
    TIMER_CHECKPOINT_SIZE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from gantrymq.fs.api import FileSystem


class TimerCheckpointFile:
    """The file at ``path``. ``is_missing`` until any broker has written it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self.is_missing = True
        self.page = TimerCheckpoint()

    def load(self) -> None:
        """Read the page. Negative numbers, which no broker writes, count as 0, so that more is read again, not less."""
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError:
            return
        try:
            raw = file.read_at(0, TIMER_CHECKPOINT_BYTES)
        finally:
            file.close()
        page = decode_timer_checkpoint(raw)
        numbers = (page.last_read_time_ms, page.timer_log_flush_pos, page.timer_queue_offset)
        if min(*numbers, page.master_timer_queue_offset) < 0:
            page = TimerCheckpoint()
        self.page, self.is_missing = page, not any(raw)

    def save(self, read_time_ms: int, log_pos: int, queue_offset: int, settled_offset: int, now_ms: int) -> None:
        """Write the page, and return when it is durable. Raises DiskFullError."""
        page = TimerCheckpoint(
            read_time_ms, log_pos, queue_offset, settled_offset, self.page.state_version, now_ms, self.page.counter + 1
        )
        is_new = not self._fs.exists(self._path)
        if is_new:
            self._fs.make_directory(self._path.parent)
        file = self._fs.open(self._path, writable=True, create=True)
        try:
            if file.size() != TIMER_CHECKPOINT_SIZE:
                file.resize(TIMER_CHECKPOINT_SIZE)
            file.write_at(0, encode_timer_checkpoint(page))
            file.sync()
        finally:
            file.close()
        if is_new:
            self._fs.sync_directory(self._path.parent)
        self.page, self.is_missing = page, False
