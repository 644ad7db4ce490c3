"""One sync for everybody who waits for the disk (SYNC_FLUSH).

Who comes while a sync runs waits for the next one: a thousand producers cost one sync, and one producer waits for no
timer. No lock is held over the sync. Where the disk is fast, those whom one sync let go would still be making their
next messages when the next sync begins, and it would serve one of sixteen. So a sync waits until as many have come as
came before, but no longer than the last one took: at worst an acknowledgement takes twice as long.

A request is one raw lock rather than a ``concurrent.futures.Future`` with its condition: with sixteen producers most
of what a put cost was the making, the waiting and the waking of futures (``make bench BENCH_ARGS=SYNC_FLUSH``).

Source: CommitLog.GroupCommitService and GroupCommitRequest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.flush import flush_log
from gantrymq.store.flush_policy import GROUP_COMMIT_INTERVAL_MS

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
