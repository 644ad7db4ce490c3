"""The producer with a plain face: its event loop runs in a thread of its own.

with Producer("127.0.0.1:9876", producer_group="orders") as producer:
    result = producer.send(Message("TopicTest", b"hello", tags="TagA"))

Source: DefaultMQProducer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.arguments import checked
from gantrymq.client.async_producer import AsyncProducer, QueueSelector, check_way, still_under_way
from gantrymq.client.keywords import ProducerSettings
from gantrymq.client.loop_thread import LoopThread, close_when_dropped
from gantrymq.client.send_result import SendResult
from gantrymq.client.send_window import BlockingSendWindow
from gantrymq.client.settings import ProducerConfig
from gantrymq.model.message import Message
from gantrymq.model.message_queue import MessageQueue


class Producer:
    """Sends messages; see :class:`gantrymq.client.async_producer.AsyncProducer` for what it raises.

    ``settings`` are fields of :class:`gantrymq.client.settings.ProducerConfig`, which may stand in place of
    the name servers. Thread rule: any thread.
    """

    def __init__(self, name_servers: ProducerConfig | str, **settings: Unpack[ProducerSettings]) -> None:
        config = ProducerConfig.of(name_servers, settings)
        self._window = BlockingSendWindow(
            config.back_pressure_for_async_send_num, config.back_pressure_for_async_send_size
        )
        self._loop = LoopThread("producer")
        self._producer = self._loop.make(lambda: _started(config))
        close_when_dropped(self, self._loop, self._producer.close)

    def __enter__(self) -> Self:
        self._loop.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Nothing more than is done already: a producer has started when it is made. As other clients have it."""
        self._loop.check_open()

    def close(self) -> None:
        """Wait for what is under way, at most ``send_msg_timeout_ms``, tell the brokers goodbye, end the thread.

        Twice is once.
        """
        self._loop.close(self._producer.close())

    @checked
    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until nothing that :meth:`send_async` began is under way; what became of it is in the futures.

        Raises MQClientError where that takes longer than ``timeout_ms``, or would wait for the producer's own thread.
        """
        self._loop.check_open()
        self._loop.check_not_current()
        left = self._window.drain(None if timeout_ms is None else timeout_ms / 1000)
        if left:
            raise still_under_way(left, timeout_ms)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may go to; raises MQClientError where there is no such topic.

        A topic that the first message would make has no queues before it.
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
        """Send one message; the future brings its acknowledgement. What is wrong with the message is raised at once.

        Waits while as much is under way as ``back_pressure_for_async_send_num`` and ``_size`` allow. ``timeout_ms``
        begins when the message leaves; from then on the future cannot be cancelled. The future's callbacks run in the
        producer's own thread: they may call this method, which does not wait there, and none that blocks.
        """
        outgoing = self._producer.prepare(message)
        check_way(queue, timeout_ms)
        size_bytes = len(outgoing.body)
        self._loop.check_open()
        self._window.enter(size_bytes, wait=not self._loop.is_current)
        sending = _Sending(lambda: self._window.leave(size_bytes))
        try:
            under_way = self._loop.submit(self._producer.deliver(outgoing, queue, timeout_ms, sending.leaves))
        except BaseException:
            self._window.leave(size_bytes)
            raise
        under_way.add_done_callback(sending.ended)
        return sending.sent

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one, and wait for their acknowledgement."""
        return self._loop.run(self._producer.deliver(self._producer.prepare_batch(messages), queue, timeout_ms))

    def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send one message and learn nothing of what became of it."""
        self._loop.run(self._producer.deliver_oneway(self._producer.prepare(message), queue))


def _started(config: ProducerConfig) -> AsyncProducer:
    producer = AsyncProducer(config)
    producer.start()
    return producer


class _Sending:
    """One send on its way; ``sent`` is the caller's future, which can be cancelled until the message leaves."""

    def __init__(self, done: Callable[[], None]) -> None:
        self.sent: Future[SendResult] = Future()
        self._done, self._left = done, False

    def leaves(self) -> bool:
        """The message leaves now, unless the caller cancelled it."""
        self._left = True
        return self.sent.set_running_or_notify_cancel()

    def ended(self, under_way: Future[SendResult]) -> None:
        """Tell the caller's future what became of it."""
        self._done()
        if (not self._left and not self.leaves()) or self.sent.cancelled():
            return
        try:
            self.sent.set_result(under_way.result())
        except (Exception, CancelledError) as error:
            self.sent.set_exception(error)
