"""Counts the messages of each queue that a group has popped and not acknowledged.

The counts are for the limit of enablePopMessageThreshold alone. They begin at 0 with a start, and do not count down for
what was popped before it.

Thread rule: the event loop's thread.

Source: PopInflightMessageCounter.
"""

from __future__ import annotations

from gantrymq.broker.pop.buffer import PoppedQueue


class InflightMessages:
    """Counts of popped messages by queue. ``began_ms`` is when the broker started."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._counts: dict[PoppedQueue, int] = {}

    def count(self, queue: PoppedQueue) -> int:
        """How many messages of a queue are popped and not acknowledged."""
        return self._counts.get(queue, 0)

    def add(self, queue: PoppedQueue, count: int) -> None:
        """Messages were popped."""
        self._counts[queue] = self._counts.get(queue, 0) + count

    def settle(self, queue: PoppedQueue, pop_time_ms: int, count: int = 1) -> None:
        """Messages were acknowledged, or put into the retry topic."""
        if pop_time_ms < self._began_ms or queue not in self._counts:
            return
        self._counts[queue] -= count
        if self._counts[queue] <= 0:
            del self._counts[queue]

    def clear(self, queue: PoppedQueue) -> None:
        """Forget a queue."""
        self._counts.pop(queue, None)

    def forget(self, topic: str = "", group: str = "") -> None:
        """A topic or a group was deleted."""
        for queue in [one for one in self._counts if topic == one.topic or group == one.group]:
            del self._counts[queue]
