"""Locks of queues by clients of a group, for orderly consumers.

No I/O; times are arguments. Source: RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.broker.names import MAX_LENGTH as MAX_NAME_LENGTH
from gantrymq.model.message_queue import MessageQueue

LOCK_MAX_LIVE_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
MAX_LOCKS = 100_000  # of all groups; above it no further queue is locked


class RebalanceLockManager:
    """Locks by group and queue. A lock that was not renewed for 60 s is free."""

    def __init__(self, max_live_ms: int = LOCK_MAX_LIVE_MS) -> None:
        self._max_live_ms = max_live_ms
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        self._count = 0

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks. Returns the queues that it has locked (tryLockBatch)."""
        locks = self._groups.get(group, {})
        locked = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held[0] == client_id or self._is_over(held, now_ms):
                if held is None:
                    if self._count >= MAX_LOCKS or max(len(queue.topic), len(queue.broker_name)) > MAX_NAME_LENGTH:
                        continue
                    self._count += 1
                locks[queue] = (client_id, now_ms)
                locked.append(queue)
        if locks:
            self._groups[group] = locks
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of the queues that the client has locked (unlockBatch)."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Remove expired locks of consumers that ended without unlocking."""
        live = {
            group: {queue: held for queue, held in locks.items() if not self._is_over(held, now_ms)}
            for group, locks in self._groups.items()
        }
        self._groups = {group: locks for group, locks in live.items() if locks}
        self._count = sum(map(len, self._groups.values()))

    def is_all_expired(self, group: str, now_ms: int) -> bool:
        """Whether no client of the group holds a lock, so that the group does not consume in order."""
        return all(self._is_over(held, now_ms) for held in self._groups.get(group, {}).values())

    def _is_over(self, held: tuple[str, int], now_ms: int) -> bool:
        return now_ms - held[1] > self._max_live_ms
