"""Locks on queues at their brokers: one member alone consumes a queue in order.

Source: RebalanceImpl.lock, lockAll, unlock, unlockAll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gantrymq.client.consumer.group_calls import lock_batch, unlock_batch
from gantrymq.client.consumer.member import GroupMember
from gantrymq.client.consumer.process_queue import ProcessQueue
from gantrymq.clock import monotonic_ms
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger

LOCK_INTERVAL_SECONDS = 20.0  # rocketmq.client.rebalance.lockInterval
_TIMEOUT_MS = 1000

log = get_logger("gantrymq.client.consumer")


class QueueLocks:
    """Takes, renews and gives back locks. A broker takes a lock back after 60 s, we trust it for 30."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def lock(self, queues: Iterable[ProcessQueue]) -> bool:
        """Take or renew the locks of these queues; whether all of them are ours now."""
        done = await asyncio.gather(*(self._lock(part) for part in _by_broker(queues)))
        return all(done)

    async def unlock(self, queues: Iterable[ProcessQueue]) -> None:
        """Give locks back; a broker that does not answer takes them back by itself."""
        await asyncio.gather(*(self._unlock(part) for part in _by_broker(queues)))

    async def _lock(self, queues: list[ProcessQueue]) -> bool:
        call = lock_batch(self._member.group, self._member.client_id, [one.queue for one in queues])
        try:
            locked = await self._member.ask(queues[0].queue, call, _TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("queues were not locked", broker=queues[0].queue.broker_name, reason=str(error))
            return False
        for one in queues:
            one.locked = one.queue in locked
            if one.locked:
                one.last_lock_ms = monotonic_ms(self._member.clock)
        return all(one.locked for one in queues)

    async def _unlock(self, queues: list[ProcessQueue]) -> None:
        call = unlock_batch(self._member.group, self._member.client_id, [one.queue for one in queues])
        for one in queues:
            one.locked = False
        try:
            await self._member.ask(queues[0].queue, call, _TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("queues were not unlocked", broker=queues[0].queue.broker_name, reason=str(error))


def _by_broker(queues: Iterable[ProcessQueue]) -> list[list[ProcessQueue]]:
    brokers: dict[str, list[ProcessQueue]] = {}
    for one in queues:
        brokers.setdefault(one.queue.broker_name, []).append(one)
    return list(brokers.values())
