"""A member of a consumer group: its subscriptions, their routes, and its share of the queues.

Source: MQClientInstance, RebalanceImpl.rebalanceByTopic.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from gantrymq.client.async_client import AsyncClient
from gantrymq.client.calls import Call, topic_route
from gantrymq.client.consumer.group_calls import check_client, consumer_ids
from gantrymq.client.consumer.settings import ConsumerConfig, MessageModel
from gantrymq.client.consumer.subscription import TAG, subscription
from gantrymq.client.heartbeats import Heartbeats
from gantrymq.client.namespace import RETRY_PREFIX, without_namespace, wrap_namespace
from gantrymq.client.routes import TopicRoute
from gantrymq.clock import Clock
from gantrymq.errors import MQBrokerError, MQClientError, RemotingConnectError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantrymq.remoting.transport.channel import ChannelHandler

REQUEST_TIMEOUT_MS = 5000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Division:
    """The queues of a topic, and those of them that are assigned to this member."""

    topic: str
    all: tuple[MessageQueue, ...]
    mine: frozenset[MessageQueue]


class GroupMember:
    """A group member. Topics, groups and queues have their full names here, with the namespace.

    ``consume_type`` is CONSUME_PASSIVELY for push consumers, CONSUME_ACTIVELY for others.

    Thread rule: the event loop's thread.
    """

    def __init__(self, config: ConsumerConfig, consume_type: str, clock: Clock, handler: ChannelHandler) -> None:
        self.config, self.clock = config, clock
        self.group = wrap_namespace(config.namespace, config.consumer_group)
        self.retry_topic = f"{RETRY_PREFIX}{self.group}"
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.client = AsyncClient(config, handler)
        self.consume_type = consume_type
        self._routes: dict[str, TopicRoute] = {}
        self._sub_version = 0
        instance = "" if self.is_clustering else config.instance_name
        self.heartbeats = Heartbeats(self.client, self._beat, self._addresses, instance_name=instance)

    @property
    def is_clustering(self) -> bool:
        """Whether the members share the messages."""
        return self.config.message_model is MessageModel.CLUSTERING

    @property
    def client_id(self) -> str:
        """The id of this member at the brokers and for the other members."""
        return self.heartbeats.client_id

    async def close(self) -> None:
        """Leave the group and close all connections."""
        await self.heartbeats.close(consumer_group=self.group)
        await self.client.close()

    # Subscriptions

    def subscribe(self, topic: str, expression: str, expression_type: str = TAG) -> SubscriptionData:
        """Subscribe to a topic. The next heartbeat tells the brokers."""
        full = wrap_namespace(self.config.namespace, topic)
        made = self.subscriptions[full] = subscription(full, expression, expression_type, self._next_version())
        return made

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self.subscriptions.pop(wrap_namespace(self.config.namespace, topic), None)

    def topics(self) -> set[str]:
        """The subscribed topics."""
        return set(self.subscriptions)

    def renew(self, topic: str) -> None:
        """Give a subscription a new version, because the brokers' copy must be replaced."""
        if topic in self.subscriptions:
            self.subscriptions[topic].sub_version = self._next_version()

    def _next_version(self) -> int:
        """The time in milliseconds, as in RocketMQ, but above every earlier version.

        Brokers ignore a subscription with an older version than the one they have.
        """
        self._sub_version = max(self.clock.now_ms(), self._sub_version + 1)
        return self._sub_version

    async def check_filters(self) -> None:
        """Ask a broker of each topic whose filter is not by tags whether it supports it.

        Raises MQBrokerError if not.
        """
        for topic, wanted in self.subscriptions.items():
            route = self._routes.get(topic)
            if wanted.expression_type != TAG and route is not None and route.brokers:
                address = next(iter(route.brokers.values()))
                await self.client.call(address, check_client(self.client_id, self.group, wanted))

    # Routes

    async def find_route(self, topic: str) -> TopicRoute | None:
        """Ask for a topic's route and cache it. Returns None if the name server does not know the topic."""
        data = await self.client.ask_name_server(topic_route(topic))
        if data is None:
            return None
        route = self._routes[topic] = TopicRoute.of(topic, data)
        return route

    def route(self, topic: str) -> TopicRoute | None:
        """The cached route of a topic."""
        return self._routes.get(topic)

    async def needed_route(self, queue: MessageQueue) -> TopicRoute:
        """The route of a queue's topic, asked for if it is not cached. Raises MQClientError if there is none."""
        route = self._routes.get(queue.topic)
        if route is None or queue.broker_name not in route.brokers:
            route = await self.find_route(queue.topic)
        if route is None or queue.broker_name not in route.brokers:
            raise MQClientError(f"The broker[{queue.broker_name}] not exist")
        return route

    async def ask(self, queue: MessageQueue, call: Call[T], timeout_ms: int = REQUEST_TIMEOUT_MS) -> T:
        """Send a request to the broker of a queue. Raises RemotingError, MQBrokerError or MQClientError."""
        address = (await self.needed_route(queue)).address(queue)
        try:
            return await self.client.call(address, call, timeout_ms)
        except RemotingConnectError:
            self._forget(queue.topic, address)
            raise

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic now, without the namespace. Raises MQClientError if the topic does not exist."""
        route = await self.find_route(wrap_namespace(self.config.namespace, topic))
        if route is None:
            raise MQClientError(f"The topic[{topic}] not exist")
        return tuple(map(self.shown, route.subscribe))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The readable queues of a topic; empty if it has no route."""
        route = self._routes.get(topic)
        return route.subscribe if route is not None else ()

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue with its topic's name without the namespace."""
        return MessageQueue(without_namespace(self.config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def full(self, queue: MessageQueue) -> MessageQueue:
        """The inverse of :meth:`shown`."""
        return MessageQueue(wrap_namespace(self.config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    # The other members

    async def divide(self, topic: str) -> Division | None:
        """The share of this member of the queues of a topic. None if the topic or the group's members are not known.

        Raises RemotingError, MQBrokerError, or whatever the strategy raises.
        """
        queues = tuple(sorted(self.queues(topic)))
        if not queues:
            return None
        if not self.is_clustering:
            return Division(topic, queues, frozenset(queues))
        clients = sorted(await self._consumer_ids(topic))
        if not clients:
            return None
        share = self.config.allocate_message_queue_strategy.allocate(self.client_id, queues, clients)
        return Division(topic, queues, frozenset(share))

    async def _consumer_ids(self, topic: str) -> list[str]:
        route = self._routes[topic]
        addresses = list(route.brokers.values())
        random.shuffle(addresses)
        failed: Exception | None = None
        for address in addresses:
            try:
                return await self.client.call(address, consumer_ids(self.group))
            except (RemotingError, MQBrokerError) as error:
                failed = error
        if failed is not None:
            raise failed
        return []

    def _beat(self, client_id: str) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.config.message_model.value,
            consume_from_where=self.config.consume_from_where.value,
            subscription_data_set=list(self.subscriptions.values()),
        )
        return HeartbeatData(client_id=client_id, consumer_data_set=[data])

    def _addresses(self) -> set[str]:
        return {
            address
            for route in self._routes.values()
            for addresses in route.addresses.values()
            for address in addresses.values()
        }

    def _forget(self, topic: str, address: str) -> None:
        """Ask for the route again before the next request, because the broker may have moved.

        Divide by the old one till then.
        """
        route = self._routes.get(topic)
        if route is not None:
            brokers = {name: one for name, one in route.brokers.items() if one != address}
            self._routes[topic] = TopicRoute(
                topic, route.publish, route.subscribe, route.masters, brokers, route.addresses
            )


async def wait_or_timeout(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, at most ``timeout_s``, and clear the event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):  # wait_for swallows a cancellation that coincides with the event
            await event.wait()
    event.clear()
