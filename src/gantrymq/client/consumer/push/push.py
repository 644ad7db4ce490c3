"""The blocking push consumer. Its event loop runs in a thread of its own, listeners run in others.

with PushConsumer("127.0.0.1:9876", consumer_group="invoices") as consumer:
    consumer.subscribe("TopicTest", "TagA || TagB")
    consumer.listen(handle)  # def handle(messages, context)
    consumer.start()
    ...

Source: DefaultMQPushConsumer.
"""

from __future__ import annotations

from typing import Unpack

from gantrymq.client.consumer.lifecycle import BlockingGroupConsumer
from gantrymq.client.consumer.listeners import ConcurrentListener, MessageQueueListener, OrderlyListener
from gantrymq.client.consumer.push.async_push import AsyncPushConsumer
from gantrymq.client.consumer.settings import PushConsumerConfig, PushConsumerSettings
from gantrymq.client.requests.subscription import TAG
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue


class PushConsumer(BlockingGroupConsumer[AsyncPushConsumer]):
    """Delivers messages to a listener; see :class:`gantrymq.client.consumer.push.async_push.AsyncPushConsumer`.

    ``name_servers`` is the list of name servers, with fields of
    :class:`gantrymq.client.consumer.settings.PushConsumerConfig` as ``settings``, or a PushConsumerConfig.

    Thread rule: any thread.
    """

    def __init__(self, name_servers: PushConsumerConfig | str, **settings: Unpack[PushConsumerSettings]) -> None:
        config = PushConsumerConfig.of(name_servers, settings)
        self._closed_within = False
        super().__init__("push-consumer", lambda: AsyncPushConsumer(config))

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic. ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition."""
        self._loop.do(lambda: self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._loop.do(lambda: self._consumer.unsubscribe(topic))

    def listen(self, listener: ConcurrentListener) -> None:
        """Set a concurrent listener: up to ``consume_thread_max`` calls at once, in no order."""
        self._loop.do(lambda: self._consumer.listen(listener))

    def listen_orderly(self, listener: OrderlyListener) -> None:
        """Set an orderly listener: each queue in order, by one member of the group only."""
        self._loop.do(lambda: self._consumer.listen_orderly(listener))

    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Register a callback for changes of the assignment. The callback must not block."""
        self._loop.do(lambda: self._consumer.register_message_queue_listener(listener))

    def start(self) -> None:
        """Join the group, and return when the first share is taken over. One call after ``with`` has no effect."""
        try:
            self._loop.run(self._consumer.start())
        except MQClientError:
            if not self._closed_within:  # a listener may close it after its first message
                raise

    def close(self) -> None:
        """Wait for listeners, persist offsets, release locks, leave the group. A second call waits for the first.

        A listener may call it, to stop after N messages for example. Then it returns at once, and the close goes on
        after the listener has returned. The messages of that listener are committed as usual. A close by another
        thread, such as that of ``with``, waits for all of it.
        """
        if self._loop.is_current or self._consumer.is_in_listener:
            self._closed_within = True
            self._consumer.begin_no_more()
            self._loop.close_beside(self._consumer.close())
        else:
            self._loop.close(self._consumer.close())

    def suspend(self) -> None:
        """Stop pulling until :meth:`resume`."""
        self._loop.do(self._consumer.suspend)

    def resume(self) -> None:
        """Pull again after :meth:`suspend`."""
        self._loop.do(self._consumer.resume)

    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, including those of the retry topic."""
        return self._loop.do(self._consumer.assignment)

    def offsets(self) -> dict[MessageQueue, int]:
        """The offset up to which each queue is consumed."""
        return self._loop.do(self._consumer.offsets)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._loop.run(self._consumer.queues(topic))
