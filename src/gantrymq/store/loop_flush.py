"""What puts of coroutines wait with, for a flush or for slaves: futures of their event loop.

All puts of one turn of the event loop share one request and are completed in one turn, so a sync costs two thread
switches (``make bench BENCH_ARGS=SYNC_FLUSH``).

Only this module of the store imports asyncio, which takes a tenth of the start of a command; a store whose puts come
from threads never imports it.

Thread rule: LoopFlushes any event loop, LoopFlush the thread of its own.

Source: CommitLog.GroupCommitRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.flush_requests import FlushRequest, worse

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


class LoopFlushes:
    """The :class:`LoopFlush` of each event loop that waits. Takes what that takes."""

    def __init__(self, put_request: Callable[[int], FlushRequest], timeout_s: Callable[[], float]) -> None:
        self._put_request, self._timeout_s = put_request, timeout_s
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopFlush] = WeakKeyDictionary()

    def until(self, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """As :meth:`LoopFlush.until`, for the running event loop."""
        loop = asyncio.get_running_loop()
        of_loop = self._of_loops.get(loop)
        if of_loop is None:
            of_loop = self._of_loops[loop] = LoopFlush(self._put_request, self._timeout_s)
        return of_loop.until(end_offset)

    def until_both(self, slaves: LoopFlushes, end_offset: int) -> asyncio.Future[PutMessageStatus]:
        """As :meth:`until`, for this flush and the acknowledgements of ``slaves``; the worse outcome counts."""
        return _both(self.until(end_offset), slaves.until(end_offset))


def _both(
    on_disk: asyncio.Future[PutMessageStatus], at_slaves: asyncio.Future[PutMessageStatus]
) -> asyncio.Future[PutMessageStatus]:
    """A future of both outcomes. The error of the sync completes it at once."""
    both: asyncio.Future[PutMessageStatus] = asyncio.get_running_loop().create_future()

    def done(_: asyncio.Future[PutMessageStatus]) -> None:
        if both.done():
            return
        if on_disk.done() and (error := on_disk.exception()) is not None:
            both.set_exception(error)
        elif on_disk.done() and at_slaves.done():
            both.set_result(worse(at_slaves.result(), on_disk.result()))

    on_disk.add_done_callback(done)
    at_slaves.add_done_callback(done)
    return both
