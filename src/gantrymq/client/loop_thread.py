"""An event loop in a thread of its own: what the plain faces of asynchronous clients run on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gantrymq.client.own_process import OwnProcess
from gantrymq.errors import MQClientError

T = TypeVar("T")


_TELL_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class _Call(Generic[T]):
    """A coroutine, and the task it runs in once the loop has come to it."""

    work: Coroutine[Any, Any, T]
    task: asyncio.Task[T] | None = None


class LoopThread:
    """Runs coroutines one thread away.

    Thread rule: any thread. In its own, where callbacks of futures run too, what would wait raises MQClientError.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gantrymq-{name}", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()  # so that nothing is begun behind what closing begins
        self._closed = False
        self._process = OwnProcess(name)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine. Raises MQClientError once all is closed; so does the future if it is under way then."""
        return self._begin(_Call(work))

    def _begin(self, call: _Call[T]) -> Future[T]:
        try:
            self._process.check()
            with self._lock:
                if self._closed:
                    raise MQClientError(f"the {self._name} is closed")
                return asyncio.run_coroutine_threadsafe(self._until_closed(call), self._loop)
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

        Twice is once; and after a fork it is for the process that made it.
        """
        if not self._process.is_here:
            last.close()
            return
        self._check_thread(last)
        with self._lock:
            first, self._closed = not self._closed, True
        if not first:
            last.close()
            return
        try:
            asyncio.run_coroutine_threadsafe(last, self._loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _check_thread(self, work: Coroutine[Any, Any, Any]) -> None:
        if threading.current_thread() is self._thread:
            work.close()
            raise MQClientError(f"a call that blocks, within the {self._name}'s own thread, would wait for itself")

    async def _until_closed(self, call: _Call[T]) -> T:
        call.task = asyncio.current_task()
        try:
            return await call.work
        except asyncio.CancelledError as error:
            if not self._closed:
                raise
            raise MQClientError(f"the {self._name} was closed meanwhile") from error


async def _nothing() -> None: ...


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
