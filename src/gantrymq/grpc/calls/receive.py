"""ReceiveMessage: a stream of messages for a consumer, which waits for them if there are none.

Two kinds of messages never reach the client. A message whose tag only has the same hash as a subscribed tag is
acknowledged. A message that was delivered too often is moved to the dead letters.

If the client goes away while its messages are on their way, they become visible again one second later.

Source: ReceiveMessageActivity, ReceiveMessageResponseStreamWriter, ConsumerProcessor (popMessage), LocalMessageService.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gantrymq.client.requests.pop_calls import INIT_MAX, MAX_POPPED, PopResult, PopTarget, messages_with_handles
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import GantrymqError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, Exchange, QueueRoute
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.calls.route import find_route
from gantrymq.grpc.clients.registry import Client, Clients, build_filter
from gantrymq.grpc.clients.renewal import Renewals
from gantrymq.grpc.clients.settings import merged_settings, settings_of_group
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.convert import to_message
from gantrymq.grpc.protocol.handles import Handle
from gantrymq.grpc.protocol.messages import ReceiveMessageResponse, set_ms, to_ms
from gantrymq.grpc.protocol.status import CallError, refused, status
from gantrymq.grpc.protocol.validation import require_group, require_invisible_time, require_topic
from gantrymq.logs import get_logger
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader

_ALL_QUEUES = -1
_NO_MESSAGES = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)
_ILLEGAL_POLLING_TIME_SINCE = "5.0.3"
_NO_TIME = "The deadline time remaining is not enough for polling, please check network condition"
_NO_NEW = "no new message"
_ENDLESS_MS = 1 << 40

log = get_logger("gantrymq.grpc")


@dataclass(frozen=True, slots=True)
class _AsStored:
    """Bodies are delivered as they are stored: the client decompresses them."""

    decode_decompress_body: bool = False
    max_decompressed_body_size: int = 0


class _CheckedReceive(NamedTuple):
    """A receive that has been checked."""

    client: Client
    caller: Caller
    group: str
    topic: str
    wanted: SubscriptionData
    invisible_ms: int
    polling_ms: int
    max_attempts: int
    in_order: bool
    renews: bool


class ReceiveMessage:
    """Answers receives. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: GrpcConfig,
        brokers: Brokers,
        clock: Clock,
        clients: Clients,
        popped: PoppedMessages,
        renewals: Renewals,
    ) -> None:
        self._config = config
        self._brokers, self._clock, self._clients = brokers, clock, clients
        self._popped, self._renewals = popped, renewals
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[Exchange] = set()
        self._turns, self._is_ending = 0, False

    async def receive(self, caller: Caller, request: Any, remaining_s: float | None) -> AsyncGenerator[Any, None]:
        """The responses to a ReceiveMessageRequest. ``remaining_s`` is the time until the call's deadline."""
        receive = await self._check(caller, request, remaining_s)
        if self._is_ending:
            raise CallError(Code.MESSAGE_NOT_FOUND, _NO_NEW)
        exchange, broker_name = await self._begin(receive, request)
        self._waiting.add(exchange)
        try:
            response = await asyncio.shield(exchange.response)
        except asyncio.CancelledError:
            exchange.withdraw()
            if exchange.response.cancelled():  # by end_waiting
                raise CallError(Code.MESSAGE_NOT_FOUND, _NO_NEW) from None
            exchange.response.add_done_callback(partial(self._give_back, receive, broker_name))
            raise
        finally:
            self._waiting.discard(exchange)
        messages = self._messages(receive, response, broker_name)
        if messages is None:
            code, text = Code.MESSAGE_NOT_FOUND, _NO_NEW
            if response.code == ResponseCode.POLLING_FULL:
                code, text = Code.TOO_MANY_REQUESTS, "polling full"
            yield ReceiveMessageResponse(status=status(code, text))
        elif not messages:
            yield ReceiveMessageResponse(status=status(Code.MESSAGE_NOT_FOUND, "no match message"))
        else:
            async for answer in self._deliver(receive, messages):
                yield answer
        yield self.end()

    def end_waiting(self) -> None:
        """Answer all receives that wait, and those that come later, because the server is being stopped."""
        self._is_ending = True
        for exchange in self._waiting:
            exchange.response.cancel()

    def end(self) -> Any:
        """The last response of a stream: the time."""
        last = ReceiveMessageResponse()
        set_ms(last.delivery_timestamp, self._clock.now_ms())
        return last

    async def drain(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # The request

    async def _check(self, caller: Caller, request: Any, remaining_s: float | None) -> _CheckedReceive:
        client = await self._clients.with_settings(caller)
        topic, group = require_topic(request.message_queue.topic.name), require_group(request.group.name)
        config = await self._brokers.group(caller, group)
        settings = (
            settings_of_group(self._config, config)
            if client.settings is None
            else merged_settings(self._config, client.settings, config, 0)
        )
        polling_ms = _polling_ms(self._config, request, settings, caller, remaining_s)
        invisible_ms, renews = self._config.default_invisible_ms, self._config.renews and request.auto_renew
        if not renews:
            least_ms, most_ms = self._config.min_receive_invisible_ms, self._config.max_invisible_ms
            invisible_ms = require_invisible_time(to_ms(request.invisible_duration), most_ms, least_ms)
        return _CheckedReceive(
            client=client,
            caller=caller,
            group=group,
            topic=topic,
            wanted=build_filter(topic, request.filter_expression, self._clock.now_ms()),
            invisible_ms=invisible_ms,
            polling_ms=polling_ms,
            max_attempts=settings.backoff_policy.max_attempts,
            in_order=settings.subscription.fifo,
            renews=renews,
        )

    async def _begin(self, receive: _CheckedReceive, request: Any) -> tuple[Exchange, str]:
        route = await find_route(self._brokers, receive.caller, receive.topic)
        broker_name = self._broker(route, request.message_queue.broker.name)
        header = PopMessageRequestHeader(
            consumer_group=receive.group,
            topic=receive.topic,
            queue_id=_ALL_QUEUES,
            max_msg_nums=min(request.batch_size, MAX_POPPED),
            invisible_time=receive.invisible_ms,
            poll_time=receive.polling_ms,
            init_mode=INIT_MAX,
            exp_type=receive.wanted.expression_type,
            exp=receive.wanted.sub_string,
            order=receive.in_order,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
            bname=broker_name,
        )
        timeout_ms = receive.polling_ms + limits.REQUEST_TIMEOUT_MS
        command = RemotingCommand.request(header)
        return self._brokers.begin(receive.caller, broker_name, command, timeout_ms), broker_name

    def _broker(self, route: QueueRoute, wanted: str) -> str:
        """The broker that the client asks for, or one in turn if that has no readable queue."""
        masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.broker_addrs}
        readable = sorted(
            queue.broker_name
            for queue in route.queues
            if queue.is_readable and queue.read_queue_nums > 0 and queue.broker_name in masters
        )
        if not readable:
            raise CallError(Code.FORBIDDEN, "no readable queue")
        self._turns += 1
        return wanted if wanted in readable else readable[self._turns % len(readable)]

    # The messages

    def _messages(
        self, receive: _CheckedReceive, response: RemotingCommand, broker_name: str
    ) -> list[tuple[ReceivedMessage, Handle]] | None:
        """The messages for the client. None if the broker has none."""
        if response.code in (*_NO_MESSAGES, ResponseCode.POLLING_FULL):
            return None
        messages = []
        tags = frozenset(receive.wanted.tags_set)
        for message, handle in _popped(receive, response, broker_name):
            if tags and message.tags not in tags:
                self._start(self._settle(receive, message, handle, is_dead=False))
            elif message.reconsume_times >= receive.max_attempts:
                self._start(self._settle(receive, message, handle, is_dead=True))
            else:
                messages.append((message, handle))
        return messages

    async def _deliver(
        self, receive: _CheckedReceive, messages: list[tuple[ReceivedMessage, Handle]]
    ) -> AsyncIterator[Any]:
        """The responses for found messages. Those that the client does not get become visible soon.

        Raises CallError if the client has left since it asked: its messages would be renewed without end.
        """
        sent = 0
        try:
            self._require_present(receive)
            yield ReceiveMessageResponse(status=status(Code.OK))
            now_ms = self._clock.now_ms()
            for message, handle in messages:
                if receive.renews:
                    self._require_present(receive)
                    self._renewals.add(
                        receive.client, receive.group, message.msg_id, receive.topic, handle, message.reconsume_times
                    )
                yield ReceiveMessageResponse(message=to_message(message, now_ms, str(handle)))
                sent += 1
        finally:
            if sent < len(messages):  # the stream has broken
                self._nack(receive, messages[sent:])

    def _require_present(self, receive: _CheckedReceive) -> None:
        client_id = receive.caller.client_id
        if receive.renews and self._clients.find(client_id) is not receive.client:
            raise CallError(Code.MESSAGE_NOT_FOUND, f"The client [{client_id}] is disconnected.")

    def _nack(self, receive: _CheckedReceive, messages: Iterable[tuple[ReceivedMessage, Handle]]) -> None:
        for message, handle in messages:
            newest = self._renewals.take(receive.client, receive.group, message.msg_id, handle)
            self._start(self._hide(receive, newest))

    def _give_back(self, receive: _CheckedReceive, broker_name: str, future: asyncio.Future[RemotingCommand]) -> None:
        """Let messages become visible that were popped for a client that has gone."""
        if future.cancelled() or future.exception() is not None or future.result().code != ResponseCode.SUCCESS:
            return
        self._nack(receive, list(_popped(receive, future.result(), broker_name)))

    async def _hide(self, receive: _CheckedReceive, handle: Handle) -> None:
        hidden_ms = self._config.nack_invisible_ms
        await self._popped.hide(receive.caller, handle, receive.group, receive.topic, hidden_ms, suspend=True)

    async def _settle(
        self, receive: _CheckedReceive, message: ReceivedMessage, handle: Handle, *, is_dead: bool
    ) -> None:
        """Acknowledge a message that never reaches the client, or move it to the dead letters."""
        caller, group, topic = receive.caller, receive.group, receive.topic
        if is_dead:
            await self._popped.to_dead_letters(caller, handle, group, topic, message.msg_id)
        else:
            await self._popped.ack(caller, handle, group, topic)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except GantrymqError as error:
        log.warning("a received message was not settled", reason=str(error))


def _popped(
    receive: _CheckedReceive, response: RemotingCommand, broker_name: str
) -> Iterable[tuple[ReceivedMessage, Handle]]:
    """All messages of a pop with their handles. Raises CallError if the broker refused it."""
    if response.code != ResponseCode.SUCCESS:
        raise refused(response)
    result = PopResult(
        PopTarget(receive.topic, broker_name), response.read(PopMessageResponseHeader), bytes(response.body)
    )
    for message, receipt in messages_with_handles(result, _AsStored()):
        yield message, Handle(receipt, message.phy_offset)


def _polling_ms(config: GrpcConfig, request: Any, settings: Any, caller: Caller, remaining_s: float | None) -> int:
    """How long the broker waits for messages, in ms. Raises CallError if the call's deadline is too near."""
    remaining_ms = _ENDLESS_MS if remaining_s is None else int(remaining_s * 1000)
    if request.HasField("long_polling_timeout"):
        polling_ms = to_ms(request.long_polling_timeout)
    else:
        polling_ms = remaining_ms - to_ms(settings.request_timeout) // 2
    polling_ms = min(max(polling_ms, config.min_polling_ms), config.max_polling_ms)
    if polling_ms <= remaining_ms:
        return polling_ms
    if remaining_ms >= config.min_polling_ms:
        return remaining_ms
    is_old = not caller.client_version or caller.client_version < _ILLEGAL_POLLING_TIME_SINCE
    raise CallError(Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME, _NO_TIME)
