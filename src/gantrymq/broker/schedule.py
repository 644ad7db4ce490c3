"""Runs a broker's periodic tasks on the event loop, each in its own interval.

Source: the scheduled executors of BrokerController.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gantrymq.logs import get_logger
from gantrymq.service.intervals import sleep_interval

log = get_logger("gantrymq.broker")


class Schedule:
    """Runs tasks until it is stopped. An error is logged, and the task runs again after its interval."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False

    def every(self, name: str, interval_ms: Callable[[], int], do: Callable[[], Awaitable[object] | None]) -> None:
        """Call ``do`` every ``interval_ms()`` milliseconds, for the first time after one interval.

        A changed interval counts within a second.
        """
        self._tasks.append(asyncio.ensure_future(self._run(name, interval_ms, do)))

    async def stop(self) -> None:
        """Stop all tasks and wait for them.

        It also ends a task that swallows its cancellation, as wait_for may before 3.12.
        """
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _run(self, name: str, interval_ms: Callable[[], int], do: Callable[[], Awaitable[object] | None]) -> None:
        while not self._stopped:
            await sleep_interval(interval_ms)
            try:
                awaited = do()
                if awaited is not None:
                    await awaited
            except Exception:
                log.exception("a scheduled task failed", task=name)
