"""The push consumer with a plain face: its event loop runs in a thread of its own, listeners run in others.

with PushConsumer("127.0.0.1:9876", consumer_group="invoices") as consumer:
    consumer.subscribe("TopicTest", "TagA || TagB")
    consumer.listen(handle)  # def handle(messages, context)
    consumer.start()
    ...

Source: DefaultMQPushConsumer.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.consumer.async_push import AsyncPushConsumer
from gantrymq.client.consumer.listeners import ConcurrentListener, MessageQueueListener, OrderlyListener
from gantrymq.client.consumer.settings import PushConsumerConfig
from gantrymq.client.consumer.subscription import TAG
from gantrymq.client.keywords import PushConsumerSettings
from gantrymq.client.loop_thread import LoopThread, close_when_dropped
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue


class PushConsumer:
    """Gets messages pushed to its listener; see :class:`gantrymq.client.consumer.async_push.AsyncPushConsumer`.

    ``settings`` are fields of :class:`gantrymq.client.consumer.settings.PushConsumerConfig`, which may stand in place
    of the name servers. Thread rule: any thread.
    """

    def __init__(self, name_servers: PushConsumerConfig | str, **settings: Unpack[PushConsumerSettings]) -> None:
        config = PushConsumerConfig.of(name_servers, settings)
        self._closed_within = False
        self._loop = LoopThread("push-consumer")
        self._consumer = self._loop.make(lambda: AsyncPushConsumer(config))
        close_when_dropped(self, self._loop, self._consumer.close)

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._consumer.enter())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def client_id(self) -> str:
        """What the brokers know this consumer by."""
        return self._consumer.client_id

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Want a topic: all of it, ``TagA || TagB``, or with ``SQL92`` what a condition is true of."""
        self._loop.do(lambda: self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Want a topic no longer."""
        self._loop.do(lambda: self._consumer.unsubscribe(topic))

    def listen(self, listener: ConcurrentListener) -> None:
        """Consume with up to ``consume_thread_max`` listeners at once, in no order."""
        self._loop.do(lambda: self._consumer.listen(listener))

    def listen_orderly(self, listener: OrderlyListener) -> None:
        """Consume each queue in order, by one member of the group alone."""
        self._loop.do(lambda: self._consumer.listen_orderly(listener))

    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Be told of a topic's queues and of our share when it changed; it may not block."""
        self._loop.do(lambda: self._consumer.register_message_queue_listener(listener))

    def start(self) -> None:
        """Join the group; returns when the first share is taken over. Once more where ``with`` did so is harmless."""
        try:
            self._loop.run(self._consumer.start())
        except MQClientError:
            if not self._closed_within:  # the first message may be all that was wanted
                raise

    def close(self) -> None:
        """Wait for listeners, persist offsets, give locks back, leave the group. A second call waits for the first.

        A listener may call it ("stop after N messages"): it returns at once, and the rest comes once the listener has
        returned. Its messages are committed as any others; a close elsewhere, as that of ``with``, waits for all of it.
        """
        if self._loop.is_current or self._consumer.is_in_listener:
            self._closed_within = True
            self._consumer.begin_no_more()
            self._loop.close_beside(self._consumer.close())
        else:
            self._loop.close(self._consumer.close())

    def suspend(self) -> None:
        """Pull nothing more until :meth:`resume`."""
        self._loop.do(self._consumer.suspend)

    def resume(self) -> None:
        """Go on pulling."""
        self._loop.do(self._consumer.resume)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the retry topic among them."""
        return self._loop.do(self._consumer.assignment)

    def offsets(self) -> dict[MessageQueue, int]:
        """How far each queue is consumed."""
        return self._loop.do(self._consumer.offsets)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._loop.run(self._consumer.queues(topic))
