"""Background tasks of a client, and the one task that closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from gantrymq.errors import MQClientError
from gantrymq.logs import get_logger

_CANCEL_AGAIN_SECONDS = 0.1

log = get_logger("gantrymq.client")


class BackgroundTasks:
    """Holds tasks. The exception of a task is logged, because no caller awaits the task.

    Thread rule: the event loop's thread.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task on the running loop.

        Raises MQClientError after :meth:`close`, because nothing would end the task.
        """
        if self._closed:
            work.close()
            raise MQClientError("the client was closed meanwhile")
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def drain(self, timeout_s: float) -> None:
        """Wait for the running tasks, at most ``timeout_s`` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Cancel all tasks, wait for them, and accept no more.

        A task that swallows its cancellation, as asyncio.wait_for may, is cancelled again every 0.1 s.
        """
        self._closed = True
        tasks = {task for task in self._tasks if task is not asyncio.current_task()}
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())


class OnceTask:
    """A coroutine that runs once: all callers wait for the same task.

    A caller that is cancelled, by a time limit for example, stops waiting and does not stop the task. Thread rule: the
    event loop's thread.
    """

    def __init__(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._end = end
        self._task: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether the task has begun."""
        return self._task is not None

    def begin(self) -> asyncio.Task[None]:
        """Begin the task unless it has begun."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._end())
        return self._task

    async def run(self) -> None:
        """Begin the task unless it has begun, and wait for it; raises what it raises."""
        task = self.begin()
        await asyncio.wait({task})
        task.result()


async def wait_or_timeout(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, at most ``timeout_s``, and clear the event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # wait_for swallows a cancellation that coincides with the event
            await event.wait()
    event.clear()
