"""An event loop in a thread of its own, on which the blocking clients run their asynchronous counterparts.

A client that is dropped without ``close()`` ends its thread and connections when it is collected or the interpreter
ends, and raises a ResourceWarning.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import finalize

from gantrymq.client.own_process import OwnProcess
from gantrymq.errors import MQClientError
from gantrymq.logs import get_logger

log = get_logger("gantrymq.client")

T = TypeVar("T")


_TELL_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class _Call(Generic[T]):
    """A coroutine, and the task it runs in once the loop has come to it."""

    work: Coroutine[Any, Any, T]
    task: asyncio.Task[T] | None = None


class LoopThread:
    """Runs coroutines one thread away.

    Thread rule: any thread. In its own, where callbacks of futures run too, what would wait raises MQClientError. A
    handler of a signal may call it in the midst of another call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=f"gantrymq-{name}", daemon=True)
        self._thread.start()
        # Nothing is begun after what closing begins. Reentrant, for a signal's handler may close it within a call.
        self._lock = threading.RLock()
        self._closed = False
        self._closer = 0
        self._ended = threading.Event()
        self._process = OwnProcess(name)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine. Raises MQClientError once all is closed; so does the future if it is under way then."""
        return self._begin(_Call(work))

    def _begin(self, call: _Call[T]) -> Future[T]:
        try:
            self._process.check()
            with self._lock:
                if self._closed:
                    raise MQClientError(f"the {self._name} is closed")
                work = self._until_closed(call)
                try:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
                except RuntimeError as error:  # a signal's handler closed it since the look at _closed
                    work.close()
                    raise MQClientError(f"the {self._name} is closed") from error
        except MQClientError:
            call.work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T], *, undo: Callable[[T], None] | None = None) -> T:
        """A coroutine's result, or what it raises.

        Where the caller is interrupted, as by a signal, the coroutine is cancelled; where that comes too late, ``undo``
        gets what nobody else will, in the loop's thread. A signal may strike before there is a future to cancel, too.
        """
        self._check_thread(work)
        call = _Call(work)
        try:
            return self._begin(call).result()
        except BaseException:
            with suppress(MQClientError):  # all is closed: nobody gets anything
                self.submit(_abandon(call, undo))
            raise

    def do(self, act: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread; what it returns or raises."""

        async def work() -> T:
            return act()

        return self.run(work())

    def make(self, made: Callable[[], T]) -> T:
        """As :meth:`do`, for what the thread is there for: it ends where that cannot be made."""
        try:
            return self.do(made)
        except BaseException:
            self.close(_nothing())
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run what is left to do, end what is still under way, then the thread; what ``last`` raises is raised.

        A second call waits for the first; where the first was interrupted by the second, as by a signal's handler, the
        second leaves it to the first. After a fork it is for the process that made it.
        """
        if self._process.is_here:
            self._check_thread(last)
        if self._begin_closing(last, threading.get_ident()):
            self._finish(last)
        elif self._process.is_here and self._closer != threading.get_ident():
            self._ended.wait()

    def close_beside(self, last: Coroutine[Any, Any, None]) -> None:
        """As :meth:`close`, in a thread of its own; returns at once. A program that ends waits for that thread.

        For callers that ``last`` waits for: a listener closes its consumer. What ``last`` raises is logged.
        """
        if self._begin_closing(last, 0):
            name = f"{self._thread.name}-closing"
            threading.Thread(target=self._finish_logged, args=(last,), name=name, daemon=False).start()

    def abandon(self, last: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], None] | None = None) -> bool:
        """Close it for an owner that was collected; nothing waits, and any thread may call it. Whether it was open.

        ``then`` is called in the thread once its loop has ended.
        """
        if not self._process.is_here or not self._begin_closing(None, 0):
            return False

        def begin() -> None:
            ending = self._loop.create_task(_end_with(last))
            ending.add_done_callback(lambda done: self._abandoned(done, then))

        self._loop.call_soon_threadsafe(begin)
        return True

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait until what closing or abandoning began has ended; whether it did in time."""
        return self._ended.wait(timeout_s)

    def _begin_closing(self, last: Coroutine[Any, Any, None] | None, closer: int) -> bool:
        with self._lock:
            first = self._process.is_here and not self._closed
            if first:
                self._closed, self._closer = True, closer
        if not first and last is not None:
            last.close()
        return first

    def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(last, self._loop).result()
        finally:
            try:
                asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._ended.set()

    def _finish_logged(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            self._finish(last)
        except Exception as error:  # the caller is gone
            log.error("the end of a client failed", client=self._name, exc_info=error)

    def _abandoned(self, ending: asyncio.Task[None], then: Callable[[], None] | None) -> None:
        if not ending.cancelled() and ending.exception() is not None:
            log.error("the end of a client failed", client=self._name, exc_info=ending.exception())
        if then is not None:
            then()
        self._loop.stop()
        self._ended.set()

    def check_open(self) -> None:
        """Raise MQClientError where it is closed, or was made before a fork."""
        self._process.check()
        if self._closed:
            raise MQClientError(f"the {self._name} is closed")

    def check_not_current(self) -> None:
        """Raise MQClientError where the caller runs in this thread, and would wait for itself."""
        if self.is_current:
            raise MQClientError(f"a call that blocks, within the {self._name}'s own thread, would wait for itself")

    def _check_thread(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.check_not_current()
        except MQClientError:
            work.close()
            raise

    async def _until_closed(self, call: _Call[T]) -> T:
        call.task = asyncio.current_task()
        try:
            return await call.work
        except asyncio.CancelledError as error:
            if not self._closed:
                raise
            raise MQClientError(f"the {self._name} was closed meanwhile") from error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """A thread's work: it holds the loop and not who is served, so that what is dropped can be collected."""
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _nothing() -> None: ...


async def _end_with(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await last()
    finally:
        await _end_all()


async def _abandon(call: _Call[T], undo: Callable[[T], None] | None) -> None:
    """Nobody waits for a call any more. The loop takes this up behind it: what has no task by now was never begun."""
    task = call.task
    if task is None:
        call.work.close()
        return
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if undo is not None and not task.cancelled() and task.exception() is None:
        undo(task.result())


async def _end_all() -> None:
    """Cancel every other task until there is none. One that swallows its cancellation is told again."""
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_TELL_AGAIN_SECONDS)


_AT_EXIT_SECONDS = 5.0

Owner = TypeVar("Owner")


def close_when_dropped(
    owner: Owner,
    loop: LoopThread,
    last: Callable[[], Coroutine[Any, Any, None]],
    then: Callable[[], None] | None = None,
    *,
    at_exit: bool = True,
) -> finalize[..., Owner]:
    """Once ``owner`` is collected, let ``last`` run in the thread and end it; ``then`` is called at the end.

    Neither may lead to ``owner``. A line of the log and a ResourceWarning name what was not closed. With ``at_exit``
    the end of the program closes it as well, and waits a few seconds for that: what was sent leaves, what was consumed
    is committed.
    """
    finalizer = finalize(owner, _dropped, type(owner).__name__, loop, last, then)
    finalizer.atexit = at_exit
    return finalizer


def _dropped(
    kind: str,
    loop: LoopThread,
    last: Callable[[], Coroutine[Any, Any, None]],
    then: Callable[[], None] | None,
) -> None:
    if loop.abandon(last, then):
        _say(kind)
        if not threading.main_thread().is_alive():
            loop.wait_ended(_AT_EXIT_SECONDS)


def end_when_dropped(owner: Owner, last: Callable[[], Coroutine[Any, Any, None]]) -> finalize[..., Owner]:
    """The same for one on the running event loop: once ``owner`` is collected ``last`` runs there as a task."""
    finalizer = finalize(owner, _ended, type(owner).__name__, asyncio.get_running_loop(), last)
    finalizer.atexit = False
    return finalizer


def _ended(kind: str, loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and all that it had with it
        loop.call_soon_threadsafe(_begin, loop, last)
    _say(kind)


def _begin(loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.create_task(last())  # what it waits for has a time limit, and holds it


def _say(kind: str) -> None:
    log.warning("a client was dropped without close(): it is closed now", client=kind)
    warnings.warn(f"{kind} was dropped without close(); use `with`, or call close()", ResourceWarning, stacklevel=3)
