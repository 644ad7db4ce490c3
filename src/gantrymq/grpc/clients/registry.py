"""The clients of a proxy: their settings, their telemetry streams, and their membership in groups at the brokers.

A client is known by its id. It is registered when its settings arrive and at each heartbeat, and forgotten when it says
so, or after 120 s without a sign of life. Everything that is kept has a limit (:mod:`gantrymq.grpc.limits`).

Thread rule: the event loop's thread.

Source: GrpcChannelManager, GrpcClientChannel, ClientActivity (registerProducer, registerConsumer).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gantrymq.client.requests.subscription import SQL92, TAG, subscription
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import MQClientError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, ClientLink
from gantrymq.grpc.clients.settings import CONSUMERS, client_settings
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import ClientType, Code, FilterType
from gantrymq.grpc.protocol.status import CallError, refused
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand

_BEHIND_BYTES = 1 << 30  # what a client without a stream has not read, so that a broker asks another client


class Outbox:
    """Commands for one telemetry stream. :meth:`offer` never waits; a stream that is not read loses commands."""

    def __init__(self) -> None:
        self._commands: deque[Any] = deque()
        self._ready, self._sent = asyncio.Event(), asyncio.Event()
        self.is_closed = False
        self.unread_bytes = 0

    def offer(self, command: Any) -> bool:
        """Queue a command. Returns False if the stream is closed, or too much waits."""
        if self.is_closed or len(self._commands) >= limits.MAX_QUEUED_COMMANDS:
            return False
        self._commands.append(command)
        self.unread_bytes += command.ByteSize()
        self._ready.set()
        return True

    async def next(self) -> Any:
        """The next command; None once the outbox is closed."""
        while not self._commands:
            if self.is_closed:
                return None
            self._ready.clear()
            await self._ready.wait()
        command = self._commands.popleft()
        self.unread_bytes -= command.ByteSize()
        self._sent.set()
        return command

    async def emptied(self) -> None:
        """Wait until the stream has taken all commands, or is closed."""
        while self._commands and not self.is_closed:
            self._sent.clear()
            await self._sent.wait()

    def close(self) -> None:
        """End the stream after what is queued."""
        self.is_closed = True
        self._ready.set()
        self._sent.set()


class Client:
    """What is known of one client. ``settings`` are its settings as it sent them, None before they came.

    ``caller`` is its last caller, in whose name the server itself asks brokers. ``group`` is a consumer's group.
    """

    def __init__(self, caller: Caller, now_ms: int) -> None:
        self.caller, self.heard_ms = caller, now_ms
        self.settings: Any = None
        self.has_settings = asyncio.Event()
        self.outbox: Outbox | None = None
        self.link: ClientLink | None = None
        self.has_waited = False
        self.subscriptions: list[SubscriptionData] = []
        self.settings_bytes = 0

    @property
    def group(self) -> str:
        """The consumer group, or an empty text."""
        return str(self.settings.subscription.group.name) if self.settings is not None else ""

    @property
    def is_consumer(self) -> bool:
        """Whether the client's settings are those of a consumer."""
        return self.settings is not None and self.settings.client_type in CONSUMERS

    @property
    def unread_bytes(self) -> int:
        """How much the client has not read of its stream. Without a stream it is more than any limit."""
        return _BEHIND_BYTES if self.outbox is None else self.outbox.unread_bytes

    def tell(self, command: Any) -> bool:
        """Send a command over the telemetry stream. Returns False if there is no stream that is read."""
        return self.outbox is not None and self.outbox.offer(command)


# Called with a request of a broker to a client.
AnswerBroker = Callable[[Client, RemotingCommand], Awaitable[RemotingCommand | None]]


class Clients:
    """All clients by id. ``answer`` takes brokers' requests, ``left`` is called with each client that is forgotten."""

    def __init__(
        self,
        config: GrpcConfig,
        brokers: Brokers,
        clock: Clock,
        answer: AnswerBroker,
        left: Callable[[Client], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._brokers, self._clock, self._answer, self._left = brokers, clock, answer, left
        self._clients: dict[str, Client] = {}
        self._settings_bytes = 0

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def find(self, client_id: str) -> Client | None:
        """The client with this id."""
        return self._clients.get(client_id)

    def of(self, caller: Caller) -> Client:
        """The client of a caller, which is alive. Raises CallError if it belongs to another account."""
        client = self._clients.get(caller.client_id)
        now_ms = monotonic_ms(self._clock)
        if client is None:
            if len(self._clients) >= limits.MAX_CLIENTS:
                raise CallError(Code.TOO_MANY_REQUESTS, f"{limits.MAX_CLIENTS} clients are connected")
            client = self._clients[caller.client_id] = Client(caller, now_ms)
        if client.caller.access_key != caller.access_key:
            raise CallError(Code.UNAUTHORIZED, "the client id belongs to another account")
        client.caller, client.heard_ms = caller, now_ms
        return client

    async def with_settings(self, caller: Caller) -> Client:
        """The client of a caller, once its settings are here. It is returned without them if they do not come.

        A client may ask before its settings arrive, which are on another stream. After a restart of the server it may
        go on without sending them again, so only its first call waits.
        """
        client = self.of(caller)
        if client.settings is None and not client.has_waited:
            try:
                async with asyncio.timeout(limits.SETTINGS_WAIT_S):
                    await client.has_settings.wait()
            except TimeoutError:
                client.has_waited = True
        return client

    # Settings and membership

    def keep_settings(self, client: Client, sent: Any) -> None:
        """Take the settings that a client sends. Raises CallError if they are too large or wrong."""
        size_bytes = sent.ByteSize()
        all_bytes = self._settings_bytes - client.settings_bytes + size_bytes
        if size_bytes > limits.MAX_SETTINGS_BYTES or all_bytes > limits.MAX_ALL_SETTINGS_BYTES:
            raise CallError(Code.BAD_REQUEST, f"settings of {size_bytes} bytes are too large")
        client.subscriptions = _subscriptions(sent, self._clock.now_ms())
        self._settings_bytes, client.settings_bytes = all_bytes, size_bytes
        client.settings = client_settings(self._config, sent)
        client.has_settings.set()

    async def register(self, client: Client, caller: Caller) -> None:
        """Register a client's groups at the brokers. A producer's group has the name of its topic.

        Raises CallError if a broker refuses it.
        """
        data = HeartbeatData(client_id=caller.client_id)
        if client.is_consumer:
            is_simple = client.settings.client_type == ClientType.SIMPLE_CONSUMER
            data.consumer_data_set = [
                ConsumerData(
                    group_name=client.group,
                    consume_type="CONSUME_ACTIVELY" if is_simple else "CONSUME_PASSIVELY",
                    message_model="CLUSTERING",
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                    subscription_data_set=client.subscriptions,
                )
            ]
        else:
            topics = {topic.name for topic in client.settings.publishing.topics}
            data.producer_data_set = [ProducerData(group_name=topic) for topic in sorted(topics)]
        if client.link is None:
            answer = partial(self._answer, client)
            client.link = self._brokers.link(caller, answer, lambda: client.unread_bytes)
        response = await client.link.heart_beat(caller, data)
        if response.code != ResponseCode.SUCCESS:
            raise refused(response)

    def attach(self, client: Client, outbox: Outbox) -> None:
        """Let a new telemetry stream be the client's. An older one ends."""
        if client.outbox is not None and client.outbox is not outbox:
            client.outbox.close()
        client.outbox = outbox

    def detach(self, client: Client, outbox: Outbox) -> None:
        """Note that a stream has ended."""
        if client.outbox is outbox:
            client.outbox = None

    # Ends

    def forget(self, client: Client) -> None:
        """Remove a client, and end its stream and its memberships."""
        if self._clients.get(client.caller.client_id) is not client:
            return
        del self._clients[client.caller.client_id]
        self._settings_bytes -= client.settings_bytes
        if client.outbox is not None:
            client.outbox.close()
        if client.link is not None:
            client.link.close()
        self._left(client)

    def expire(self) -> None:
        """Forget the clients without a sign of life."""
        now_ms = monotonic_ms(self._clock)
        for client in list(self._clients.values()):
            if now_ms - client.heard_ms > self._config.client_expired_ms:
                self.forget(client)

    def close(self) -> None:
        """Forget all clients."""
        for client in list(self._clients.values()):
            self.forget(client)


def build_filter(topic: str, expression: Any, now_ms: int, error_text: str | None = None) -> SubscriptionData:
    """The subscription of a filter expression. Raises CallError if it is wrong, with the reason or ``error_text``."""
    kind = SQL92 if expression.type == FilterType.SQL else TAG
    try:
        return subscription(topic, expression.expression, kind, now_ms)
    except MQClientError as error:
        raise CallError(Code.ILLEGAL_FILTER_EXPRESSION, error_text or str(error)) from None


def _subscriptions(sent: Any, now_ms: int) -> list[SubscriptionData]:
    entries = {entry.topic.name: entry.expression for entry in sent.subscription.subscriptions}
    text = "expression format is not correct"
    return [build_filter(topic, expression, now_ms, text) for topic, expression in entries.items()]
