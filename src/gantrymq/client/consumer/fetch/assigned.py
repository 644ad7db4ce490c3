"""The queues assigned to a member: their locks at the brokers, their starting offsets, and the pulled messages.

Source: RebalanceImpl (updateProcessQueueTableInRebalance, lock, lockAll, unlock, unlockAll), RebalancePushImpl
(removeUnnecessaryMessageQueue, computePullFromWhereWithException), RebalanceLitePullImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Generic

from gantrymq.client.consumer.fetch.process_queue import AssignedQueue, Q
from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.consumer.group.offsets import OffsetStore
from gantrymq.client.consumer.settings import ConsumeFromWhere
from gantrymq.client.namespace import RETRY_PREFIX
from gantrymq.client.requests import calls
from gantrymq.client.requests.group_calls import lock_batch, unlock_batch
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.clock import monotonic_ms
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue

LOCK_INTERVAL_SECONDS = 20.0  # rocketmq.client.rebalance.lockInterval
_TIMEOUT_MS = 1000

log = get_logger("gantrymq.client.consumer")
UNLOCK_AT_LATEST_MS = 20_000  # rocketmq.client.unlockDelayTimeMills
_IDLE_WITHIN_SECONDS = 0.5
_IDLE_LOOK_SECONDS = 0.02


class QueueLocks:
    """Takes, renews and releases locks. A broker expires a lock after 60 s; this client trusts it for 30 s."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def lock(self, queues: Iterable[AssignedQueue]) -> bool:
        """Take or renew the locks of these queues. Returns whether all of them are held."""
        done = await asyncio.gather(*(self._lock(part) for part in _by_broker(queues)))
        return all(done)

    async def unlock(self, queues: Iterable[AssignedQueue]) -> None:
        """Release locks. If a broker does not answer, its locks expire."""
        await asyncio.gather(*(self._unlock(part) for part in _by_broker(queues)))

    async def _lock(self, queues: list[AssignedQueue]) -> bool:
        call = lock_batch(self._member.group, self._member.client_id, [queue.queue for queue in queues])
        try:
            locked = await self._member.ask(queues[0].queue, call, _TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("queues were not locked", broker=queues[0].queue.broker_name, reason=str(error))
            return False
        for queue in queues:
            queue.locked = queue.queue in locked
            if queue.locked:
                queue.last_lock_ms = monotonic_ms(self._member.clock)
        return all(queue.locked for queue in queues)

    async def _unlock(self, queues: list[AssignedQueue]) -> None:
        call = unlock_batch(self._member.group, self._member.client_id, [queue.queue for queue in queues])
        for queue in queues:
            queue.locked = False
        try:
            await self._member.ask(queues[0].queue, call, _TIMEOUT_MS)
        except GantrymqError as error:
            log.warning("queues were not unlocked", broker=queues[0].queue.broker_name, reason=str(error))


def _by_broker(queues: Iterable[AssignedQueue]) -> list[list[AssignedQueue]]:
    brokers: dict[str, list[AssignedQueue]] = {}
    for queue in queues:
        brokers.setdefault(queue.queue.broker_name, []).append(queue)
    return list(brokers.values())


async def starting_offset(member: GroupMember, offsets: OffsetStore, queue: MessageQueue) -> int:
    """The group's committed offset, or the offset by ``consume_from_where`` if there is none.

    Raises GantrymqError if the offset store or the broker does not answer: any other offset would lose or repeat
    messages.
    """
    stored = await offsets.read_from_store(queue)
    if stored is not None and stored >= 0:
        offsets.update(queue, stored)
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    where = member.config.consume_from_where
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0  # the broker corrects it if the first messages are deleted
    if where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return 0 if is_retry else await member.ask(queue, calls.max_offset(queue))
    if is_retry:
        return await member.ask(queue, calls.max_offset(queue))
    timestamp_ms = member.config.parse_consume_timestamp(member.clock.now_ms())
    return await member.ask(queue, calls.search_offset(queue, timestamp_ms))


# Pulls a queue from an offset until the queue is dropped.
Pull = Callable[[Q, int], Coroutine[Any, Any, None]]


class AssignedQueues(Generic[Q]):
    """Takes over the queues of a division, and releases all others. ``make`` makes the object of a queue.

    With ``locks`` a queue is taken over only after its broker has locked it, and released only when no listener works
    on it. ``changed`` is called after a change, before the new queues are pulled.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        make: Callable[[MessageQueue, int], Q],
        member: GroupMember,
        offsets: OffsetStore,
        locks: QueueLocks | None,
        pull: Pull[Q],
        changed: Callable[[Division], Awaitable[None]],
    ) -> None:
        self._make, self._member, self._offsets, self._locks = make, member, offsets, locks
        self._pull, self._changed = pull, changed
        self._pulls: dict[Q, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()
        self._adopting: set[Q] = set()
        self._told = LoggedOnce()
        self.table: dict[MessageQueue, Q] = {}

    async def take_over(self, division: Division) -> bool:
        """Apply a division. Returns whether exactly its queues are held now."""
        changed, complete = False, True
        now_ms = monotonic_ms(self._member.clock)
        for queue in [state for state in self.table.values() if state.queue.topic == division.topic]:
            if queue.queue not in division.mine or queue.dropped or queue.is_pull_expired(now_ms):
                given_up = await self.give_up(queue)
                changed, complete = changed or given_up, complete and given_up
        fresh = []
        for wanted in sorted(division.mine - self.table.keys()):
            adopted = await self._adopt(wanted)
            if adopted is None:
                complete = False
            else:
                fresh.append(adopted)
        if changed or fresh:
            log.info("queues changed", topic=division.topic, mine=[queue.queue_id for queue in sorted(division.mine)])
            await self._notify(division)
        for queue, offset in fresh:
            if not queue.dropped:  # a seek restarted it meanwhile, or its topic was unsubscribed
                self.begin(queue, offset)
        return complete

    async def keep_topics(self, topics: Iterable[str]) -> None:
        """Release the queues of all other topics."""
        kept_topics = set(topics)
        for queue in [state for state in self.table.values() if state.queue.topic not in kept_topics]:
            await self.give_up(queue)

    def begin(self, queue: Q, offset: int) -> None:
        """Pull a queue from an offset. An earlier object of the same queue is dropped."""
        before = self.table.get(queue.queue)
        if before is not None and before is not queue:
            self._drop(before)
        self.table[queue.queue] = queue
        self._pulls[queue] = self._tasks.start(self._pull(queue, offset))

    def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Restart a queue at an offset. Returns False if it is no longer assigned."""
        before = self.table.get(queue)
        if before is None or before.dropped:
            return False
        after = self._make(queue, monotonic_ms(self._member.clock))
        after.position, after.paused = offset, before.paused
        self.begin(after, offset)
        return True

    async def give_up(self, queue: Q, *, is_taken_again: bool = False) -> bool:
        """Persist the offset of a queue and release it.

        Returns False if a listener still has messages of an orderly queue.

        With ``is_taken_again`` this consumer is about to take the queue over again, so the call waits for the broker's
        answer. Without that, the broker's threads may handle the next query of the offset before the one-way update.
        """
        self._drop(queue)
        if self._locks is not None and not await self._may_unlock(queue):
            queue.try_unlock_times += 1
            return False
        with suppress(GantrymqError):  # already logged
            await self._offsets.persist([queue.queue], wait=is_taken_again)
        self._offsets.forget(queue.queue)
        queue.released = True
        if self._locks is not None:
            await self._locks.unlock([queue])
        if self.table.get(queue.queue) is queue:
            del self.table[queue.queue]
        return True

    async def close(self) -> None:
        """Stop all pulling. The queues stay in the table, because their offsets are persisted after this."""
        await self._tasks.close()

    async def unlock(self) -> None:
        """Release all locks at the end, including those whose request is still under way."""
        if self._locks is not None:
            await self._locks.unlock([*self.table.values(), *self._adopting])

    async def _adopt(self, wanted: MessageQueue) -> tuple[Q, int] | None:
        queue = self._make(wanted, monotonic_ms(self._member.clock))
        self._adopting.add(queue)  # stays there after a cancellation, because the broker may have granted the lock
        offset = await self._lock_and_begin(queue)
        if offset is not None:
            self.table[wanted] = queue
        self._adopting.remove(queue)
        return None if offset is None else (queue, offset)

    async def _lock_and_begin(self, queue: Q) -> int | None:
        if self._locks is not None and not await self._locks.lock([queue]):
            if self._told.is_due(queue.queue, "locked"):
                log.info("a queue is locked by another consumer", queue=str(queue.queue))
            return None
        try:
            self._offsets.forget(queue.queue)
            offset = await starting_offset(self._member, self._offsets, queue.queue)
            self._told.is_over(queue.queue)
            return offset
        except GantrymqError as error:
            if self._told.is_due(queue.queue, str(error)):
                log.warning("a queue was not taken over", queue=str(queue.queue), reason=str(error))
            if self._locks is not None:
                await self._locks.unlock([queue])
            return None

    async def _notify(self, division: Division) -> None:
        try:
            await self._changed(division)
        except Exception as error:  # an error of the user's listener does not undo the assignment
            log.error("a listener for changed queues failed", topic=division.topic, exc_info=error)

    def _drop(self, queue: Q) -> None:
        queue.dropped = True
        task = self._pulls.pop(queue, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _may_unlock(self, queue: Q) -> bool:
        for _ in range(int(_IDLE_WITHIN_SECONDS / _IDLE_LOOK_SECONDS)):
            if not queue.in_listener:
                return True
            await asyncio.sleep(_IDLE_LOOK_SECONDS)
        return monotonic_ms(self._member.clock) > queue.last_lock_ms + UNLOCK_AT_LATEST_MS
