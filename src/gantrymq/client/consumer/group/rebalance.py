"""Rebalancing: a member's share of the queues, computed again when members or queues change.

It also watches the queues of a topic for changes, for lite-pull consumers.

Source: RebalanceService, RebalanceImpl.doRebalance, MQClientInstance.updateTopicRouteInfoFromNameServer,
DefaultLitePullConsumerImpl.fetchTopicMessageQueuesAndCompareLoop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from gantrymq.client.consumer.group.member import Division, GroupMember
from gantrymq.client.namespace import RETRY_PREFIX
from gantrymq.client.runtime.background import wait_or_timeout
from gantrymq.client.runtime.logged_once import LoggedOnce
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue

# Called with a topic and its queues when they have changed.
TopicMessageQueueChangeListener = Callable[[str, frozenset[MessageQueue]], None]

log = get_logger("gantrymq.client.consumer")
WAIT_SECONDS = 20.0  # rocketmq.client.rebalance.waitInterval
SOON_SECONDS = 1.0  # rocketmq.client.rebalance.minInterval: the interval after a failure
_MISSING_ROUTE_SECONDS = 2.0  # RocketMQ looks for a missing topic only every 30 s


class QueueWatch:
    """Calls one listener for each topic when the queues that ``fetch`` returns have changed.

    Thread rule: the event loop's thread.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[tuple[MessageQueue, ...]]], interval_ms: int) -> None:
        self._fetch, self._interval_s = fetch, interval_ms / 1000
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that have a listener."""
        return list(self._listeners)

    def register(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """Set the listener of a topic, in place of an earlier one."""
        self._listeners[topic] = listener

    def follow(self, topic: str) -> Coroutine[None, None, None]:
        """A coroutine that calls the topic's current listener.

        It ends when the listener is replaced.
        """
        return self._notify(topic, self._listeners[topic])

    async def _notify(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        before: frozenset[MessageQueue] | None = None
        while self._listeners[topic] is listener:
            try:
                queues = frozenset(await self._fetch(topic))
                if queues != before:
                    before = queues
                    listener(topic, queues)
            except GantrymqError as error:
                log.warning("the queues of a topic are not known", topic=topic, reason=str(error))
            except Exception as error:  # an error of the user's listener does not end the watch
                log.error("a listener for the queues of a topic failed", topic=topic, exc_info=error)
            await asyncio.sleep(self._interval_s)


# Applies a division. Returns whether exactly its queues are held now.
Apply = Callable[[Division], Awaitable[bool]]


class Rebalancing:
    """Divides every topic again when the group or a route changes, and every 20 s.

    ``topics`` returns the topics, ``divide`` computes a division, ``apply`` takes it over. ``keep_topics`` is called
    before each round with the current topics.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        member: GroupMember,
        topics: Callable[[], set[str]],
        divide: Callable[[str], Awaitable[Division | None]],
        apply: Apply,
        keep_topics: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        self._member, self._topics, self._divide = member, topics, divide
        self._apply, self._keep_topics = apply, keep_topics
        self.wanted = asyncio.Event()
        self.suspended = False
        self._dividing = asyncio.Lock()
        self._told = LoggedOnce()
        self._missing: set[str] = set()

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            balanced = self.suspended or await self.once()
            await wait_or_timeout(self.wanted, WAIT_SECONDS if balanced else SOON_SECONDS)

    async def once(self) -> bool:
        """Divide every topic. Returns whether all divisions were applied. Concurrent calls wait for each other."""
        async with self._dividing:
            return await self._round()

    async def _round(self) -> bool:
        await self._keep_topics(self._topics())
        balanced = True
        for topic in sorted(self._topics()):
            try:
                division = await self._divide(topic)
                if division is not None:
                    balanced &= await self._apply(division)
            except Exception as error:
                expected = isinstance(error, GantrymqError)
                if self._told.is_due(("divided", topic), str(error)):
                    log.warning("a topic was not divided", topic=topic, reason=str(error), exc_info=not expected)
                balanced = False
            else:
                self._told.is_over(("divided", topic))
        return balanced

    async def follow_routes(self) -> None:
        """Refresh the routes every ``poll_name_server_interval_ms``, and every 2 s those of topics that have none.

        A topic whose queues changed is divided at once. Runs until cancelled.
        """
        loop = asyncio.get_running_loop()
        interval_s = self._member.config.poll_name_server_interval_ms / 1000
        due = loop.time() + interval_s
        while True:
            await asyncio.sleep(min(_MISSING_ROUTE_SECONDS, interval_s))
            topics = sorted(self._topics())
            if loop.time() >= due:
                due = loop.time() + interval_s
            else:
                topics = [topic for topic in topics if not self._member.queues(topic)]
            for topic in topics:
                await self._refresh(topic)

    def note_route(self, topic: str, *, is_there: bool) -> None:
        """Warn once that a subscribed topic does not exist, and log when it does."""
        if topic.startswith(RETRY_PREFIX):  # created when the first message fails
            return
        if not is_there and topic not in self._missing:
            self._missing.add(topic)
            log.warning("a topic that is subscribed does not exist; it is looked for every 2 s", topic=topic)
        elif is_there and topic in self._missing:
            self._missing.discard(topic)
            log.info("a topic that is subscribed exists now", topic=topic)

    async def _refresh(self, topic: str) -> None:
        before = self._member.queues(topic)
        try:
            route = await self._member.find_route(topic)
        except GantrymqError as error:  # refusals of a name server too, because the next attempt may succeed
            if self._told.is_due(("route", topic), str(error)):
                log.warning("a route was not found", topic=topic, reason=str(error))
            return
        self.note_route(topic, is_there=route is not None)
        if self._member.queues(topic) != before:
            self.wanted.set()
