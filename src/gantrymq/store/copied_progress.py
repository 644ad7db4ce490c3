"""How far a master has delivered delayed and timer messages: what a slave keeps for its start as a master.

``config/delayOffset.json``, ``config/timercheck`` and ``config/timermetrics`` are those that a master reads at its
start. A slave delivers nothing, so it has no timer wheel. Its checkpoint says so: the timer topic is read from its
begin, and what the master has delivered is skipped. The timer log of a master that became a slave is removed, because
it would hide messages that the new master has put into its own wheel.

Each number counts deliveries. The caller takes it only when they are in this log, and durable.

Thread rule: one thread at a time.

Source: SlaveSynchronize.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import DELAY_OFFSET
from gantrymq.format.timer import SLOT_DTYPE, SLOTS, TimerCheckpoint
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.opening import StoreParts
from gantrymq.store.timer.timer_files import TimerCheckpointFile, TimerMetrics
from gantrymq.store.timer.timer_log import TimerLog
from gantrymq.store.timer.wheel import TimerWheel


class CopiedProgress:
    """The progress of the master, in the files of a slave's store. Raises DiskFullError from all that writes."""

    def __init__(self, parts: StoreParts, config: MessageStoreConfig, now_ms: int) -> None:
        fs, paths = parts.fs, parts.paths
        self._delays = ConfigFile(fs, paths.config / DELAY_OFFSET)
        self._checkpoint = TimerCheckpointFile(fs, paths.timer_checkpoint)
        self._checkpoint.load()
        self.timer_metrics = TimerMetrics(fs, paths.timer_metrics)
        self.timer_metrics.load()
        self.delay_offsets = _levels(self._delays.load().get("offsetTable"))
        if not fs.exists(paths.timer_log) and not fs.exists(paths.timer_wheel):
            return
        self.take_timers(self._checkpoint.page, now_ms)  # first: the old position must not point into an empty log
        if fs.exists(paths.timer_log):
            TimerLog(fs, paths.timer_log, config.mapped_file_size_timer_log).remove_all()
        if fs.exists(paths.timer_wheel):
            TimerWheel(fs, paths.timer_wheel, SLOTS).replace(np.empty(0, SLOT_DTYPE))

    @property
    def timer_checkpoint(self) -> TimerCheckpoint:
        """The checkpoint of the timers."""
        return self._checkpoint.page

    def take_delays(self, offsets: Mapping[int, int], version: Mapping[str, Any]) -> None:
        """Keep how far the master has delivered each delay level.

        A lower offset counts, too: this store may have been of another master, whose deliveries are not in this log.
        """
        table = self.delay_offsets | dict(offsets)
        if table != self.delay_offsets:
            self._delays.save({"dataVersion": dict(version), "offsetTable": dict(sorted(table.items()))})
            self.delay_offsets = table

    def take_timers(self, page: TimerCheckpoint, now_ms: int) -> None:
        """Keep how far the master has delivered timer messages."""
        settled, old = max(page.timer_queue_offset, page.master_timer_queue_offset), self._checkpoint.page
        known = (old.last_read_time_ms, old.timer_log_flush_pos, old.timer_queue_offset, old.master_timer_queue_offset)
        if known != (page.last_read_time_ms, 0, 0, settled):
            self._checkpoint.save(page.last_read_time_ms, 0, 0, settled, now_ms)

    def take_timer_metrics(self, table: Mapping[str, Any]) -> None:
        """Keep how many timer messages wait for each topic."""
        if self.timer_metrics.table() != table:
            self.timer_metrics.replace(table)
            self.timer_metrics.save()


def _levels(table: object) -> dict[int, int]:
    """The offsets by level; entries that are no numbers are left out."""
    if not isinstance(table, dict):
        return {}
    return {
        int(level): offset
        for level, offset in table.items()
        if str(level).isascii() and str(level).isdigit() and type(offset) is int
    }
