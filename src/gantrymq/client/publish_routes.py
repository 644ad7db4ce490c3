"""Where a producer sends: routes by topic, asked for anew every 30 s, and the one that makes a new topic.

Source: DefaultMQProducerImpl.tryToFindTopicPublishInfo, MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import structlog

from gantrymq.client.async_client import AsyncClient
from gantrymq.client.calls import topic_route
from gantrymq.client.producer_settings import ProducerConfig
from gantrymq.client.routes import TopicRoute
from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.remoting.bodies.route import TopicRouteData

POLL_NAME_SERVER_SECONDS = 30.0  # pollNameServerInterval

log = structlog.get_logger()


@dataclass(slots=True)
class _Known:
    route: TopicRoute
    asked_s: float


class PublishRoutes:
    """Routes with the queues to send to. Thread rule: the event loop's thread."""

    def __init__(self, client: AsyncClient, config: ProducerConfig, clock: Clock) -> None:
        self._client, self._config, self._clock = client, config, clock
        self._known: dict[str, _Known] = {}
        self._asking = asyncio.Lock()

    async def find(self, topic: str) -> TopicRoute:
        """The route of a topic; where there is none yet, of the brokers that would make it.

        A route that is known stays in use while no name server gives another. Raises MQClientError where there is none.
        """
        fresh = self._fresh(topic)
        if fresh is not None:
            return fresh
        async with self._asking:  # of many who begin to send at once, one asks
            return self._fresh(topic) or await self._find(topic)

    def _fresh(self, topic: str) -> TopicRoute | None:
        known = self._known.get(topic)
        is_fresh = known is not None and self._clock.monotonic_s() - known.asked_s < POLL_NAME_SERVER_SECONDS
        return known.route if known is not None and is_fresh else None

    async def _find(self, topic: str) -> TopicRoute:
        known = self._known.get(topic)
        try:
            route = await self._ask(topic)
        except GantrymqError as error:
            if known is None:
                raise
            log.warning("the known route of a topic stays in use", topic=topic, reason=str(error))
            route = known.route
        self._known[topic] = _Known(route, self._clock.monotonic_s())
        return route

    def forget(self, topic: str) -> None:
        """Ask for a route anew when it is needed next."""
        if topic in self._known:
            self._known[topic].asked_s = -math.inf

    def masters(self) -> set[str]:
        """The addresses of all brokers that messages were, or may be, sent to."""
        return {address for known in self._known.values() for address in known.route.masters.values()}

    async def _ask(self, topic: str) -> TopicRoute:
        data = await self._client.ask_name_server(topic_route(topic))
        if data is None:
            data = await self._client.ask_name_server(topic_route(self._config.create_topic_key))
            if data is None:
                raise MQClientError(
                    f"No route info of this topic: {topic}, and no broker makes topics by itself "
                    f"({self._config.create_topic_key} has no route)"
                )
            _limit_queues(data, self._config.default_topic_queue_nums)
        route = TopicRoute.of(topic, data)
        if not route.publish:
            raise MQClientError(f"No route info of this topic: {topic}")
        return route


def _limit_queues(data: TopicRouteData, most: int) -> None:
    for one in data.queue_datas:
        one.read_queue_nums = one.write_queue_nums = min(most, one.read_queue_nums)
