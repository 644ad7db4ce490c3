"""The blocking simple consumer. Its event loop runs in a thread of its own.

with SimpleConsumer("127.0.0.1:9876", consumer_group="orders") as consumer:
    consumer.subscribe("TopicTest")
    for message in consumer:
        ...
        consumer.ack(message)

Source: SimpleConsumer of RocketMQ's gRPC client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Unpack

from gantrymq.client.consumer.async_simple import RECEIVED_AT_ONCE, AsyncSimpleConsumer
from gantrymq.client.consumer.lifecycle import BlockingGroupConsumer
from gantrymq.client.consumer.settings import SimpleConsumerConfig, SimpleConsumerSettings
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.subscription import TAG
from gantrymq.errors import MQClientError


class SimpleConsumer(BlockingGroupConsumer[AsyncSimpleConsumer]):
    """Receives messages, which the caller acknowledges one by one.

    See :class:`gantrymq.client.consumer.async_simple.AsyncSimpleConsumer`.

    ``name_servers`` is the list of name servers, with fields of
    :class:`gantrymq.client.consumer.settings.SimpleConsumerConfig` as ``settings``, or a SimpleConsumerConfig. ``with``
    starts the consumer. If it has been started before, AlreadyStartedError is raised and the consumer keeps running.

    Thread rule: any thread; several may receive at the same time.
    """

    def __init__(self, name_servers: SimpleConsumerConfig | str, **settings: Unpack[SimpleConsumerSettings]) -> None:
        config = SimpleConsumerConfig.of(name_servers, settings)
        super().__init__("simple-consumer", lambda: AsyncSimpleConsumer(config))

    def is_closed(self) -> bool:
        """Whether :meth:`close` has been called."""
        return self._consumer.is_closed()

    def close(self) -> None:
        """Leave the group. Messages that are not acknowledged are delivered again. A second call waits for the first.

        Another thread may call it to end an iteration.
        """
        self._loop.close(self._consumer.close())

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic with the group.

        ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition.
        """
        self._loop.run(self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._loop.run(self._consumer.unsubscribe(topic))

    def receive(
        self,
        max_messages: int = RECEIVED_AT_ONCE,
        *,
        invisible_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[ReceivedMessage]:
        """Up to ``max_messages`` (at most 32) messages of one topic at one broker; empty if none comes in time.

        The group does not see them for ``invisible_ms`` (by default ``invisible_duration_ms``, at most 12 hours). Waits
        at most ``timeout_ms``, by default ``await_duration_ms``. If a signal handler raises during the call, the next
        receive returns the messages.
        """
        work = self._consumer.receive_batch(max_messages, invisible_ms=invisible_ms, timeout_ms=timeout_ms)
        return self._consumer.received(self._loop.run(work, undo=self._consumer.give_back))

    def messages(
        self, max_messages: int = RECEIVED_AT_ONCE, *, invisible_ms: int | None = None
    ) -> Iterator[ReceivedMessage]:
        """Receive until the consumer is closed; ``for message in consumer`` does so too.

        ``max_messages`` are received at once, and their invisible time begins then: use 1 if a message takes long. A
        message whose invisible time is over before the caller gets it is left out, because it is delivered again.
        When the iteration ends early, the next receive gets the messages that are left. Brokers that do not answer are
        retried. Raises MQBrokerError if a broker refuses.
        """
        messages = self._consumer.following(max_messages, invisible_ms=invisible_ms)

        async def following() -> ReceivedMessage | None:
            return await anext(messages, None)

        async def end() -> None:
            await messages.aclose()

        try:
            while not self.is_closed():
                try:
                    message = self._loop.run(following())
                except MQClientError:
                    if self.is_closed():
                        return
                    raise
                if message is None:
                    return
                yield self._consumer.received([message])[0]
        finally:
            with suppress(MQClientError):  # closed meanwhile
                self._loop.submit(end())  # without a wait, because the garbage collector may be the caller

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def ack(self, message: ReceivedMessage) -> None:
        """Acknowledge a message. It is not delivered again, unless its invisible time was already over."""
        self._loop.run(self._consumer.ack(message))

    def change_invisible_duration(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Hide a message for ``invisible_ms`` from now on. It gets a new receipt handle that replaces the old."""
        self._loop.run(self._consumer.change_invisible_duration(message, invisible_ms))
