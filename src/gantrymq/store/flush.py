"""Making what was written durable: the commit log in the background, and the queues.

The order that recovery relies on: queue units are flushed before the checkpoint says so, and a log's records before a
producer hears of them.

How often, and from how many dirty pages on: :mod:`gantrymq.store.flush_policy`. Producers that wait for the disk are
served by :mod:`gantrymq.store.group_commit`.

Source: CommitLog.FlushRealTimeService and CommitRealTimeService, ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.consume_queues import ConsumeQueues
from gantrymq.store.flush_policy import FlushPolicy

_SHUTDOWN_TRIES = 10


def flush_log(log: CommitLog, checkpoint: StoreCheckpoint, least_pages: int = 0) -> None:
    """Flush the log and note the time of its newest durable record."""
    last = log.queue.last
    timestamp_ms = last.store_timestamp_ms if last else 0
    if least_pages:
        log.queue.flush(least_pages)
    else:
        log.queue.flush_all()
        if timestamp_ms > 0:
            checkpoint.page.physic_msg_timestamp_ms = timestamp_ms


class FlushRealTimeService:
    """Flushes the log every flushIntervalCommitLog where enough pages are dirty, and all of it now and then."""

    name = "FlushRealTimeService"

    def __init__(self, log: CommitLog, checkpoint: StoreCheckpoint, policy: FlushPolicy) -> None:
        self._log = log
        self._checkpoint = checkpoint
        self._policy = policy
        self._last_thorough_ms = 0
        self._is_all_wanted = False

    @property
    def interval_ms(self) -> int:
        """flushIntervalCommitLog."""
        return self._policy.log_flush.interval_ms

    def want_all(self) -> None:
        """Let the next step flush everything, however few pages are dirty. Any thread."""
        self._is_all_wanted = True

    def step(self, now_ms: int) -> bool:
        """One flush."""
        pace = self._policy.log_flush
        thorough = now_ms >= self._last_thorough_ms + pace.thorough_interval_ms
        if thorough or self._is_all_wanted:
            self._last_thorough_ms, thorough, self._is_all_wanted = now_ms, True, False
        flush_log(self._log, self._checkpoint, 0 if thorough else pace.least_pages)
        return False

    def drain(self) -> None:
        """Flush everything."""
        for _ in range(_SHUTDOWN_TRIES):
            flush_log(self._log, self._checkpoint)
            if self._log.queue.flushed_where >= self._log.max_offset:
                return


class CommitRealTimeService:
    """Writes the buffers of the TransientStorePool to their files, and wakes the flush when it wrote something."""

    name = "CommitRealTimeService"

    def __init__(self, log: CommitLog, policy: FlushPolicy, committed: Callable[[], None]) -> None:
        self._log = log
        self._policy = policy
        self._committed = committed
        self._last_commit_ms = 0

    @property
    def interval_ms(self) -> int:
        """commitIntervalCommitLog."""
        return self._policy.log_commit.interval_ms

    def step(self, now_ms: int) -> bool:
        """One commit; of everything where the last one is long enough ago."""
        pace = self._policy.log_commit
        thorough = now_ms >= self._last_commit_ms + pace.thorough_interval_ms
        if not self._log.queue.commit(0 if thorough else pace.least_pages):
            self._committed()
            thorough = True
        if thorough:
            self._last_commit_ms = now_ms
        return False

    def drain(self) -> None:
        """Commit everything."""
        for _ in range(_SHUTDOWN_TRIES):
            while not self._log.queue.commit(0):
                pass


class FlushConsumeQueueService:
    """Flushes the queues; after a thorough flush the checkpoint says how far they, and the log, are durable."""

    name = "FlushConsumeQueueService"

    def __init__(self, queues: ConsumeQueues, log: CommitLog, checkpoint: StoreCheckpoint, policy: FlushPolicy) -> None:
        self._queues = queues
        self._log = log
        self._checkpoint = checkpoint
        self._policy = policy
        self._last_thorough_ms = 0

    @property
    def interval_ms(self) -> int:
        """flushIntervalConsumeQueue."""
        return self._policy.queue_flush.interval_ms

    def step(self, now_ms: int) -> bool:
        """One flush."""
        pace = self._policy.queue_flush
        if now_ms >= self._last_thorough_ms + pace.thorough_interval_ms:
            self._last_thorough_ms = now_ms
            self.drain()
        else:
            self._queues.flush(pace.least_pages)
        return False

    def drain(self) -> None:
        """Flush everything, then the checkpoint."""
        timestamp_ms = self._checkpoint.tmp_logics_msg_timestamp_ms
        phy_offset = self._checkpoint.tmp_logics_physical_offset
        # Recovery begins with the file that this offset lies in: what stands in front must be durable in the log too.
        log_end = self._log.queue.flushed_where
        self._queues.flush()
        if phy_offset < log_end:
            self._checkpoint.queues_flushed(timestamp_ms, phy_offset)
        else:
            self._checkpoint.queues_flushed(0, log_end)
        self._checkpoint.flush()
