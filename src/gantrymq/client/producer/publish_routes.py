"""The routes of a producer: by topic, refreshed every 30 s, and the route by which a new topic is created.

Source: DefaultMQProducerImpl.tryToFindTopicPublishInfo, MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass

from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.namespace import without_namespace
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.client.requests.calls import topic_route
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.runtime.background import BackgroundTasks
from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, MQClientError, NoRouteError, RemotingError, RemotingTooMuchRequestError
from gantrymq.logs import get_logger
from gantrymq.remoting.bodies.route import TopicRouteData

POLL_NAME_SERVER_SECONDS = 30.0  # pollNameServerInterval
_MOMENT_SECONDS = 0.1
_ASK_AGAIN_SECONDS = 1.0

log = get_logger("gantrymq.client.producer")


@dataclass(slots=True)
class _Known:
    route: TopicRoute  # of the topic, or of the brokers that would create it
    asked_s: float
    exists: bool  # whether the topic existed at the last request
    is_asked_for: bool = False


class PublishRoutes:
    """Routes with the queues to send to, named without the namespace. Thread rule: the event loop's thread."""

    def __init__(self, client: AsyncClient, config: ProducerConfig, clock: Clock) -> None:
        self._client, self._config, self._clock = client, config, clock
        self._known: dict[str, _Known] = {}
        self._first: dict[str, asyncio.Task[_Known]] = {}
        self._tasks = BackgroundTasks()
        self._followed: set[str] = set()

    async def find(self, topic: str, timeout_ms: int | None = None) -> TopicRoute:
        """The route of a topic; if it has none yet, the route of the brokers that would create it.

        A known route stays in use while no name server gives another. A route older than 30 s is refreshed in the
        background; senders wait for the refresh at most 0.1 s.

        Raises MQClientError if there is no route, and RemotingTooMuchRequestError if the first one does not arrive in
        time.
        """
        known = self._known.get(topic)
        if known is None:
            return await self._find_first(topic, timeout_ms)
        if not known.is_asked_for and self._clock.monotonic_s() - known.asked_s >= POLL_NAME_SERVER_SECONDS:
            known.is_asked_for = True
            await asyncio.wait({self._tasks.start(self._renew(topic, known))}, timeout=_MOMENT_SECONDS)
        return known.route

    async def find_existing(self, topic: str) -> TopicRoute:
        """The route of a topic that a name server knows (fetchPublishMessageQueues).

        Raises MQClientError if the topic does not exist, even if its first message would create it.
        """
        known = self._known.get(topic)
        if known is not None and known.exists:
            route = await self.find(topic)
            if known.exists:  # ``find`` may have refreshed it
                return route
        data = await self._client.ask_name_server(topic_route(topic))
        if data is None:
            raise NoRouteError(f"No route info of this topic: {topic}: no name server knows it (yet)")
        route = self._published(topic, data)
        self._known[topic] = _Known(route, self._clock.monotonic_s(), exists=True)
        return route

    async def _find_first(self, topic: str, timeout_ms: int | None) -> TopicRoute:
        """The first route of a topic. Concurrent senders share one request, and each has its own time limit."""
        asking = self._first.get(topic)
        if asking is None:
            asking = self._first[topic] = asyncio.get_running_loop().create_task(self._learn(topic))
            asking.add_done_callback(_retrieved)
        await asyncio.wait({asking}, timeout=None if timeout_ms is None else timeout_ms / 1000)
        if not asking.done():
            raise RemotingTooMuchRequestError(f"no name server returned the route of {topic} within {timeout_ms} ms")
        if asking.cancelled():
            raise MQClientError("the producer was closed meanwhile")
        return asking.result().route

    async def _learn(self, topic: str) -> _Known:
        try:
            route, exists = await self._ask(topic)
            known = self._known[topic] = _Known(route, self._clock.monotonic_s(), exists)
            return known
        finally:
            del self._first[topic]

    async def _renew(self, topic: str, known: _Known) -> None:
        try:
            known.route, known.exists = await self._ask(topic)
        except GantrymqError as error:
            log.warning("the known route of a topic stays in use", topic=topic, reason=str(error))
        finally:
            known.asked_s, known.is_asked_for = self._clock.monotonic_s(), False

    def follow(self, topics: Iterable[str]) -> None:
        """Keep the routes of topics known: :meth:`masters` has their brokers before a message goes there."""
        fresh = tuple(topic for topic in topics if topic not in self._followed)
        if fresh:
            self._followed.update(fresh)
            self._tasks.start(self._follow(fresh))

    async def _follow(self, topics: tuple[str, ...]) -> None:
        while True:
            rest_s = POLL_NAME_SERVER_SECONDS
            for topic in topics:
                try:
                    await self.find(topic)
                except RemotingError:  # no name server answers
                    rest_s = _ASK_AGAIN_SECONDS
                except MQClientError as error:
                    log.info("a topic has no route", topic=topic, reason=str(error))
            await asyncio.sleep(rest_s)

    async def close(self) -> None:
        """Cancel all requests."""
        for asking in list(self._first.values()):
            asking.cancel()
        await self._tasks.close()

    def forget(self, topic: str) -> None:
        """Ask the name server again before the topic's next send."""
        if topic in self._known:
            self._known[topic].asked_s = -math.inf

    def masters(self) -> set[str]:
        """The addresses of all masters to which messages were sent or may be sent."""
        return {address for known in self._known.values() for address in known.route.masters.values()}

    async def _ask(self, topic: str) -> tuple[TopicRoute, bool]:
        """The route to send by, and whether the topic itself exists."""
        data = await self._client.ask_name_server(topic_route(topic))
        exists = data is not None
        if data is None:
            data = await self._client.ask_name_server(topic_route(self._config.create_topic_key))
            if data is None:
                raise NoRouteError(
                    f"No route info of this topic: {topic}, and no broker creates topics automatically "
                    f"({self._config.create_topic_key} has no route)"
                )
            _limit_queues(data, self._config.default_topic_queue_nums)
        return self._published(topic, data), exists

    def _published(self, topic: str, data: TopicRouteData) -> TopicRoute:
        route = TopicRoute.of(without_namespace(self._config.namespace, topic), data)
        if not route.publish:
            raise NoRouteError(f"No route info of this topic: {topic}: no broker that has it accepts sends")
        return route


def _retrieved(asking: asyncio.Task[_Known]) -> None:
    """Read the exception of a lookup without callers, so that asyncio does not warn that it was never retrieved."""
    if not asking.cancelled():
        asking.exception()


def _limit_queues(data: TopicRouteData, max_queues: int) -> None:
    for queue_data in data.queue_datas:
        queue_data.read_queue_nums = queue_data.write_queue_nums = min(max_queues, queue_data.read_queue_nums)
