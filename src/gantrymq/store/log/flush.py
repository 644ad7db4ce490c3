"""Making data durable: the commit log in the background, the queues, and group commit for SYNC_FLUSH.

Recovery relies on the order: queue units are flushed before the checkpoint covers them, and records of the log before
their producer is told. :mod:`gantrymq.store.log.flush_policy` says how often, and from how many dirty pages on.

Group commit: a request that comes while a sync runs waits for the next one, so a thousand producers cost one sync. No
lock is held over the sync. On a fast disk the obvious loop (sync, wake, sync) fails: the producers that one sync
released are still making their next messages when the next sync begins, and it serves one of sixteen. A sync therefore
waits until as many requests have come as the one before served, but no longer than that one took: at worst an
acknowledgement takes twice as long.

A request is one raw lock and no ``concurrent.futures.Future``: with sixteen producers, making, waiting for and waking
futures was most of the cost of a put. Coroutines use :class:`LoopFlush`: all puts of one turn of the event loop are one
request and are completed in one turn, which costs a sync two changes of thread (``make bench BENCH_ARGS=SYNC_FLUSH``).

Thread rule: each service has one thread. LoopFlush belongs to the thread of its event loop.

Source: CommitLog.FlushRealTimeService, CommitRealTimeService, GroupCommitService and GroupCommitRequest,
ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.flush_policy import GROUP_COMMIT_INTERVAL_MS, FlushPolicy
from gantrymq.store.queue.consume_queues import ConsumeQueues

_SYNCS_REMEMBERED = 8
_LONGEST_WAIT_S = 0.002


class FlushRequest:
    """The future of one producer: everything up to ``end_offset`` on the disk, or the error of the sync.

    Thread rule: the service finishes it once; any thread may wait for it or add a callback.
    """

    __slots__ = ("_callbacks", "_error", "_open", "_status", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self._open = threading.Lock()  # held until the request is finished: who waits, waits for it
        self._open.acquire()
        self._status: PutMessageStatus | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[FlushRequest], None]] = []

    def done(self) -> bool:
        """Whether it is finished."""
        return self._status is not None or self._error is not None

    def result(self, timeout_s: float) -> PutMessageStatus:
        """PUT_OK; FLUSH_DISK_TIMEOUT where it takes longer than ``timeout_s`` (seconds). Raises the sync's error."""
        if not self._open.acquire(timeout=timeout_s):
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        self._open.release()
        if self._error is not None:
            raise self._error
        return self._status or PutMessageStatus.FLUSH_DISK_TIMEOUT

    def add_done_callback(self, call: Callable[[FlushRequest], None]) -> None:
        """Call ``call`` with this request when it is finished, from the flushing thread; at once where it is."""
        self._callbacks.append(call)
        if self.done():
            self._call_back()

    def finish(self, outcome: PutMessageStatus | Exception) -> None:
        """Say how it went, and let everybody go who waits."""
        if isinstance(outcome, PutMessageStatus):
            self._status = outcome
        else:
            self._error = outcome
        self._open.release()
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                call = self._callbacks.pop()
            except IndexError:  # the other thread took it
                return
            call(self)


class GroupCommitService:
    """Lets waiting producers share one flush: who came while a flush ran is served by the next one.

    Once a flush has failed nobody is served any more: a later one may succeed without what the failed one gave up.
    ``failed`` hears of it before those who wait do, who must not find the store open for more.
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
        self._served = deque([1], _SYNCS_REMEMBERED)  # how many, by the last syncs
        self._wanted = 1
        self._are_there = threading.Lock()  # held until as many wait as are wanted
        self._are_there.acquire()
        self._sync_s = 0.0
        self._flushed_ms = 0
        self._has_ended = False

    def put_request(self, end_offset: int) -> FlushRequest:
        """Ask for everything up to ``end_offset``, which is written, to be durable. Any thread."""
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
        """Serve everybody who is waiting; where nobody is, flush now and then what was put without waiting."""
        requests = self._gather()
        rested_ms = now_ms - self._flushed_ms
        if requests or not 0 <= rested_ms < self.interval_ms:  # a clock may be set back
            self._flushed_ms = now_ms
            self._serve(requests)
        return bool(self._requests)

    def drain(self) -> None:
        """Serve whoever is left, and flush everything; who asks later is answered at once."""
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
        """Take the requests, once there are as many as there lately were, or the last sync's time has passed."""
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
        """Say what is known now: the error, or how far the log is on the disk."""
        flushed = self._log.queue.flushed_where
        for request in requests:
            done = flushed >= request.end_offset
            request.finish(self._error or (PutMessageStatus.PUT_OK if done else PutMessageStatus.FLUSH_DISK_TIMEOUT))


Waiting = list[asyncio.Future[PutMessageStatus]]


class LoopFlush:
    """Asks ``put_request(end_offset)`` for the disk, for whoever waits in one event loop, which it does not keep alive.

    Who has waited for ``timeout_s()`` seconds is told FLUSH_DISK_TIMEOUT.
    """

    def __init__(self, put_request: Callable[[int], FlushRequest], timeout_s: Callable[[], float]) -> None:
        self._put_request, self._timeout_s = put_request, timeout_s
        self._waiting: Waiting = []
        self._end_offset = 0

    def until(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """A future of everything up to ``end_offset``, which is written, being on the disk; or of the sync's error."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._ask, loop)
        self._waiting.append(future)
        self._end_offset = max(self._end_offset, end_offset)
        return future

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        request = self._put_request(self._end_offset)
        timer = loop.call_later(self._timeout_s(), _tell, waiting, request)

        def told() -> None:
            timer.cancel()
            _tell(waiting, request)

        def finished(_: FlushRequest) -> None:
            try:
                loop.call_soon_threadsafe(told)
            except RuntimeError:  # the loop has closed: nobody is left to be told
                return

        request.add_done_callback(finished)


def _tell(waiting: Waiting, request: FlushRequest) -> None:
    """Say how it went to all but those who have given up or were told that their time is over."""
    try:
        status, error = request.result(0), None
    except Exception as failed:
        status, error = PutMessageStatus.UNKNOWN_ERROR, failed
    for future in waiting:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(status)


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
