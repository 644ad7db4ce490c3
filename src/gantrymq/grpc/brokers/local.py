"""A broker of the same process: requests go to its dispatcher, without a socket.

Each request has a channel of its own, which ends with it, so that a client that goes away takes along only the request
that waits for it. Each client has one more, on which it is a member of its groups, and which takes the broker's own
requests (checks of transactions, of messages, of threads).

Each call sends or acknowledges by itself. The broker takes those of one read of a remoting connection as one piece of
work. So the sends and acknowledgements of one iteration of the event loop are handed over as the bytes of such a read.

Source: LocalMessageService, LocalMetadataService, LocalTopicRouteService, InvocationChannel, SimpleChannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import cast

from gantrymq.errors import RemotingCommandError, RemotingConnectError, RemotingTimeoutError
from gantrymq.grpc.brokers.interface import Exchange, FromBroker, QueueRoute
from gantrymq.grpc.protocol.accesses import Accesses, accesses_of_heartbeat
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError, code_of
from gantrymq.remoting.bodies.client import HeartbeatData
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.route import BrokerData, QueueData
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection, FindRuns
from gantrymq.remoting.transport.channel import Channel, ChannelHandler

_JOINED = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.ACK_MESSAGE))  # requests that may leave together
_JOINED_BYTES = 64 << 10  # a larger body is not copied
AccessesRefusal = Callable[[str, str, Accesses], str | None]
_opaques = count(1)


class InProcessChannel:
    """The part of a Channel that a broker's processors use. What they send arrives here as commands.

    ``from_broker`` takes the broker's own requests; without it they are dropped. Thread rule: the event loop's thread.
    """

    __slots__ = ("_from_broker", "_tasks", "_unread_bytes", "address", "is_closed", "on_abort", "waiting")

    def __init__(
        self,
        address: str,
        from_broker: FromBroker | None = None,
        unread_bytes: Callable[[], int] = lambda: 0,
        on_abort: Callable[[], None] = lambda: None,
    ) -> None:
        self.address, self.is_closed, self.on_abort = address, False, on_abort
        self.waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._from_broker, self._unread_bytes = from_broker, unread_bytes
        self._tasks: set[asyncio.Future[RemotingCommand | None]] = set()

    @property
    def unread_bytes(self) -> int:
        """How much the client has not read."""
        return self._unread_bytes()

    # For the broker's processors

    def send(self, command: RemotingCommand) -> None:
        """Pass a response to the call that waits for it."""
        waiter = self.waiting.pop(command.opaque, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(command)

    def send_bytes(self, frames: Sequence[bytes]) -> None:
        """Take responses that are encoded, in one or more pieces."""
        for response in Connection().receive(b"".join(frames)):
            self.send(response)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Take the response to a request."""
        self.send(response)

    def respond_bytes(self, request: RemotingCommand, code: int, frames: Sequence[bytes]) -> None:
        """Take the encoded response to a request."""
        if frames:
            self.send_bytes(frames)

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Take a one-way request of the broker.

        A group of thousands gets thousands of notices for each new member, and gRPC has no command for them.
        """
        if command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            command.flag |= ONEWAY_FLAG
            self._begin(command)

    def invoke(self, command: RemotingCommand, timeout_ms: int) -> asyncio.Future[RemotingCommand]:
        """Take a request of the broker. The future gets the client's answer, or RemotingTimeoutError."""
        return asyncio.ensure_future(self._answered(command, timeout_ms))

    async def writable(self) -> None:
        """Return at once: a response goes to the call that waits for it."""

    def begin_answer(self, request_bytes: int) -> None:
        """Do nothing: one call has one request."""

    def end_answer(self, request_bytes: int) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Close at the broker's wish."""
        self.is_closed = True
        self.on_abort()

    async def _answered(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if self._from_broker is None:
            raise RemotingConnectError(self.address, "the client has no telemetry stream")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._from_broker(command)
        except TimeoutError as error:
            raise RemotingTimeoutError(self.address, timeout_ms) from error
        if answer is None:
            raise RemotingConnectError(self.address, "the client does not answer this request")
        return answer

    def _begin(self, command: RemotingCommand) -> None:
        if self._from_broker is not None:
            task = asyncio.ensure_future(self._from_broker(command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _LocalExchange:
    """One request. ``withdraw`` closes its channel, so that the broker forgets a pop that waits."""

    __slots__ = ("_channel", "_handler", "response")

    def __init__(self, handler: ChannelHandler, channel: InProcessChannel, command: RemotingCommand) -> None:
        self._handler, self._channel = handler, channel
        self.response = _expect(channel, command)
        handler.requests(cast(Channel, channel), [command])

    def withdraw(self) -> None:
        self._channel.is_closed = True
        self._handler.closed(cast(Channel, self._channel), None)


def _expect(channel: InProcessChannel, command: RemotingCommand) -> asyncio.Future[RemotingCommand]:
    """What gets the response to a request that will be handed over."""
    response: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    command.opaque = next(_opaques)
    channel.waiting[command.opaque] = response
    return response


class _JoinedExchange:
    """One of several requests of a channel. It does not wait for messages, so that ``withdraw`` has nothing to do."""

    __slots__ = ("response",)

    def __init__(self, response: asyncio.Future[RemotingCommand]) -> None:
        self.response = response

    def withdraw(self) -> None:
        pass


class _JoinedRequests:
    """The requests of each client that wait for the end of this iteration of the event loop."""

    def __init__(self, handler: ChannelHandler, find_runs: FindRuns) -> None:
        self._handler = handler
        self._connection = Connection(find_runs=find_runs)
        self._of_clients: dict[str, tuple[InProcessChannel, list[RemotingCommand]]] = {}

    def takes(self, caller: Caller, command: RemotingCommand) -> bool:
        """Whether a request may wait: it may be a part of a run, and no signature of its own belongs to it."""
        return command.code in _JOINED and caller.credentials is None and len(command.body) <= _JOINED_BYTES

    def add(self, address: str, command: RemotingCommand) -> _JoinedExchange:
        """Hand a request over later."""
        if address not in self._of_clients:
            asyncio.get_running_loop().call_soon(self.hand_over, address)
            self._of_clients[address] = InProcessChannel(address), []
        channel, commands = self._of_clients[address]
        commands.append(command)
        return _JoinedExchange(_expect(channel, command))

    def hand_over(self, address: str) -> None:
        """Hand over what waits of a client."""
        channel, commands = self._of_clients.pop(address, (None, []))
        if len(commands) > 1:
            with suppress(RemotingCommandError):  # one cannot be encoded: its properties are too long
                commands = self._connection.receive(b"".join(map(encode_command, commands)))
        if commands:
            self._handler.requests(cast(Channel, channel), commands)


class _LocalLink:
    """The membership of a client."""

    def __init__(self, handler: ChannelHandler, channel: InProcessChannel, refusal: AccessesRefusal) -> None:
        self._handler, self._channel, self._refusal = handler, channel, refusal

    async def heart_beat(self, caller: Caller, data: HeartbeatData) -> RemotingCommand:
        wrong = self._refusal(caller.ip, caller.access_key, accesses_of_heartbeat(data))
        if wrong is not None:
            raise CallError(code_of(ResponseCode.NO_PERMISSION, wrong), wrong)
        command = RemotingCommand(
            RequestCode.HEART_BEAT, body=data.encode(), language=caller.language, version=caller.version
        )
        _sign(caller, command)
        return await _LocalExchange(self._handler, self._channel, command).response

    def close(self) -> None:
        # The broker may have aborted the channel because one group was silent. The client's other groups remain.
        self._channel.is_closed = True
        self._handler.closed(cast(Channel, self._channel), None)


class LocalBrokers:
    """The broker ``data`` with the dispatcher ``handler``, which takes the runs of ``find_runs``.

    ``find_topic`` and ``find_group`` look into its tables. ``max_body_bytes`` returns its limit for a body.
    ``topic_refusal`` says why the caller with an access key, from an address, may not look at a topic,
    ``accesses_refusal`` why a user may not do what its heartbeat needs.
    """

    def __init__(
        self,
        handler: ChannelHandler,
        data: BrokerData,
        *,
        find_runs: FindRuns,
        find_topic: Callable[[str], TopicConfig | None],
        find_group: Callable[[str], SubscriptionGroupConfig | None],
        max_body_bytes: Callable[[], int],
        topic_refusal: Callable[[str, str, str], str | None],
        accesses_refusal: AccessesRefusal,
    ) -> None:
        self._accesses_refusal = accesses_refusal
        self._handler, self._name, self._brokers = handler, data.broker_name, [data]
        self._find_topic, self._find_group, self._topic_refusal = find_topic, find_group, topic_refusal
        self._max_body_bytes = max_body_bytes
        self._joined = _JoinedRequests(handler, find_runs)

    @property
    def max_body_bytes(self) -> int:
        """The broker's limit for a body, in bytes."""
        return self._max_body_bytes()

    async def route(self, caller: Caller, topic: str) -> QueueRoute | None:
        """The route of a topic: this broker."""
        config = await self.topic(caller, topic)
        if config is None:
            return None
        queues = QueueData(
            broker_name=self._name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )
        return QueueRoute([queues], self._brokers)

    async def topic(self, caller: Caller, name: str) -> TopicConfig | None:
        """The configuration of a topic."""
        config = self._find_topic(name)
        if config is not None:
            wrong = self._topic_refusal(caller.ip, caller.access_key, name)
            if wrong is not None:
                raise CallError(code_of(ResponseCode.NO_PERMISSION, wrong), wrong)
        return config

    async def group(self, caller: Caller, name: str) -> SubscriptionGroupConfig | None:
        """The configuration of a consumer group."""
        return self._find_group(name)

    def begin(self, caller: Caller, broker_name: str, command: RemotingCommand, timeout_ms: int) -> Exchange:
        """Hand a request to the broker's processors. The call's own deadline limits the wait."""
        if broker_name != self._name:
            raise CallError(Code.BAD_REQUEST, f"cannot find broker {broker_name[:128]}")
        command.language, command.version = caller.language, caller.version
        if self._joined.takes(caller, command):
            return self._joined.add(caller.address, command)
        self._joined.hand_over(caller.address)  # a request overtakes none of the same client
        _sign(caller, command)
        return _LocalExchange(self._handler, InProcessChannel(caller.address), command)

    def link(self, caller: Caller, from_broker: FromBroker, unread_bytes: Callable[[], int]) -> _LocalLink:
        """Open a membership of a client."""
        channel = InProcessChannel(caller.address, from_broker, unread_bytes)
        return _LocalLink(self._handler, channel, self._accesses_refusal)


def _sign(caller: Caller, command: RemotingCommand) -> None:
    """Sign a request as its client would over remoting: access control verifies it and checks the permissions."""
    if caller.credentials is not None:
        command.ext_fields.update(command.fields())  # access control reads the fields as texts
        caller.credentials.sign(command)
