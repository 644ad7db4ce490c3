"""How far the connected consumer groups are behind, by group and topic.

The offsets are in tables of the event loop's thread, and are copied in slices of it. What needs a file is done on a
thread afterwards: the store time of one message a queue, and an estimate of how many messages match a tag filter. No
other part of the store is read.

- A group without connected consumers has no lag here, as in RocketMQ: its subscriptions are not known.
- With a tag filter the number is an estimate: up to ``maxConsumeQueueScan`` units of the queue are tested, and the
  share that matches is applied to the rest. With an SQL92 filter all messages count, because only their records could
  tell. (RocketMQ reads them.)
- RocketMQ first lets a waiting pop run (enableNotifyBeforePopCalculateLag). Here a pop that waits for a message has
  already been told of every message.

Source: ConsumerLagCalculator, ConsumeQueue.estimateMessageCount.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.sessions.consumers import ConsumerGroup, ConsumerManager, tags_codes
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import queue_ids
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import PERM_READ, PERM_WRITE, LiveConfig
from gantrymq.errors import DiskError
from gantrymq.remoting.transport.turns import in_slices
from gantrymq.store.message_store import MessageStore

POP = "CONSUME_POP"
_NEVER_MS = 1 << 62


class _Queue(NamedTuple):
    """The offsets of a group in a queue: what it has consumed, what was delivered to it, and the end of the queue.

    ``inflight`` is the number of popped messages; -1 for a group that pulls.
    """

    topic: str
    queue_id: int
    consumed: int
    delivered: int
    end: int
    inflight: int


@dataclass(slots=True)
class _TopicGroup:
    """A group on a topic, or on its retry topic for POP, with the offsets of its queues."""

    group: str
    topic: str
    is_retry: bool
    codes: Collection[int] | None
    queues: list[_Queue] = field(default_factory=list)


class GroupLag(NamedTuple):
    """How far a group is behind on a topic. ``is_retry`` is set for the retry topic of a group that pops.

    The latencies are the ages of the oldest messages, in ms, 0 without one.
    """

    group: str
    topic: str
    is_retry: bool
    lag: int
    lag_ms: int
    inflight: int
    queueing_ms: int
    ready: int


class ConsumerLagCalculator:
    """Calculates the lag of all connected groups. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        consumers: ConsumerManager,
        pop: Pop,
    ) -> None:
        self._config, self._clock, self._store, self._consumers = config, clock, store, consumers
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._buffer, self._inflight = pop.buffer, pop.inflight

    async def calculate(self, max_groups: int) -> list[GroupLag]:
        """The lag of at most ``max_groups`` groups on topics."""
        topic_groups: list[_TopicGroup] = []
        async for topic_group, queue in in_slices(self._queues(max_groups)):
            if not topic_groups or topic_groups[-1] is not topic_group:
                topic_groups.append(topic_group)
            if queue is not None:
                topic_group.queues.append(queue)
        now_ms = self._clock.now_ms()
        return await asyncio.get_running_loop().run_in_executor(None, self._lags, topic_groups, now_ms)

    # On the event loop

    def _queues(self, max_groups: int) -> Iterator[tuple[_TopicGroup, _Queue | None]]:
        """The queues of each place. A place comes once without a queue, first, because it may have none."""
        for topic_group, topics, is_pop in islice(self._topic_groups(), max_groups):
            yield topic_group, None
            for topic in topics:
                config = self._topics.get(topic)
                for queue_id in queue_ids(topic, config.write_queue_nums if config is not None else 0):
                    key = PoppedQueue(topic, topic_group.group, queue_id)
                    yield topic_group, self._popped(key) if is_pop else self._pulled(key)

    def _topic_groups(self) -> Iterator[tuple[_TopicGroup, list[str], bool]]:
        """Each place with the topics to count, and whether the group pops."""
        for name in list(self._groups.table):
            group = self._consumers.subscribing(name)
            if group is None:
                continue
            is_pop = group.consume_type == POP
            for topic in list(group.subscriptions):
                if topic.startswith(names.RETRY_PREFIX) or not self._has_permission(topic):
                    continue
                yield _TopicGroup(name, topic, False, self._codes(group, topic)), [topic], is_pop
                if is_pop:
                    yield _TopicGroup(name, topic, True, None), self._retry_topics(topic, name), is_pop

    def _has_permission(self, topic: str) -> bool:
        config = self._topics.get(topic)
        perm = self._config.broker.broker_permission & (PERM_READ | PERM_WRITE)
        return config is not None and config.perm & perm != 0

    def _retry_topics(self, topic: str, group: str) -> list[str]:
        """The retry topics that a pop looks into."""
        broker = self._config.broker
        is_only_v2 = broker.enable_retry_topic_v2 and not broker.retrieve_message_from_pop_retry_topic_v1
        retry_topics = (retry_topic(topic, group, is_v2=is_v2) for is_v2 in ((True,) if is_only_v2 else (True, False)))
        return [name for name in retry_topics if self._has_permission(name)]

    def _codes(self, group: ConsumerGroup, topic: str) -> Collection[int] | None:
        """The tags codes that a group wants of a topic; None if all messages count."""
        subscription = group.subscriptions.get(topic)
        if subscription is None or not self._config.broker.estimate_accumulation:
            return None
        return tags_codes(subscription)

    def _popped(self, queue: PoppedQueue) -> _Queue:
        topic, group, queue_id = queue
        end = self._store.max_offset_in_queue(topic, queue_id)
        delivered = self._buffer.next_offset(queue)
        if delivered < 0:
            delivered = self._offsets.query(group, topic, queue_id)
        if delivered < 0:  # the first pop of a retry topic begins with its first message
            is_retry = topic.startswith(names.RETRY_PREFIX)
            delivered = self._store.min_offset_in_queue(topic, queue_id) if is_retry else end
        inflight = self._inflight.count(queue)
        return _Queue(topic, queue_id, delivered - inflight, delivered, end, inflight)

    def _pulled(self, queue: PoppedQueue) -> _Queue:
        topic, group, queue_id = queue
        end = self._store.max_offset_in_queue(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        delivered = self._offsets.query_pulled(group, topic, queue_id)
        return _Queue(topic, queue_id, consumed, delivered, end, -1)

    # On a thread

    def _lags(self, topic_groups: list[_TopicGroup], now_ms: int) -> list[GroupLag]:
        return [self._lag(topic_group, now_ms) for topic_group in topic_groups]

    def _lag(self, topic_group: _TopicGroup, now_ms: int) -> GroupLag:
        lag = inflight = ready = 0
        oldest_ms = undelivered_ms = _NEVER_MS
        for queue in topic_group.queues:
            delivered = queue.delivered if queue.delivered >= 0 else queue.end
            consumed = queue.consumed if queue.consumed >= 0 else queue.end
            waiting = self._count(queue, delivered, queue.end, topic_group.codes)
            ready += waiting
            if queue.inflight >= 0:
                lag += waiting + queue.inflight
                inflight += queue.inflight
            else:
                lag += self._count(queue, consumed, queue.end, topic_group.codes)
                begin = queue.consumed if queue.consumed >= 0 else max(queue.delivered, 0)
                inflight += self._count(queue, begin, max(queue.delivered, 0), topic_group.codes)
            oldest_ms = min(oldest_ms, self._store_time_ms(queue, consumed))
            undelivered_ms = min(undelivered_ms, self._store_time_ms(queue, delivered))
        return GroupLag(
            topic_group.group,
            topic_group.topic,
            topic_group.is_retry,
            lag,
            max(now_ms - oldest_ms, 0),
            inflight,
            max(now_ms - undelivered_ms, 0),
            ready,
        )

    def _store_time_ms(self, queue: _Queue, offset: int) -> int:
        """When the message at an offset was stored; ``_NEVER_MS`` if there is none, or if it cannot be read."""
        if not 0 <= offset < queue.end:
            return _NEVER_MS
        try:
            stored_ms = self._store.store_timestamp_ms(queue.topic, queue.queue_id, offset)
        except DiskError:
            return _NEVER_MS
        return stored_ms if stored_ms > 0 else _NEVER_MS

    def _count(self, queue: _Queue, begin: int, end: int, codes: Collection[int] | None) -> int:
        """The number of messages from ``begin`` to ``end`` that the group wants; an estimate if there are many."""
        if codes is None or begin >= end:
            return max(end - begin, 0)
        store = self._config.store
        try:
            return self._store.lookup.estimate_matches(
                queue.topic,
                queue.queue_id,
                begin,
                end,
                codes,
                most_units=store.max_consume_queue_scan,
                most_matches=store.sample_count_threshold,
            )
        except DiskError:
            return end - begin
