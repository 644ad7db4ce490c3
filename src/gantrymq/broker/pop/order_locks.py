"""The times at which queues of ordered pops are free again, so that a waiting pop can look at them.

A blocked queue becomes free when its messages are visible again. No arrival reports that, so nothing else would wake
the pop.

Thread rule: the event loop's thread.

Source: QueueLevelConsumerOrderInfoLockManager.
"""

from __future__ import annotations

import heapq

from gantrymq.broker.pop.buffer import PoppedQueue


class OrderLocks:
    """The time in milliseconds at which each blocked queue is free."""

    def __init__(self) -> None:
        self._free_at_ms: dict[PoppedQueue, int] = {}
        self._times: list[tuple[int, PoppedQueue]] = []

    def note(self, topic: str, group: str, queue_id: int, free_at_ms: int) -> None:
        """Set the time at which a queue is free. It replaces an earlier one."""
        queue = PoppedQueue(topic, group, queue_id)
        self._free_at_ms[queue] = free_at_ms
        heapq.heappush(self._times, (free_at_ms, queue))
        if len(self._times) > 2 * len(self._free_at_ms) + 1_000:
            self._times = [(time_ms, queue) for queue, time_ms in self._free_at_ms.items()]
            heapq.heapify(self._times)

    def freed(self, now_ms: int) -> list[PoppedQueue]:
        """The queues that are free since the last call."""
        free = []
        while self._times and self._times[0][0] <= now_ms:
            free_at_ms, queue = heapq.heappop(self._times)
            if self._free_at_ms.get(queue) == free_at_ms:
                del self._free_at_ms[queue]
                free.append(queue)
        return free
