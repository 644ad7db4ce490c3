"""A member of a consumer group that has a share of the queues.

Source: MQClientInstance, RebalanceImpl.rebalanceByTopic.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeVar

from gantrymq.client.consumer.group.group_client import GroupClient
from gantrymq.client.consumer.settings import ConsumerConfig, MessageModel
from gantrymq.client.namespace import RETRY_PREFIX, wrap_namespace
from gantrymq.client.requests.calls import Call
from gantrymq.client.requests.group_calls import consumer_ids, query_assignment
from gantrymq.clock import Clock
from gantrymq.errors import MQBrokerError, MQClientError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import MessageQueueAssignment
from gantrymq.remoting.transport.channel import ChannelHandler

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Division:
    """The queues of a topic, and those of them that are assigned to this member."""

    topic: str
    all: tuple[MessageQueue, ...]
    mine: frozenset[MessageQueue]


class GroupMember(GroupClient):
    """A group member with its share of the queues. See :class:`GroupClient`.

    Thread rule: the event loop's thread.
    """

    config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, consume_type: str, clock: Clock, handler: ChannelHandler) -> None:
        model = config.message_model
        instance = "" if model is MessageModel.CLUSTERING else config.instance_name
        super().__init__(config, consume_type, clock, handler, message_model=model, instance_name=instance)
        self.retry_topic = f"{RETRY_PREFIX}{self.group}"

    @property
    def is_clustering(self) -> bool:
        """Whether the members share the messages."""
        return self.config.message_model is MessageModel.CLUSTERING

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic now, without the namespace. Raises MQClientError if the topic does not exist."""
        route = await self.find_route(wrap_namespace(self.config.namespace, topic))
        if route is None:
            raise MQClientError(f"The topic[{topic}] not exist")
        return tuple(map(self.shown, route.subscribe))

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

    async def assignments(self, topic: str) -> list[MessageQueueAssignment] | None:
        """The queues of a topic that a broker assigns to this member. None if it does not know.

        Raises RemotingError or MQBrokerError.
        """
        strategy = self.config.allocate_message_queue_strategy.name
        call = query_assignment(self.group, topic, self.client_id, strategy, self.config.message_model.value)
        return await self._ask_any(topic, call)

    async def _consumer_ids(self, topic: str) -> list[str]:
        return await self._ask_any(topic, consumer_ids(self.group)) or []

    async def _ask_any(self, topic: str, call: Call[T]) -> T | None:
        """The answer of the first broker of a topic that gives one. None if the topic has no brokers."""
        route = self.route(topic)
        addresses = list(route.brokers.values()) if route is not None else []
        random.shuffle(addresses)
        failed: Exception | None = None
        for address in addresses:
            try:
                return await self.client.call(address, call)
            except (RemotingError, MQBrokerError) as error:
                failed = error
        if failed is not None:
            raise failed
        return None
