"""What a put of a thread waits with, for a flush or for slaves. Coroutines: :mod:`gantrymq.store.loop_flush`.

A request uses one raw lock instead of a ``concurrent.futures.Future``: with sixteen producers, creating, awaiting and
waking futures was most of the cost of a put.

Thread rule: any thread.

Source: CommitLog.GroupCommitRequest.
"""

from __future__ import annotations

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


def worse(at_slaves: PutMessageStatus, on_disk: PutMessageStatus) -> PutMessageStatus:
    """Of the outcomes of both waits the one that counts: FLUSH_SLAVE_TIMEOUT more than FLUSH_DISK_TIMEOUT."""
    return on_disk if at_slaves is PutMessageStatus.PUT_OK else at_slaves
