"""The producer over asyncio.

async with AsyncProducer("127.0.0.1:9876", producer_group="orders") as producer:
    result = await producer.send(Message("TopicTest", b"hello", tags="TagA"))

Source: DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, cast
from weakref import finalize

from gantrymq.client.arguments import checked
from gantrymq.client.connection.async_client import AsyncClient
from gantrymq.client.connection.heartbeats import Heartbeats
from gantrymq.client.hooks import SendHooks
from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX, wrap_namespace
from gantrymq.client.producer.auto_batch import AutoBatch, Result
from gantrymq.client.producer.outgoing import OutgoingMessage, check_batch, check_message, prepare, prepare_batch
from gantrymq.client.producer.publish_routes import PublishRoutes
from gantrymq.client.producer.request_reply import PendingReplies, create_reply_message
from gantrymq.client.producer.send_window import SendWindow
from gantrymq.client.producer.sender import MessageSender, QueueSelector, check_timeout, check_way, master_of
from gantrymq.client.producer.settings import ProducerConfig, ProducerSettings
from gantrymq.client.requests.calls import recall_message
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.send_result import DEFAULT_REGION, SendResult
from gantrymq.client.runtime.background import OnceTask
from gantrymq.client.runtime.loop_thread import end_when_dropped
from gantrymq.client.settings import ClientConfig, trace_topic
from gantrymq.client.trace import GROUP_PREFIX, SEND_TIMEOUT_MS, TraceDispatcher, TraceHook, Tracing, with_trace
from gantrymq.client.unique_id import UniqueIdGenerator
from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import (
    MQClientError,
    RequestTimeoutError,
)
from gantrymq.format.recall_handle import decode_recall_handle
from gantrymq.model.message import Message, StoredMessage, is_of_bytes
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

_LONG_BYTES = 64 * 1024
_MAX_GROUP = 120


class AsyncProducer:
    """Sends messages. Start it with ``async with``, or :meth:`start` and :meth:`close`.

    ``config`` is the list of name servers, with fields of ProducerConfig as ``settings``, or a ProducerConfig.

    A send tries another broker if one does not answer or refuses for a reason that may be its own. It raises
    SendFailedError if all attempts failed, MQBrokerError if a broker refused the message itself, and
    RemotingTooMuchRequestError if the time limit was over before the first attempt. A message whose send failed may
    have been stored: delivery is at least once.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self, config: ProducerConfig | str, clock: Clock | None = None, **settings: Unpack[ProducerSettings]
    ) -> None:
        config = ProducerConfig.of(config, settings)
        # Sends, heartbeats and the unregistration name the same group.
        self._config = replace(config, producer_group=wrap_namespace(config.namespace, config.producer_group))
        self._clock = clock or SystemClock()
        # Nothing that the connections hold leads to the producer, so that a producer that is dropped can be collected.
        dispatcher = RequestDispatcher(when_closed=lambda channel: heartbeats.renew_all())
        self._replies = PendingReplies(config, self._clock)
        self._register(dispatcher)
        self._client = AsyncClient(config, dispatcher)
        self._ids = UniqueIdGenerator(self._clock)
        self._tracing = tracing_of(config, config.trace, self._config.producer_group, "PRODUCE", self._clock)
        self._hooks = SendHooks(with_trace(config.hooks, self._tracing), self._config.producer_group, self._clock)
        self._routes = PublishRoutes(self._client, config, self._clock)
        beat = partial(_heartbeat, self._config.producer_group)
        heartbeats = self._heartbeats = Heartbeats(self._client, beat, self._routes.masters)
        self._sender = MessageSender(self._client, self._routes, self._heartbeats, self._config, self._clock)
        self._batches = AutoBatch(self._sender, self._config) if config.auto_batch else None
        self._window = SendWindow(config.back_pressure_for_async_send_num, config.back_pressure_for_async_send_size)
        self._end = partial(
            _end,
            self._replies,
            self._batches,
            self._window,
            self._routes,
            self._heartbeats,
            self._client,
            self._tracing,
            config.send_msg_timeout_ms / 1000,
            self._config.producer_group,
        )
        self._closing = OnceTask(self._end)
        self._unless_dropped: finalize[..., AsyncProducer] | None = None

    def _register(self, dispatcher: RequestDispatcher) -> None:
        """Answer the requests of brokers through this dispatcher."""
        self._replies.register(dispatcher)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to send heartbeats to the brokers that receive messages."""
        self._client.loop.check()
        self._heartbeats.start()
        if self._tracing is not None:
            self._tracing.dispatcher.start()
        if self._unless_dropped is None:
            self._unless_dropped = end_when_dropped(self, self._end)

    async def close(self) -> None:
        """Close the producer; a second call has no effect.

        Wait at most ``send_msg_timeout_ms`` for the sends under way, unregister from the brokers, then close all
        connections.
        """
        self._client.loop.check()
        if self._unless_dropped is not None:
            self._unless_dropped.detach()
        await self._closing.run()

    @checked
    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues to which a message of this topic may go. Raises MQClientError if the topic does not exist.

        A topic that its first message would create has no queues before that message.
        """
        return (await self._routes.find_existing(self._full(topic))).publish

    async def queues_to_be(self, topic: str) -> tuple[MessageQueue, ...]:
        """As :meth:`queues`. For a topic that does not exist: the queues with which its first message creates it."""
        return (await self._routes.find(self._full(topic))).publish

    async def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message. With a queue, or a function that chooses one, there is one attempt.

        The message first waits until less is under way than ``back_pressure_for_async_send_num`` messages and
        ``back_pressure_for_async_send_size`` bytes. ``timeout_ms`` begins after that wait.
        """
        if _takes_long(message, self._config):
            return await self.deliver(await asyncio.to_thread(self.prepare, message), queue, timeout_ms)
        return await self.deliver(self.prepare(message), queue, timeout_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request. They are stored next to each other, all or none."""
        return await self.deliver(self.prepare_batch(messages), queue, timeout_ms)

    async def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send one message without a result. Raises only if no broker is reached or the broker does not read."""
        await self.deliver_oneway(self.prepare(message), queue)

    async def request(
        self, message: Message, timeout_ms: int, queue: MessageQueue | QueueSelector | None = None
    ) -> ReceivedMessage:
        """Send a request and return the reply. A consumer replies with :meth:`reply`, in Java with MessageUtil.

        Raises what :meth:`send` raises if the request is not sent, and RequestTimeoutError if no reply comes within
        ``timeout_ms``: no consumer has the request, or its reply was lost. The request may have been processed.
        """
        if _takes_long(message, self._config):
            outgoing = await asyncio.to_thread(self.prepare_request, message, timeout_ms)
        else:
            outgoing = self.prepare_request(message, timeout_ms)
        return await self.deliver_request(outgoing, timeout_ms, queue)

    async def reply(
        self, request: StoredMessage, body: bytes | bytearray | memoryview, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received. The producer that sent the request has the reply then.

        There is one attempt, at the broker that delivered the request: the requester is registered there. Raises
        MQClientError if ``request`` is no request, and MQBrokerError if the requester is gone.
        """
        return await self.deliver(*self.prepare_reply(request, body), timeout_ms)

    @checked
    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Prevent the delivery of a timer message that is not due yet. Returns its ``msg_id``.

        ``recall_handle`` is in the result of the message's send. The broker must have ``recallMessageEnable=true``.
        Raises MQBrokerError if the broker refuses, also if the message is due already.
        """
        self._check_open()
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise MQClientError(f"topic={topic!r} is not allowed: no message of a retry topic can be recalled")
        try:
            handle = decode_recall_handle(recall_handle)
        except ValueError as error:
            raise MQClientError(f"recall_handle={recall_handle!r:.200} is not allowed: {error}") from error
        wait_ms = self._config.send_msg_timeout_ms if timeout_ms is None else timeout_ms
        full = self._full(topic)
        route = await self._routes.find(full, wait_ms)
        call = recall_message(self._config.producer_group, full, recall_handle, handle.broker_name)
        region_id, is_success = DEFAULT_REGION, False
        try:
            msg_id, region_id = await self._client.call(master_of(route, handle.broker_name), call, wait_ms)
            is_success = True
            return msg_id
        finally:
            if self._tracing is not None:
                self._tracing.hook.recalled(full, handle.unique_key, region_id, is_success=is_success)

    @checked
    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until no send is under way. Each send reports its own result.

        Raises MQClientError if that takes longer than ``timeout_ms``.
        """
        self._client.loop.check()
        if self._batches is not None:
            self._batches.flush()
        if not await self._window.drain(None if timeout_ms is None else timeout_ms / 1000):
            raise flush_timeout_error(self._window.under_way, timeout_ms)

    # A send has two steps: the caller prepares the message in any thread, and the event loop sends it

    def prepare(self, message: Message) -> OutgoingMessage:
        """Validate and compress one message, and call the hooks before it. Thread rule: any thread."""
        if not self._hooks:
            return prepare(message, self._ids.new(), self._config)
        check_message(message, self._config)
        return self._prepared([message], lambda copies: prepare(copies[0], self._ids.new(), self._config))

    def prepare_batch(self, messages: Sequence[Message]) -> OutgoingMessage:
        """Validate and compress a batch, and call the hooks before it. Thread rule: any thread."""
        if not self._hooks:
            return prepare_batch(messages, self._ids.new, self._config)
        messages = check_batch(messages, self._config)
        return self._prepared(messages, lambda copies: prepare_batch(copies, self._ids.new, self._config))

    def _prepared(
        self, messages: Sequence[Message], make: Callable[[Sequence[Message]], OutgoingMessage]
    ) -> OutgoingMessage:
        context = self._hooks.begin(messages)
        try:
            return replace(make(context.messages), context=context)
        except BaseException as error:
            self._hooks.end(context, error=error)
            raise

    def abandon(self, outgoing: OutgoingMessage, error: BaseException) -> None:
        """Tell the hooks that a prepared message is not sent. Thread rule: any thread."""
        if outgoing.context is not None:
            self._hooks.end(outgoing.context, error=error)

    def prepare_request(self, message: Message, timeout_ms: int) -> OutgoingMessage:
        """Validate and compress a message that asks for a reply. Thread rule: any thread."""
        check_message(message, self._config)
        check_timeout(timeout_ms)
        marked, correlation_id = self._replies.mark(message, self._heartbeats.client_id, timeout_ms)
        return replace(self.prepare(marked), correlation_id=correlation_id)

    def prepare_reply(
        self, request: StoredMessage, body: bytes | bytearray | memoryview
    ) -> tuple[OutgoingMessage, QueueSelector]:
        """A prepared reply, and the function that chooses its queue. Thread rule: any thread."""
        broker_name = request.broker_name if isinstance(request, ReceivedMessage) else ""
        return self.prepare(create_reply_message(request, body)), partial(_at_broker, broker_name)

    async def deliver_request(
        self, outgoing: OutgoingMessage, timeout_ms: int, queue: MessageQueue | QueueSelector | None = None
    ) -> ReceivedMessage:
        """Send a prepared request and return the reply."""
        correlation_id, sent = outgoing.correlation_id or "", "the broker has not acknowledged the request"
        reply = self._replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                await self.deliver(outgoing, queue, timeout_ms)
                sent = "the broker has the request"
                return await reply
        except TimeoutError as error:
            if not limit.expired():  # RemotingTimeoutError is a TimeoutError too
                raise
            raise RequestTimeoutError(outgoing.topic, timeout_ms, sent) from error
        finally:
            self._replies.forget(correlation_id)

    def deliver(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
        leaves: Callable[[], bool] = lambda: True,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a prepared message.

        ``leaves`` is called right before the send; if it returns False, CancelledError is raised.

        After ``leaves`` returned True, the send cannot be cancelled.
        """
        sending = self._deliver(outgoing, queue, timeout_ms, leaves)
        return sending if outgoing.context is None else self._hooks.follow(outgoing.context, sending)

    def join(self, outgoing: OutgoingMessage, leaves: Callable[[], bool], result: Result) -> bool:
        """Let a prepared message leave in an automatic batch, without a coroutine; ``result`` gets its result.

        ``leaves`` is as of :meth:`deliver`; if it returns False, the message is not sent and has no result. Returns
        False, and calls nothing, if the message takes :meth:`deliver`.
        """
        if self._batches is None or outgoing.context is not None or self._closing.is_begun:
            return False
        size_bytes = len(outgoing.body)
        if not self._batches.may_join(outgoing) or not self._window.try_enter(size_bytes):
            return False
        if leaves():
            self._batches.join(outgoing, None, _InWindow(self._window, size_bytes, result))
        else:
            self._window.leave(size_bytes)
        return True

    async def _deliver(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | QueueSelector | None,
        timeout_ms: int | None,
        leaves: Callable[[], bool],
    ) -> SendResult:
        self._check_open()
        check_way(queue, timeout_ms)
        size_bytes = len(outgoing.body)
        if not self._window.try_enter(size_bytes):
            await self._window.enter(size_bytes)
        try:
            if not leaves():
                raise asyncio.CancelledError
            if self._batches is not None:
                return await self._batches.send(outgoing, queue, timeout_ms)
            return await self._sender.send(outgoing, queue, timeout_ms)
        finally:
            self._window.leave(size_bytes)

    async def deliver_oneway(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None = None
    ) -> None:
        """Send a prepared message one-way, without a result."""
        sending = self._deliver_oneway(outgoing, queue)
        await (sending if outgoing.context is None else self._hooks.follow(outgoing.context, sending))

    async def _deliver_oneway(self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None) -> None:
        self._check_open()
        check_way(queue, None)
        size_bytes = len(outgoing.body)
        if not self._window.try_enter(size_bytes):
            await self._window.enter(size_bytes)
        try:
            await self._sender.send_oneway(outgoing, queue)
        finally:
            self._window.leave(size_bytes)

    def _check_open(self) -> None:
        self._client.loop.check()
        if self._closing.is_begun:
            raise MQClientError("the producer is closed")

    def _full(self, topic: str) -> str:
        return wrap_namespace(self._config.namespace, topic)


@dataclass(slots=True)
class _InWindow:
    """A result whose message leaves the window before it."""

    window: SendWindow
    size_bytes: int
    result: Result

    def done(self) -> bool:
        """As :meth:`Result.done`."""
        return self.result.done()

    def set_result(self, result: SendResult, /) -> None:
        """As :meth:`Result.set_result`."""
        self.window.leave(self.size_bytes)
        self.result.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        """As :meth:`Result.set_exception`."""
        self.window.leave(self.size_bytes)
        self.result.set_exception(error)

    def cancel(self) -> object:
        """As :meth:`Result.cancel`."""
        self.window.leave(self.size_bytes)
        return self.result.cancel()


async def _end(
    replies: PendingReplies,
    batches: AutoBatch | None,
    window: SendWindow,
    routes: PublishRoutes,
    heartbeats: Heartbeats,
    client: AsyncClient,
    tracing: Tracing | None,
    wait_s: float,
    group: str,
) -> None:
    replies.close()
    if batches is not None:
        batches.flush()
    await window.drain(wait_s)
    if tracing is not None:
        await tracing.dispatcher.close()
    await routes.close()
    await heartbeats.close(producer_group=group)
    await client.close()


def inner_producer(config: ClientConfig, clock: Clock, **settings: Unpack[ProducerSettings]) -> AsyncProducer:
    """A producer for messages of our own, with the connection settings of another client and no namespace."""
    shared = {field.name: getattr(config, field.name) for field in fields(ClientConfig)} | {"namespace": ""}
    return AsyncProducer(ProducerConfig(**{**shared, **settings}), clock)


def tracing_of(config: ClientConfig, trace: bool | str, group: str, kind: str, clock: Clock) -> Tracing | None:
    """The tracing of a client with the setting ``trace``, not started yet; None if it has none.

    ``kind`` is PRODUCE or CONSUME.
    """
    topic = trace_topic(trace)
    if not topic:
        return None
    own_group = f"{GROUP_PREFIX}-{group}-{kind}"[-_MAX_GROUP:]

    def make() -> AsyncProducer:
        return inner_producer(config, clock, producer_group=own_group, send_msg_timeout_ms=SEND_TIMEOUT_MS)

    dispatcher = TraceDispatcher(topic, make)
    return Tracing(dispatcher, TraceHook(dispatcher, config.namespace, group, clock))


def flush_timeout_error(messages: int, timeout_ms: int | None) -> MQClientError:
    """The error of a flush whose time limit is over."""
    return MQClientError(f"{messages} messages are still in flight after {timeout_ms} ms")


def _takes_long(message: Message, config: ProducerConfig) -> bool:
    """Whether compressing the body would block the event loop: zlib takes 3 ms for 100 KB of incompressible data."""
    if not isinstance(cast(object, message), Message):
        return False
    body: object = message.body
    return is_of_bytes(body) and len(message.body) >= max(_LONG_BYTES, config.compress_msg_body_over_howmuch)


def _heartbeat(producer_group: str, client_id: str) -> HeartbeatData:
    return HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=producer_group)])


def _at_broker(broker_name: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The first queue of a broker, or of any if it has none."""
    return next((queue for queue in queues if queue.broker_name == broker_name), queues[0])
