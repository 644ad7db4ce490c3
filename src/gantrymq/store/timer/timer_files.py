"""The two small files of the timers: ``config/timercheck`` and ``config/timermetrics``.

The checkpoint has the positions up to which timer messages are durably in the wheel, or delivered. All messages of the
timer topic before ``timer_queue_offset`` are in the timer log, or delivered. The master's offset (RocketMQ's limit for
a slave) is larger only while the timer log is rebuilt. Messages between the two are in no slot yet; those that were due
at ``last_read_time_ms`` are delivered.

The metrics have the number of waiting timer messages of each topic. They are written with the checkpoint, so after a
crash they lack what happened since. They are only for the statistics that operators see.

Thread rule: one thread writes and counts; any thread reads ``page`` and :meth:`TimerMetrics.table`.

Source: TimerCheckpoint, TimerMetrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gantrymq.format.timer import (
    TIMER_CHECKPOINT_BYTES,
    TIMER_CHECKPOINT_SIZE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from gantrymq.fs.api import FileSystem
from gantrymq.store.config_files import ConfigFile


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


class TimerMetrics:
    """The counts by topic in the file at ``path``."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file = ConfigFile(fs, path)
        self._counts: dict[str, tuple[int, int]] = {}  # the number, and the time of its last change in ms
        self._counter = self._changed_ms = 0
        self._dirty = False

    def load(self) -> None:
        """Read the file. Entries that are not numbers are ignored, and those below 0, of a broker that was killed."""
        self._take(self._file.load())

    def replace(self, table: Mapping[str, Any]) -> None:
        """Replace the counts by those of a master's ``table``."""
        self._counts = {}
        self._take(table)
        self._dirty = True

    def _take(self, saved: Mapping[str, Any]) -> None:
        table, version = saved.get("timingCount"), saved.get("dataVersion")
        for topic, entry in table.items() if isinstance(table, dict) else ():
            if isinstance(entry, dict):
                self._counts[topic] = max(_number(entry.get("count")), 0), _number(entry.get("timeStamp"))
        if isinstance(version, dict):
            self._counter, self._changed_ms = _number(version.get("counter")), _number(version.get("timestamp"))

    def add(self, topic: str, number: int, now_ms: int) -> None:
        """Count messages of a topic that enter the wheel (positive) or leave it (negative)."""
        count, _ = self._counts.get(topic, (0, 0))
        self._counts[topic] = count + number, now_ms
        self._counter, self._changed_ms, self._dirty = self._counter + 1, now_ms, True

    def count(self, topic: str) -> int:
        """The number of waiting messages of a topic."""
        return max(self._counts.get(topic, (0, 0))[0], 0)

    def counts(self) -> dict[str, int]:
        """The number of waiting messages of each topic. Thread rule: any thread."""
        return {topic: max(count, 0) for topic, (count, _) in list(self._counts.items())}

    def forget(self, topic: str) -> None:
        """Drop the count of a topic (removeTimingCount)."""
        if self._counts.pop(topic, None) is not None:
            self._dirty = True

    def clear(self) -> None:
        """Drop all counts."""
        self._counts, self._dirty = {}, True

    def table(self) -> dict[str, Any]:
        """The JSON object (TimerMetricsSerializeWrapper)."""
        counts = {topic: (max(count, 0), at_ms) for topic, (count, at_ms) in list(self._counts.items())}
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": self._changed_ms}
        timing = {topic: {"count": count, "timeStamp": at_ms} for topic, (count, at_ms) in counts.items()}
        return {"dataVersion": version, "timingCount": timing}

    def save(self) -> None:
        """Write the file if anything has changed. Raises DiskFullError."""
        if self._dirty:
            self._file.save(self.table())
            self._dirty = False


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
