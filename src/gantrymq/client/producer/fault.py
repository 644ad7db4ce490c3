"""Chooses the queue of each message, and avoids brokers that were slow or failed.

Times are milliseconds of a monotonic clock.

Source: MQFaultStrategy, LatencyFaultToleranceImpl, TopicPublishInfo.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from gantrymq.model.message_queue import MessageQueue

# A broker whose latency reaches _LATENCY_MAX_MS[i] is avoided for _NOT_AVAILABLE_MS[i] milliseconds.
_LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15_000)
_NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10_000, 30_000)
_ISOLATION_MS = 10_000


class MQFaultStrategy:
    """Takes queues in turn. A retry goes to another broker than the last one if there is another.

    With ``latency_fault_enable`` (sendLatencyFaultEnable) a broker that was slow or failed is avoided for a while, as
    long as another one remains.
    """

    def __init__(self, *, latency_fault_enable: bool = False) -> None:
        self._enabled = latency_fault_enable
        self._turn = random.randrange(1 << 16)
        self._usable_from_ms: dict[str, int] = {}

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None, now_ms: int) -> MessageQueue:
        """The queue for the next message. ``queues`` must not be empty."""
        if self._enabled:
            usable = self._first(
                queues, lambda name: name != last_broker and self._usable_from_ms.get(name, 0) <= now_ms
            )
            if usable is not None:
                return usable
        other = self._first(queues, lambda name: name != last_broker)
        return other if other is not None else queues[self._next() % len(queues)]

    def update(self, broker: str, latency_ms: int, now_ms: int, *, isolate: bool = False) -> None:
        """Record the latency of a broker. ``isolate`` means that it did not answer, or refused."""
        if self._enabled:
            self._usable_from_ms[broker] = now_ms + _not_available_ms(_ISOLATION_MS if isolate else latency_ms)

    def _first(self, queues: Sequence[MessageQueue], fits: Callable[[str], bool]) -> MessageQueue | None:
        for _ in queues:
            queue = queues[self._next() % len(queues)]
            if fits(queue.broker_name):
                return queue
        return None

    def _next(self) -> int:
        self._turn += 1
        return self._turn


def _not_available_ms(latency_ms: int) -> int:
    levels = zip(reversed(_LATENCY_MAX_MS), reversed(_NOT_AVAILABLE_MS), strict=True)
    return next((pause_ms for level_ms, pause_ms in levels if latency_ms >= level_ms), 0)
