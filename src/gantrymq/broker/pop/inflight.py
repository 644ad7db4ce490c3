"""Counts the messages of each queue that a group has popped and not acknowledged.

Only the limit of enablePopMessageThreshold uses the counts. They are 0 at the start of the broker. An acknowledgement
of a message that was popped before the start is not counted.

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
        """Count popped messages."""
        self._counts[queue] = self._counts.get(queue, 0) + count

    def settle(self, queue: PoppedQueue, pop_time_ms: int, count: int = 1) -> None:
        """Subtract messages that were acknowledged, or put into the retry topic."""
        if pop_time_ms < self._began_ms or queue not in self._counts:
            return
        self._counts[queue] -= count
        if self._counts[queue] <= 0:
            del self._counts[queue]

    def clear(self, queue: PoppedQueue) -> None:
        """Forget a queue."""
        self._counts.pop(queue, None)

    def forget(self, topic: str = "", group: str = "") -> None:
        """Forget the queues of a deleted topic or group."""
        for queue in [queue for queue in self._counts if topic == queue.topic or group == queue.group]:
            del self._counts[queue]
