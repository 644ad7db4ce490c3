"""Values of brokers and name servers that are kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gantrymq.errors import GantrymqError

_MISSING_KEPT_S = 1.0


class Cache:
    """At most ``max_values`` values by key, each fresh for ``fresh_s``. Callers of one key wait for the same lookup.

    A value that cannot be looked up again stays until it is ``expired_s`` old. Thread rule: the event loop's thread.
    """

    def __init__(self, fresh_s: float, max_values: int, expired_s: float = float("inf")) -> None:
        self._fresh_s, self._max_values, self._expired_s = fresh_s, max_values, expired_s
        self._values: dict[str, tuple[Any, float, float]] = {}
        self._lookups: dict[str, asyncio.Task[Any]] = {}

    async def get(self, key: str, look: Callable[[], Any]) -> Any:
        """The value; ``look`` makes a coroutine that finds it. If it raises and there is an old value, that stays."""
        cached = self._values.get(key)
        if cached is not None and time.monotonic() < cached[1]:
            return cached[0]
        task = self._lookups.get(key)
        if task is None:
            task = self._lookups[key] = asyncio.ensure_future(look())
            task.add_done_callback(lambda done: self._done(key, done))
        try:
            return await asyncio.shield(task)
        except GantrymqError:
            if cached is None or time.monotonic() >= cached[2]:
                raise
            return cached[0]

    def forget(self) -> None:
        """Look all values up again at their next use. Old values stay for lookups that fail."""
        self._values = {key: (value, 0.0, expired_s) for key, (value, _, expired_s) in self._values.items()}

    def _done(self, key: str, task: asyncio.Task[Any]) -> None:
        self._lookups.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        if key not in self._values and len(self._values) >= self._max_values:
            del self._values[next(iter(self._values))]
        value, now_s = task.result(), time.monotonic()
        fresh_s = _MISSING_KEPT_S if value is None else self._fresh_s
        self._values[key] = value, now_s + fresh_s, now_s + self._expired_s
