"""Brokers that leave, gathered for one turn of the event loop.

When many go at once, a rack or a network, the topics are looked through once for all of them.

Source: BatchUnregistrationService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchUnregistration(Generic[T]):
    """Hands what was submitted to ``flush`` at the end of the turn, before an answer to whoever submitted leaves.

    ``capacity()`` bounds what one turn takes. Thread rule: the event loop's thread.
    """

    def __init__(self, flush: Callable[[list[T]], None], capacity: Callable[[], int]) -> None:
        self._flush, self._capacity = flush, capacity
        self._waiting: list[T] = []

    def submit(self, one: T) -> bool:
        """Take one more; False where too many wait (unRegisterBrokerQueueCapacity)."""
        if len(self._waiting) >= self._capacity():
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.drain)
        self._waiting.append(one)
        return True

    def drain(self) -> None:
        """Hand over what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._flush(waiting)
