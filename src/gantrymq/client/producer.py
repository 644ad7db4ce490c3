"""The producer with a plain face: its event loop runs in a thread of its own.

with Producer("127.0.0.1:9876", producer_group="orders") as producer:
    result = producer.send(Message("TopicTest", b"hello", tags="TagA"))

Source: DefaultMQProducer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from gantrymq.client.async_producer import AsyncProducer, QueueSelector
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.producer_settings import ProducerConfig
from gantrymq.client.send_result import SendResult
from gantrymq.model.message import Message
from gantrymq.model.message_queue import MessageQueue


class Producer:
    """Sends messages; see :class:`gantrymq.client.async_producer.AsyncProducer` for what it raises.

    ``settings`` are fields of :class:`gantrymq.client.producer_settings.ProducerConfig`, which may stand in place of
    the name servers. Thread rule: any thread.
    """

    def __init__(self, name_servers: ProducerConfig | str, **settings: Any) -> None:
        self._config = ProducerConfig.of(name_servers, settings)
        self._loop = LoopThread("producer")
        self._producer = self._loop.make(self._started)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for nothing that is under way, tell the brokers goodbye, end the thread. Twice is once."""
        self._loop.close(self._producer.close())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues a message of this topic may go to."""
        return self._loop.run(self._producer.queues(topic))

    def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message and wait for its acknowledgement."""
        return self._loop.run(self._producer.send(message, queue, timeout_ms=timeout_ms))

    def send_async(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_ms: int | None = None
    ) -> Future[SendResult]:
        """Send one message; the future brings its acknowledgement. Do not change the message until then.

        The future's callbacks run in the producer's own thread: they may call this method, and none that blocks.
        """
        return self._loop.submit(self._producer.send(message, queue, timeout_ms=timeout_ms))

    def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one, and wait for their acknowledgement."""
        return self._loop.run(self._producer.send_batch(messages, queue, timeout_ms=timeout_ms))

    def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send one message and learn nothing of what became of it."""
        self._loop.run(self._producer.send_oneway(message, queue))

    def _started(self) -> AsyncProducer:
        producer = AsyncProducer(self._config)
        producer.start()
        return producer
