"""Runs a listener: a plain function in threads, a coroutine function on the loop.

Source: ConsumeMessageConcurrentlyService and ConsumeMessageOrderlyService, their thread pools.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from gantrymq.client.consumer.received import ReceivedMessage

C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

# Told what the listener returned, or what it raised.
Done = Callable[[S | None, BaseException | None], None]
# Gets messages and their context; a coroutine function may be given too.
Listener = Callable[[Sequence[ReceivedMessage], C], S | Awaitable[S | None] | None]


class Listening(Protocol[C_contra, S_co]):
    """Calls a listener, so many times at once. Thread rule: the event loop's thread."""

    def submit(
        self, messages: Sequence[ReceivedMessage], context: C_contra, begin: Callable[[], bool], done: Done[S_co]
    ) -> None:
        """Call it when there is room, unless ``begin``, called right before, says no; then ``done`` is not called."""
        ...

    async def close(self, timeout_s: float) -> bool:
        """Begin nothing more; whether those under way ended in time."""
        ...


class ThreadedListening(Generic[C, S]):
    """A plain function, in at most so many threads. ``done`` is called on the loop, for many results at once."""

    def __init__(self, listener: Callable[[Sequence[ReceivedMessage], C], S | None], most: int, name: str) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"ConsumeMessageThread_{name[:100]}")
        self._results: deque[tuple[Done[S], S | None, BaseException | None]] = deque()
        self._waking = self._closing = False

    def submit(self, messages: Sequence[ReceivedMessage], context: C, begin: Callable[[], bool], done: Done[S]) -> None:
        """Call the listener in a thread."""
        if not self._closing:
            self._pool.submit(self._work, messages, context, begin, done)

    async def close(self, timeout_s: float) -> bool:
        """Begin nothing more, and wait; whether those under way ended in time."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        ended = asyncio.ensure_future(asyncio.to_thread(self._pool.shutdown))
        done, _ = await asyncio.wait([ended], timeout=timeout_s)
        self._deliver()
        return bool(done)

    def _work(self, messages: Sequence[ReceivedMessage], context: C, begin: Callable[[], bool], done: Done[S]) -> None:
        if self._closing or not begin():
            return
        try:
            self._results.append((done, self._listener(messages, context), None))
        except BaseException as error:  # whatever it is, the message was not consumed
            self._results.append((done, None, error))
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._waking = False  # before the first look: who adds a result behind it wakes us again
        while self._results:
            done, status, error = self._results.popleft()
            done(status, error)


class CoroutineListening(Generic[C, S]):
    """A coroutine function, so many at once."""

    def __init__(self, listener: Callable[[Sequence[ReceivedMessage], C], Awaitable[S | None]], most: int) -> None:
        self._listener = listener
        self._room = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def submit(self, messages: Sequence[ReceivedMessage], context: C, begin: Callable[[], bool], done: Done[S]) -> None:
        """Call the listener in a task."""
        task = asyncio.get_running_loop().create_task(self._work(messages, context, begin, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> bool:
        """Begin nothing more, and wait; those that do not end in time are cancelled."""
        self._closing = True
        tasks = set(self._tasks)
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    async def _work(
        self, messages: Sequence[ReceivedMessage], context: C, begin: Callable[[], bool], done: Done[S]
    ) -> None:
        async with self._room:
            if self._closing or not begin():
                return
            try:
                status = await self._listener(messages, context)
            except Exception as error:
                done(None, error)
            else:
                done(status, None)


def listening(listener: Listener[C, S], most: int, name: str) -> Listening[C, S]:
    """The way that fits the listener; on a running loop."""
    called = listener if inspect.isroutine(listener) else type(listener).__call__
    if inspect.iscoroutinefunction(called):
        return CoroutineListening(listener, most)  # type: ignore[arg-type]
    return ThreadedListening(listener, most, name)  # type: ignore[arg-type]
