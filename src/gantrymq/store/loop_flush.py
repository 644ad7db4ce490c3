"""Those of one event loop who wait for the disk: all of one turn are one request, and are told in one turn.

Sixteen threads that wait for the disk hand the interpreter's lock from one to the next for each message; sixteen
coroutines cost a sync two changes of thread in all (``make bench BENCH_ARGS=SYNC_FLUSH``).

Thread rule: the event loop's thread.

Source: CommitLog.asyncPutMessage, whose CompletableFuture is finished by GroupCommitService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gantrymq.model.status import PutMessageStatus
from gantrymq.store.group_commit import FlushRequest

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
