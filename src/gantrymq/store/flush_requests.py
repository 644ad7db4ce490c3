"""What a put waits with, for a flush or for slaves: a request of threads, and the futures of an event loop.

A request uses one raw lock instead of a ``concurrent.futures.Future``: with sixteen producers, creating, awaiting and
waking futures was most of the cost of a put. Coroutines use :class:`LoopFlush`: all puts of one turn of the event loop
share one request and are completed in one turn, so a sync costs two thread switches (``make bench
BENCH_ARGS=SYNC_FLUSH``).

Thread rule: a request belongs to any thread, LoopFlush to the thread of its event loop.

Source: CommitLog.GroupCommitRequest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from gantrymq.model.status import PutMessageStatus


class FlushRequest:
    """A future of one producer: it completes when everything up to ``end_offset`` is safe, or that fails.

    Safe is what the service says that finishes it: on the disk, or acknowledged by slaves. ``late`` is the status of a
    wait that is over before.

    Thread rule: the service finishes it once. Any thread may wait for it or add a callback.
    """

    __slots__ = ("_callbacks", "_error", "_late", "_open", "_status", "end_offset")

    def __init__(self, end_offset: int, late: PutMessageStatus = PutMessageStatus.FLUSH_DISK_TIMEOUT) -> None:
        self.end_offset, self._late = end_offset, late
        self._open = threading.Lock()  # locked until the request is finished; waiters acquire it
        self._open.acquire()
        self._status: PutMessageStatus | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[FlushRequest], None]] = []

    def done(self) -> bool:
        """Whether the request is finished."""
        return self._status is not None or self._error is not None

    def result(self, timeout_s: float) -> PutMessageStatus:
        """Return the outcome, or ``late`` after ``timeout_s`` seconds. Raises the error of the service."""
        if not self._open.acquire(timeout=timeout_s):
            return self._late
        self._open.release()
        if self._error is not None:
            raise self._error
        return self._status or self._late

    def add_done_callback(self, call: Callable[[FlushRequest], None]) -> None:
        """Call ``call`` with this request, from the finishing thread, when it is finished; now if it already is."""
        self._callbacks.append(call)
        if self.done():
            self._call_back()

    def finish(self, outcome: PutMessageStatus | Exception) -> None:
        """Set the outcome, wake the waiting threads and run the callbacks."""
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
            except IndexError:  # the other thread took the callback
                return
            call(self)


Waiting = list[asyncio.Future[PutMessageStatus]]


class LoopFlush:
    """Combines the requests of one event loop. Holds no reference that keeps the loop alive.

    ``put_request(end_offset)`` asks for the flush. After ``timeout_s()`` seconds a waiting future gets the status of a
    late request.
    """

    def __init__(self, put_request: Callable[[int], FlushRequest], timeout_s: Callable[[], float]) -> None:
        self._put_request, self._timeout_s = put_request, timeout_s
        self._waiting: Waiting = []
        self._end_offset = 0

    def until(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """Return a future that completes when everything up to ``end_offset``, which is written, is safe.

        If the service fails, the future raises its error.
        """
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
        timer = loop.call_later(self._timeout_s(), _complete, waiting, request)

        def complete() -> None:
            timer.cancel()
            _complete(waiting, request)

        def finished(_: FlushRequest) -> None:
            try:
                loop.call_soon_threadsafe(complete)
            except RuntimeError:  # the loop is closed, so no coroutine waits
                return

        request.add_done_callback(finished)


def _complete(waiting: Waiting, request: FlushRequest) -> None:
    """Set the outcome of ``request`` on all futures that are not done yet."""
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
