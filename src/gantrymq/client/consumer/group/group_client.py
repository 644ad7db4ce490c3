"""A client that is registered in a consumer group: its subscriptions, and the routes of their topics.

Source: MQClientInstance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.connection.heartbeats import Heartbeats
from gantrymq.client.consumer.settings import GroupConfig, MessageModel
from gantrymq.client.namespace import without_namespace, wrap_namespace
from gantrymq.client.requests.calls import Call, topic_route
from gantrymq.client.requests.group_calls import check_client
from gantrymq.client.requests.routes import TopicRoute
from gantrymq.client.requests.subscription import TAG, subscription
from gantrymq.clock import Clock
from gantrymq.errors import MQClientError, RemotingConnectError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantrymq.remoting.transport.channel import ChannelHandler

REQUEST_TIMEOUT_MS = 5000

T = TypeVar("T")


class GroupClient:
    """A client in a group. Topics, groups and queues have their full names here, with the namespace.

    ``consume_type`` is CONSUME_PASSIVELY for push consumers, CONSUME_ACTIVELY for others.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        config: GroupConfig,
        consume_type: str,
        clock: Clock,
        handler: ChannelHandler,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        instance_name: str = "",
    ) -> None:
        self.config, self.clock = config, clock
        self.group = wrap_namespace(config.namespace, config.consumer_group)
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.client = AsyncClient(config, handler)
        self.consume_type = consume_type
        self._message_model = message_model
        self._routes: dict[str, TopicRoute] = {}
        self._sub_version = 0
        self.heartbeats = Heartbeats(self.client, self._beat, self._addresses, instance_name=instance_name)

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
            self.forget(queue.topic, address)
            raise

    def forget(self, topic: str, address: str) -> None:
        """Ask for the route again before the next request, because the broker may have moved.

        Until then queues are allocated by the old route.
        """
        route = self._routes.get(topic)
        if route is not None:
            brokers = {name: broker for name, broker in route.brokers.items() if broker != address}
            self._routes[topic] = replace(route, brokers=brokers)

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

    def _beat(self, client_id: str) -> HeartbeatData:
        data = ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self._message_model.value,
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
