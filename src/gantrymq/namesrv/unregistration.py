"""Collects the brokers that leave in one iteration of the event loop.

When many leave at once, after a network failure for example, one pass over the topics serves all of them.

Source: BatchUnregistrationService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchUnregistration(Generic[T]):
    """Passes the submitted items to ``flush`` in the same iteration of the event loop, before the answers are sent.

    ``capacity()`` limits the items of one iteration. Thread rule: the event loop's thread.
    """

    def __init__(self, flush: Callable[[list[T]], None], capacity: Callable[[], int]) -> None:
        self._flush, self._capacity = flush, capacity
        self._waiting: list[T] = []

    def submit(self, item: T) -> bool:
        """Add an item. Returns False at the limit (unRegisterBrokerQueueCapacity)."""
        if len(self._waiting) >= self._capacity():
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.drain)
        self._waiting.append(item)
        return True

    def drain(self) -> None:
        """Pass the collected items to ``flush``."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._flush(waiting)
