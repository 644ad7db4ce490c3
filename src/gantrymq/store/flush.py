"""Makes data durable: background flushes of the commit log and the queues, and group commit for SYNC_FLUSH.

Recovery relies on the order: queue units are flushed before the checkpoint covers them, and records are flushed before
their put is acknowledged. :mod:`gantrymq.store.flush_policy` sets the intervals and the number of dirty pages.

Group commit: a request that arrives during a sync waits for the next one, so a thousand producers share one sync. No
lock is held during the sync. On a fast disk the obvious loop (sync, wake, sync) fails: the producers that one sync
released are still making their next messages when the next sync begins, so it serves one of sixteen. A sync therefore
waits until as many requests have come as recent syncs served, but no longer than the last sync took. In the worst case
this doubles the time of an acknowledgement.

Thread rule: each service has one thread.

Source: CommitLog.FlushRealTimeService, CommitRealTimeService and GroupCommitService,
ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.flush_policy import GROUP_COMMIT_INTERVAL_MS, FlushPolicy
from gantrymq.store.flush_requests import FlushRequest
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.queue.consume_queues import ConsumeQueues

_SYNCS_REMEMBERED = 8
_LONGEST_WAIT_S = 0.002
_SHUTDOWN_TRIES = 10


class GroupCommitService:
    """Lets waiting producers share one flush. A request that comes during a flush is served by the next one.

    After a failed flush every request gets the error: a later sync may succeed although the kernel has dropped the
    pages of the failed one. ``failed`` is called before the waiting requests are finished, so that the store refuses
    puts before their producers continue.
    """

    name = "GroupCommitService"
    interval_ms = GROUP_COMMIT_INTERVAL_MS

    def __init__(
        self, log: CommitLog, checkpoint: StoreCheckpoint, failed: Callable[[Exception], None] | None = None
    ) -> None:
        self._log = log
        self._failed = failed
        self._checkpoint = checkpoint
        self._requests: list[FlushRequest] = []
        self._error: Exception | None = None
        self._guard = threading.Lock()
        self._served = deque([1], _SYNCS_REMEMBERED)  # the number of requests that each of the last syncs served
        self._wanted = 1
        self._are_there = threading.Lock()  # locked until ``_wanted`` requests are waiting
        self._are_there.acquire()
        self._sync_s = 0.0
        self._flushed_ms = 0
        self._has_ended = False

    def put_request(self, end_offset: int) -> FlushRequest:
        """Request that everything up to ``end_offset``, which is written, becomes durable. Any thread may call this."""
        request = FlushRequest(end_offset)
        with self._guard:
            has_ended = self._has_ended
            if not has_ended:
                self._requests.append(request)
            if len(self._requests) == self._wanted and self._are_there.locked():
                self._are_there.release()
        if has_ended:
            self._answer([request])
        return request

    def step(self, now_ms: int) -> bool:
        """Serve all waiting requests.

        Without requests, flush what was put without waiting, once per ``interval_ms``.
        """
        requests = self._gather()
        rested_ms = now_ms - self._flushed_ms
        if requests or not 0 <= rested_ms < self.interval_ms:  # the clock may be set back
            self._flushed_ms = now_ms
            self._serve(requests)
        return bool(self._requests)

    def drain(self) -> None:
        """Serve the remaining requests and flush everything. Later requests are answered at once."""
        try:
            while self._requests:
                self._serve(self._gather())
            self._serve([])
        finally:
            with self._guard:
                self._has_ended = True
                late, self._requests = self._requests, []
            self._answer(late)

    def _gather(self) -> list[FlushRequest]:
        """Take the waiting requests once there are as many as recent syncs served, or after the last sync's time."""
        # The obvious loop takes what waits, syncs, wakes the producers, and begins again. On a disk that syncs in 5 ms
        # that is right: all sixteen producers come back during the next sync and share the one after it. On a disk that
        # syncs in 50 us it fails. The sync that released them is over long before they have made their next messages;
        # the loop finds one request, syncs for it alone, finds the next one, and sixteen producers get as many syncs a
        # second as one producer would. Waiting a fixed time fails on the other side: it adds that time to each
        # acknowledgement of a lone producer.
        #
        # So the loop learns how many come together, and waits for them, but never longer than a sync takes:
        #
        #   producers  disk   _wanted                    what happens
        #   1          any    1                          a request that waits is taken at once; nothing is added
        #   16         slow   16 after a few syncs       they are there when the sync ends; nothing is waited for
        #   16         fast   1, then 2, 5, 16           each wait lets more of them join, so _served grows
        #   16 -> 1    any    16 for _SYNCS_REMEMBERED   the lone producer waits _sync_s each time, until the large
        #                     syncs, then 1              numbers have left _served
        #   0          any    -                          nothing waits: step() flushes once in interval_ms
        #
        # The wait is at most _sync_s, the time of the last sync, and _LONGEST_WAIT_S: an acknowledgement takes at most
        # twice as long as without it, and a sync that hung for a second is not repeated as a wait.
        #
        # _are_there is a lock and not a condition, because the 16th request wakes the loop with one release; a
        # condition would wake it at each request. It may be released when the loop does not wait for it. The last line
        # takes it back then, under the guard, so that the next wait begins with it locked.
        #
        # A request never joins a sync that is under way: its bytes may have been written behind the pages that the
        # kernel has already sent to the disk. It is in the list of the next one. A failed sync answers every request
        # with its error, the later ones too: the kernel marks the pages of a failed sync as clean, so that the next
        # sync succeeds without having written them.
        if 0 < len(self._requests) < self._wanted:
            self._are_there.acquire(timeout=min(self._sync_s, _LONGEST_WAIT_S))
        with self._guard:
            requests, self._requests = self._requests, []
            if requests:
                self._served.append(len(requests))
                self._wanted = max(self._served)
            self._are_there.acquire(blocking=False)
        return requests

    def _serve(self, requests: list[FlushRequest]) -> None:
        try:
            if self._error is not None:
                raise self._error
            began_s = time.perf_counter()
            flush_log(self._log, self._checkpoint)
            self._sync_s = time.perf_counter() - began_s
        except Exception as error:
            is_known, self._error = self._error is not None, error
            if self._failed is not None and not is_known:
                self._failed(error)
            self._answer(requests)
            if is_known:
                return
            raise
        self._answer(requests)

    def _answer(self, requests: list[FlushRequest]) -> None:
        """Finish the requests with the error, or with the status that follows from how far the log is flushed."""
        flushed = self._log.queue.flushed_where
        for request in requests:
            done = flushed >= request.end_offset
            request.finish(self._error or (PutMessageStatus.PUT_OK if done else PutMessageStatus.FLUSH_DISK_TIMEOUT))


def flush_log(log: CommitLog, checkpoint: StoreCheckpoint, least_pages: int = 0) -> None:
    """Flush the log.

    Without ``least_pages`` flush all of it and put the time of the newest durable record in the checkpoint.
    """
    last = log.queue.last
    timestamp_ms = last.store_timestamp_ms if last else 0
    if least_pages:
        log.queue.flush(least_pages)
    else:
        log.queue.flush_all()
        if timestamp_ms > 0:
            checkpoint.page.physic_msg_timestamp_ms = timestamp_ms


class FlushRealTimeService:
    """Flushes the log every flushIntervalCommitLog if enough pages are dirty, and all of it at longer intervals."""

    name = "FlushRealTimeService"

    def __init__(self, log: CommitLog, checkpoint: StoreCheckpoint, policy: FlushPolicy) -> None:
        self._log = log
        self._checkpoint = checkpoint
        self._policy = policy
        self._last_thorough_ms = 0
        self._is_all_wanted = False

    @property
    def interval_ms(self) -> int:
        """The value of flushIntervalCommitLog (ms)."""
        return self._policy.log_flush.interval_ms

    def want_all(self) -> None:
        """Make the next step flush everything, however few pages are dirty. Any thread may call this."""
        self._is_all_wanted = True

    def step(self, now_ms: int) -> bool:
        """Flush once."""
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
    """Writes the buffers of the TransientStorePool to their files, and wakes the flush if it wrote something."""

    name = "CommitRealTimeService"

    def __init__(self, log: CommitLog, policy: FlushPolicy, committed: Callable[[], None]) -> None:
        self._log = log
        self._policy = policy
        self._committed = committed
        self._last_commit_ms = 0

    @property
    def interval_ms(self) -> int:
        """The value of commitIntervalCommitLog (ms)."""
        return self._policy.log_commit.interval_ms

    def step(self, now_ms: int) -> bool:
        """Commit once; commit everything if the last thorough commit is long enough ago."""
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
    """Flushes the queues. After a thorough flush the checkpoint records how far queues and log are durable."""

    name = "FlushConsumeQueueService"

    def __init__(self, queues: ConsumeQueues, log: CommitLog, checkpoint: StoreCheckpoint, policy: FlushPolicy) -> None:
        self._queues = queues
        self._log = log
        self._checkpoint = checkpoint
        self._policy = policy
        self._last_thorough_ms = 0

    @property
    def interval_ms(self) -> int:
        """The value of flushIntervalConsumeQueue (ms)."""
        return self._policy.queue_flush.interval_ms

    def step(self, now_ms: int) -> bool:
        """Flush once."""
        pace = self._policy.queue_flush
        if now_ms >= self._last_thorough_ms + pace.thorough_interval_ms:
            self._last_thorough_ms = now_ms
            self.drain()
        else:
            self._queues.flush(pace.least_pages)
        return False

    def drain(self) -> None:
        """Flush all queues, then the checkpoint."""
        timestamp_ms = self._checkpoint.tmp_logics_msg_timestamp_ms
        phy_offset = self._checkpoint.tmp_logics_physical_offset
        # Recovery begins with the file that contains this offset, so the log before it must be durable too.
        log_end = self._log.queue.flushed_where
        self._queues.flush()
        if phy_offset < log_end:
            self._checkpoint.queues_flushed(timestamp_ms, phy_offset)
        else:
            self._checkpoint.queues_flushed(0, log_end)
        self._checkpoint.flush()
