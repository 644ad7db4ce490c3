"""``config/timermetrics``: the number of waiting timer messages of each topic.

The counts are written with the checkpoint, so after a crash they lack what happened since. They are only for the
statistics that operators see.

Thread rule: one thread changes them; any thread may read :meth:`TimerMetrics.table`.

Source: TimerMetrics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gantrymq.fs.api import FileSystem
from gantrymq.store.config_files import ConfigFile


class TimerMetrics:
    """The counts by topic in the file at ``path``."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file = ConfigFile(fs, path)
        self._counts: dict[str, tuple[int, int]] = {}  # the number, and the time of its last change in ms
        self._counter = self._changed_ms = 0
        self._dirty = False

    def load(self) -> None:
        """Read the file. Entries that are not numbers are ignored."""
        kept = self._file.load()
        table, version = kept.get("timingCount"), kept.get("dataVersion")
        for topic, one in table.items() if isinstance(table, dict) else ():
            if isinstance(one, dict):
                self._counts[topic] = _number(one.get("count")), _number(one.get("timeStamp"))
        if isinstance(version, dict):
            self._counter, self._changed_ms = _number(version.get("counter")), _number(version.get("timestamp"))

    def add(self, topic: str, number: int, now_ms: int) -> None:
        """Count messages of a topic that enter the wheel (positive) or leave it (negative)."""
        count, _ = self._counts.get(topic, (0, 0))
        self._counts[topic] = count + number, now_ms
        self._counter, self._changed_ms, self._dirty = self._counter + 1, now_ms, True

    def count(self, topic: str) -> int:
        """The number of waiting messages of a topic."""
        return self._counts.get(topic, (0, 0))[0]

    def forget(self, topic: str) -> None:
        """Drop the count of a topic (removeTimingCount)."""
        if self._counts.pop(topic, None) is not None:
            self._dirty = True

    def clear(self) -> None:
        """Drop all counts."""
        self._counts, self._dirty = {}, True

    def table(self) -> dict[str, Any]:
        """The JSON object (TimerMetricsSerializeWrapper)."""
        counts = dict(self._counts)
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
