"""An event loop in its own thread, on which the blocking clients run their asynchronous counterparts.

A client that is dropped without ``close()`` ends its thread and connections when it is collected or when the
interpreter exits, and raises a ResourceWarning.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import finalize

from gantrymq.client.runtime.own_process import OwnProcess
from gantrymq.errors import MQClientError
from gantrymq.logs import get_logger

log = get_logger("gantrymq.client")

T = TypeVar("T")


_CANCEL_AGAIN_SECONDS = 0.1
_AT_EXIT_SECONDS = 5.0


@dataclass(slots=True)
class _Call(Generic[T]):
    """A coroutine, and the task that runs it once the loop has started it."""

    work: Coroutine[Any, Any, T]
    task: asyncio.Task[T] | None = None


class LoopThread:
    """Runs coroutines in its own thread.

    Thread rule: any thread. In the loop's thread, where callbacks of futures run too, a call that would wait raises
    MQClientError. A signal handler may call it during another call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=f"gantrymq-{name}", daemon=True)
        self._thread.start()
        # Nothing is started after closing begins. Reentrant, because a signal handler may close it during a call.
        self._lock = threading.RLock()
        self._closed = False
        self._closer = 0
        self._ended = threading.Event()
        self._process = OwnProcess(name)
        self._posted: deque[Callable[[], None]] = deque()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine. Raises MQClientError after the close.

        The future raises it if the loop is closed before the coroutine ends.
        """
        return self._begin(_Call(work))

    def post(self, act: Callable[[], None]) -> None:
        """Call ``act`` in the loop's thread, without waiting; it must not raise. Raises MQClientError after the close.

        Many calls share one wake-up of the loop, which costs a system call and a switch of threads.
        """
        self._process.check()
        with self._lock:
            if self._closed:
                raise MQClientError(f"the {self._name} is closed")
            self._posted.append(act)
            if len(self._posted) > 1:
                return
            try:
                self._loop.call_soon_threadsafe(self._act_posted)
            except RuntimeError as error:  # a signal handler closed it after the check of _closed
                raise MQClientError(f"the {self._name} is closed") from error

    def _act_posted(self) -> None:
        """Do what was posted. Each entry stays until it is done: a thread that finds one need not wake the loop."""
        for _ in range(len(self._posted)):
            self._posted[0]()
            self._posted.popleft()
        if self._posted:
            self._loop.call_soon(self._act_posted)

    def _begin(self, call: _Call[T]) -> Future[T]:
        try:
            self._process.check()
            with self._lock:
                if self._closed:
                    raise MQClientError(f"the {self._name} is closed")
                work = self._until_closed(call)
                try:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
                except RuntimeError as error:  # a signal handler closed it after the check of _closed
                    work.close()
                    raise MQClientError(f"the {self._name} is closed") from error
        except MQClientError:
            call.work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T], *, undo: Callable[[T], None] | None = None) -> T:
        """Run a coroutine and return its result, or raise its exception.

        If the caller is interrupted, by a signal for example, the coroutine is cancelled. If it has already finished,
        ``undo`` gets its result, in the loop's thread. The interruption may come before there is a future to cancel.
        """
        self._check_thread(work)
        call = _Call(work)
        try:
            return self._begin(call).result()
        except BaseException:
            with suppress(MQClientError):  # closed meanwhile: there is no result to undo
                self.submit(_abandon(call, undo))
            raise

    def do(self, act: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread; return its result or raise its exception."""

        async def work() -> T:
            return act()

        return self.run(work())

    def make(self, made: Callable[[], T]) -> T:
        """As :meth:`do`, for the object that this thread serves. If it cannot be made, the thread ends."""
        try:
            return self.do(made)
        except BaseException:
            self.close(_nothing())
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run ``last``, cancel all other tasks, then end the thread. Raises what ``last`` raises.

        A second call waits for the first, unless it interrupts the first in the same thread, as in a signal handler:
        then it returns at once. In a forked process the call has no effect.
        """
        if self._process.is_here:
            self._check_thread(last)
        if self._begin_closing(last, threading.get_ident()):
            self._finish(last)
        elif self._process.is_here and self._closer != threading.get_ident():
            self._ended.wait()

    def close_beside(self, last: Coroutine[Any, Any, None]) -> None:
        """As :meth:`close`, in a thread of its own; returns at once. The program does not exit before that thread ends.

        For callers that ``last`` waits for, such as a listener that closes its consumer. An exception of ``last`` is
        logged.
        """
        if self._begin_closing(last, 0):
            name = f"{self._thread.name}-closing"
            threading.Thread(target=self._finish_logged, args=(last,), name=name, daemon=False).start()

    def abandon(self, last: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], None] | None = None) -> bool:
        """Begin to close for an owner that was collected, without waiting. Returns whether it was open.

        ``then`` is called in the loop's thread after the last task. Thread rule: any thread.
        """
        if not self._process.is_here or not self._begin_closing(None, 0):
            return False

        def begin() -> None:
            ending = self._loop.create_task(_end_with(last))
            ending.add_done_callback(lambda done: self._abandoned(done, then))

        self._loop.call_soon_threadsafe(begin)
        return True

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait until the close has ended, at most ``timeout_s`` seconds; returns whether it has."""
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
        except Exception as error:  # no caller waits for the result
            log.error("closing a client failed", client=self._name, exc_info=error)

    def _abandoned(self, ending: asyncio.Task[None], then: Callable[[], None] | None) -> None:
        if not ending.cancelled() and ending.exception() is not None:
            log.error("closing a client failed", client=self._name, exc_info=ending.exception())
        if then is not None:
            then()
        self._loop.stop()
        self._ended.set()

    def check_open(self) -> None:
        """Raise MQClientError if it is closed, or if this process is a fork of the one that made it."""
        self._process.check()
        if self._closed:
            raise MQClientError(f"the {self._name} is closed")

    def check_not_current(self) -> None:
        """Raise MQClientError if the caller runs in the loop's thread, where it would wait for itself."""
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
    """The thread's main function.

    It references the loop but not the client, so that a dropped client can be collected.
    """
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
    """Cancel a call whose caller was interrupted.

    The loop runs this after the call was submitted, so a call without a task never began.
    """
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
    """Cancel all other tasks until none is left.

    A task that swallows its cancellation is cancelled again every 0.1 s.
    """
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_SECONDS)


Owner = TypeVar("Owner")


def close_when_dropped(
    owner: Owner,
    loop: LoopThread,
    last: Callable[[], Coroutine[Any, Any, None]],
    then: Callable[[], None] | None = None,
    *,
    at_exit: bool = True,
) -> finalize[..., Owner]:
    """Once ``owner`` is collected, run ``last`` in the loop's thread, end the thread, and call ``then``.

    ``last`` and ``then`` must not reference ``owner``. A log line and a ResourceWarning name the class that was not
    closed. With ``at_exit`` the interpreter's exit closes it too and waits up to 5 s, so that pending sends leave and
    offsets are committed.
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
        _warn_dropped(kind)
        if not threading.main_thread().is_alive():
            loop.wait_ended(_AT_EXIT_SECONDS)


def end_when_dropped(owner: Owner, last: Callable[[], Coroutine[Any, Any, None]]) -> finalize[..., Owner]:
    """The same for a client on the running event loop: once ``owner`` is collected, ``last`` runs there as a task."""
    finalizer = finalize(owner, _ended, type(owner).__name__, asyncio.get_running_loop(), last)
    finalizer.atexit = False
    return finalizer


def _ended(kind: str, loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and with it all connections
        loop.call_soon_threadsafe(_begin, loop, last)
    _warn_dropped(kind)


def _begin(loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.create_task(last())  # has a time limit of its own, and the objects it waits for keep it alive


def _warn_dropped(kind: str) -> None:
    log.warning("a client was dropped without close(): it is closed now", client=kind)
    warnings.warn(f"{kind} was dropped without close(); use `with`, or call close()", ResourceWarning, stacklevel=3)
