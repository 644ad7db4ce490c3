"""The blocking producer. Its event loop runs in a thread of its own.

with Producer("127.0.0.1:9876", producer_group="orders") as producer:
    result = producer.send(Message("TopicTest", b"hello", tags="TagA"))

Source: DefaultMQProducer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.arguments import checked
from gantrymq.client.producer.async_producer import AsyncProducer, flush_timeout_error
from gantrymq.client.producer.outgoing import OutgoingMessage
from gantrymq.client.producer.send_window import BlockingSendWindow
from gantrymq.client.producer.sender import QueueSelector, check_way
from gantrymq.client.producer.settings import ProducerConfig, ProducerSettings
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.send_result import SendResult
from gantrymq.client.runtime.loop_thread import LoopThread, close_when_dropped
from gantrymq.errors import MQClientError
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.message_queue import MessageQueue


class Producer:
    """Sends messages; see :class:`gantrymq.client.producer.async_producer.AsyncProducer` for what it raises.

    ``name_servers`` is the list of name servers, with fields of
    :class:`gantrymq.client.producer.settings.ProducerConfig` as ``settings``, or a ProducerConfig.

    Thread rule: any thread.
    """

    def __init__(self, name_servers: ProducerConfig | str, **settings: Unpack[ProducerSettings]) -> None:
        config = ProducerConfig.of(name_servers, settings)
        self._window = BlockingSendWindow(
            config.back_pressure_for_async_send_num, config.back_pressure_for_async_send_size
        )
        self._under_way: set[asyncio.Task[SendResult]] = set()
        self._not_left: set[_Sending] = set()  # begun as tasks, and not left yet
        self._loop = LoopThread("producer")
        self._producer = self._loop.make(lambda: _started(self._make(config)))
        close_when_dropped(self, self._loop, self._producer.close)

    def _make(self, config: ProducerConfig) -> AsyncProducer:
        """The producer on the event loop of the thread."""
        return AsyncProducer(config)

    def __enter__(self) -> Self:
        self._loop.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Has no effect: a producer has started when it is constructed. Other clients have this method too."""
        self._loop.check_open()

    def close(self) -> None:
        """Close the producer; a second call has no effect.

        Wait at most ``send_msg_timeout_ms`` for the sends under way, unregister from the brokers, then end the thread.
        """
        self._loop.close(self._producer.close())

    @checked
    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until no send that :meth:`send_async` began is under way. The futures have the results.

        Raises MQClientError if that takes longer than ``timeout_ms``, or if the producer's own thread calls it.
        """
        self._loop.check_open()
        self._loop.check_not_current()
        left = self._window.drain(None if timeout_ms is None else timeout_ms / 1000)
        if left:
            raise flush_timeout_error(left, timeout_ms)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues to which a message of this topic may go. Raises MQClientError if the topic does not exist.

        A topic that its first message would create has no queues before that message.
        """
        return self._loop.run(self._producer.queues(topic))

    def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message and wait for its acknowledgement."""
        return self._loop.run(self._producer.deliver(self._producer.prepare(message), queue, timeout_ms))

    def send_async(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> Future[SendResult]:
        """Send one message; the future gets its acknowledgement. Raises MQClientError at once for an invalid message.

        Blocks while as many messages or bytes are under way as ``back_pressure_for_async_send_num`` and ``_size``
        allow. ``timeout_ms`` begins when the message leaves; from then on the future cannot be cancelled. The future's
        callbacks run in the producer's own thread: they may call this method, which does not block there, but no method
        that blocks.
        """
        return self._begin(self._producer.prepare(message), queue, timeout_ms)

    def send_batch_async(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Future[SendResult]:
        """As :meth:`send_async`, for messages of one topic in one request. A batch counts as one message under way."""
        return self._begin(self._producer.prepare_batch(messages), queue, timeout_ms)

    def _begin(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> Future[SendResult]:
        try:
            return self._submit(outgoing, queue, timeout_ms)
        except BaseException as error:
            self._producer.abandon(outgoing, error)
            raise

    def _submit(
        self, outgoing: OutgoingMessage, queue: MessageQueue | QueueSelector | None, timeout_ms: int | None
    ) -> Future[SendResult]:
        check_way(queue, timeout_ms)
        size_bytes = len(outgoing.body)
        self._loop.check_open()
        self._window.enter(size_bytes, wait=not self._loop.is_current)
        sending = _Sending(self._window, size_bytes)
        try:
            self._loop.post(partial(self._begin_sending, outgoing, queue, timeout_ms, sending))
        except BaseException:
            self._window.leave(size_bytes)
            raise
        return sending.sent

    def _begin_sending(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | QueueSelector | None,
        timeout_ms: int | None,
        sending: _Sending,
    ) -> None:
        """Begin a send in the loop's thread: in an automatic batch if it may be, which takes no task.

        A message joins no batch while an earlier one has a task that has not begun to send: it would overtake it.
        """
        may_join = queue is None and timeout_ms is None and not self._not_left
        if may_join and self._producer.join(outgoing, sending.leaves, sending):
            return
        self._not_left.add(sending)
        leaves = partial(self._leaves, sending)
        delivery = self._producer.deliver(outgoing, queue, timeout_ms, leaves)
        task = asyncio.get_running_loop().create_task(delivery)
        self._under_way.add(task)
        task.add_done_callback(lambda done: self._ended(done, sending))

    def _leaves(self, sending: _Sending) -> bool:
        self._not_left.discard(sending)
        return sending.leaves()

    def _ended(self, task: asyncio.Task[SendResult], sending: _Sending) -> None:
        self._under_way.discard(task)
        self._not_left.discard(sending)
        sending.ended(task)

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request, and wait for the acknowledgement."""
        return self._loop.run(self._producer.deliver(self._producer.prepare_batch(messages), queue, timeout_ms))

    def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send one message one-way: there is no result."""
        self._loop.run(self._producer.deliver_oneway(self._producer.prepare(message), queue))

    def request(
        self, message: Message, timeout_ms: int, queue: MessageQueue | QueueSelector | None = None
    ) -> ReceivedMessage:
        """Send a request and return the reply, which a consumer sends with :meth:`reply`.

        Raises RequestTimeoutError if no reply comes within ``timeout_ms``.
        """
        outgoing = self._producer.prepare_request(message, timeout_ms)
        return self._loop.run(self._producer.deliver_request(outgoing, timeout_ms, queue))

    def reply(
        self, request: StoredMessage, body: bytes | bytearray | memoryview, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received. The producer that sent the request has the reply then."""
        return self._loop.run(self._producer.deliver(*self._producer.prepare_reply(request, body), timeout_ms))

    def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Prevent the delivery of a timer message that is not due yet. Returns its ``msg_id``."""
        return self._loop.run(self._producer.recall(topic, recall_handle, timeout_ms=timeout_ms))


def _started(producer: AsyncProducer) -> AsyncProducer:
    producer.start()
    return producer


class _Sending:
    """One send under way. ``sent`` is the caller's future, which can be cancelled until the message leaves."""

    __slots__ = ("_left", "_size_bytes", "_window", "sent")

    def __init__(self, window: BlockingSendWindow, size_bytes: int) -> None:
        self.sent: Future[SendResult] = Future()
        self._window, self._size_bytes, self._left = window, size_bytes, False

    def leaves(self) -> bool:
        """Mark the message as leaving. Returns False if the caller cancelled it before; then it has ended."""
        self._left = True
        if self.sent.set_running_or_notify_cancel():
            return True
        self._window.leave(self._size_bytes)
        return False

    def ended(self, task: asyncio.Task[SendResult]) -> None:
        """Copy the result of the send to the caller's future."""
        if (not self._left and not self.leaves()) or self.sent.cancelled():
            return
        if task.cancelled():
            self.cancel()
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())

    # The result of a message in an automatic batch

    def done(self) -> bool:
        """False: a message that joined a batch cannot be cancelled any more."""
        return False

    def set_result(self, result: SendResult, /) -> None:
        """Take the acknowledgement."""
        self._window.leave(self._size_bytes)
        self.sent.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error of the send."""
        self._window.leave(self._size_bytes)
        self.sent.set_exception(error)

    def cancel(self) -> None:
        """The producer was closed before the message was acknowledged."""
        self.set_exception(MQClientError("the producer was closed meanwhile"))
