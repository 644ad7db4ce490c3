"""The seam between the gRPC protocol and brokers: all that a call needs of them.

:mod:`gantrymq.grpc.brokers.local` asks a broker of the same process, :mod:`gantrymq.grpc.brokers.cluster` the brokers
of a cluster over remoting. Everything else in :mod:`gantrymq.grpc` is the same for both.

Source: ServiceManager, MessageService, MetadataService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from gantrymq.grpc.protocol.caller import Caller
from gantrymq.remoting.bodies.client import HeartbeatData
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.route import BrokerData, QueueData
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.command import RemotingCommand

MESSAGE_TYPE_ATTRIBUTE = "message.type"

# Called with a request of a broker to a client. Returns the response, or None for a one-way request.
FromBroker = Callable[[RemotingCommand], Awaitable[RemotingCommand | None]]


@dataclass(frozen=True, slots=True)
class QueueRoute:
    """Where a topic is: its queues at each broker, and the brokers' addresses."""

    queues: list[QueueData]
    brokers: list[BrokerData]


class Exchange(Protocol):
    """A request to a broker that is under way."""

    @property
    def response(self) -> asyncio.Future[RemotingCommand]:
        """The broker's response. Raises RemotingError."""
        ...

    def withdraw(self) -> None:
        """Say that the client has gone. A request that waits for messages need not be answered any more."""
        ...


class ClientLink(Protocol):
    """The membership of one client at brokers, which send it requests of their own."""

    async def heart_beat(self, caller: Caller, data: HeartbeatData) -> RemotingCommand:
        """Register the client's groups. Returns the first response that is not a success, or a success."""
        ...

    def close(self) -> None:
        """Remove the client from its groups."""
        ...


class Brokers(Protocol):
    """What the calls need of brokers: of the one in this process, or of a cluster.

    Thread rule: the event loop's thread.
    """

    @property
    def max_body_bytes(self) -> int:
        """The limit for the body of a message, in bytes; 0: without a limit."""
        ...

    async def route(self, caller: Caller, topic: str) -> QueueRoute | None:
        """The route of a topic, or None if there is no such topic."""
        ...

    async def topic(self, caller: Caller, name: str) -> TopicConfig | None:
        """The configuration of a topic, or None if there is no such topic."""
        ...

    async def group(self, caller: Caller, name: str) -> SubscriptionGroupConfig | None:
        """The configuration of a consumer group, or None if there is no such group."""
        ...

    def begin(self, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int) -> Exchange:
        """Send a request to the master of a broker. Raises CallError for an unknown broker."""
        ...

    def link(self, caller: Caller, from_broker: FromBroker, unread_bytes: Callable[[], int]) -> ClientLink:
        """Open a membership. ``unread_bytes`` is how much the client has not read of what was sent to it."""
        ...


async def ask(
    brokers: Brokers, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int
) -> RemotingCommand:
    """Send a request to a broker, and wait for its response."""
    return await brokers.begin(caller, broker_name, command, timeout_ms).response


def message_type_of(topic: TopicConfig | None) -> str:
    """The name of the type of messages that a topic takes; UNSPECIFIED without a topic."""
    return "UNSPECIFIED" if topic is None else topic.attributes.get(MESSAGE_TYPE_ATTRIBUTE, "NORMAL")
