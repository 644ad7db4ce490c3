"""The lite-pull consumer with a plain face: its event loop runs in a thread of its own.

with LitePullConsumer("127.0.0.1:9876", consumer_group="audit") as consumer:
    consumer.subscribe("TopicTest")
    for message in consumer.poll():
        ...

Source: DefaultLitePullConsumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.listeners import MessageQueueListener
from gantrymq.client.consumer.rebalance import TopicMessageQueueChangeListener
from gantrymq.client.consumer.received import ReceivedMessage
from gantrymq.client.consumer.settings import LitePullConsumerConfig
from gantrymq.client.consumer.subscription import TAG
from gantrymq.client.keywords import LitePullConsumerSettings
from gantrymq.client.loop_thread import LoopThread, close_when_dropped
from gantrymq.errors import AlreadyStartedError
from gantrymq.model.message_queue import MessageQueue


class LitePullConsumer:
    """Returns messages when polled; see :class:`gantrymq.client.consumer.async_lite_pull.AsyncLitePullConsumer`.

    ``settings`` are fields of :class:`gantrymq.client.consumer.settings.LitePullConsumerConfig`, which may stand in
    place of the name servers. ``with`` starts it; one that runs goes on, and AlreadyStartedError is raised. Thread
    rule: any thread.
    """

    def __init__(
        self, name_servers: LitePullConsumerConfig | str, **settings: Unpack[LitePullConsumerSettings]
    ) -> None:
        config = LitePullConsumerConfig.of(name_servers, settings)
        self._loop = LoopThread("lite-pull-consumer")
        self._consumer = self._loop.make(lambda: AsyncLitePullConsumer(config))
        close_when_dropped(self, self._loop, self._consumer.close)

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._consumer.enter())
        except AlreadyStartedError:
            raise  # and goes on: whoever started it closes it
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

    def start(self) -> None:
        """Join the group, and begin to fetch what is subscribed or assigned. Once more after ``with`` is harmless."""
        self._loop.run(self._consumer.start())

    def close(self) -> None:
        """Persist what was committed, and leave the group. A second call waits for the first.

        A listener of queues may call it: it returns at once, and the rest comes once the listener has returned.
        """
        if self._loop.is_current:
            self._loop.close_beside(self._consumer.close())
        else:
            self._loop.close(self._consumer.close())

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Share a topic with the group."""
        self._loop.run(self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Want a topic no longer."""
        self._loop.run(self._consumer.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Fetch these queues and no others, without regard to other members of the group."""
        self._loop.run(self._consumer.assign(queues))

    def set_sub_expression_for_assign(self, topic: str, expression: str) -> None:
        """Of assigned queues of a topic, want only these tags."""
        self._loop.do(lambda: self._consumer.set_sub_expression_for_assign(topic, expression))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are fetched now."""
        return self._loop.do(self._consumer.assignment)

    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Be told of a topic's queues and of our share when it changed; it may not block."""
        self._loop.do(lambda: self._consumer.register_message_queue_listener(listener))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Be told the queues of a topic, now and whenever they change; it may not block."""
        self._loop.do(lambda: self._consumer.register_topic_message_queue_change_listener(topic, listener))

    def fetch_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._loop.run(self._consumer.fetch_message_queues(topic))

    def poll(self, timeout_ms: int | None = None) -> list[ReceivedMessage]:
        """The messages of one pull, waited for no longer than ``timeout_ms`` (``poll_timeout_ms`` unless told).

        Where a signal's exception interrupts it, they come with the next one.
        """
        batch = self._loop.run(self._consumer.poll_batch(timeout_ms), undo=self._consumer.give_back)
        return batch.messages if batch is not None else []

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give out nothing more of these queues, and fetch nothing."""
        self._loop.do(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with these queues."""
        self._loop.do(lambda: self._consumer.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Give out a queue's messages from ``offset`` on."""
        self._loop.run(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Give out a queue from its first message on."""
        self._loop.run(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Give out only what comes to a queue from now on."""
        self._loop.run(self._consumer.seek_to_end(queue))

    def commit(self, queues: Iterable[MessageQueue] | None = None, *, persist: bool = True) -> None:
        """What was given out, of these queues or of all, is consumed; raises where ``persist`` did not come about."""
        self._loop.run(self._consumer.commit(queues, persist=persist))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int], *, persist: bool = True) -> None:
        """Everything before these offsets is consumed; raises where ``persist`` did not come about."""
        self._loop.run(self._consumer.commit_offsets(offsets, persist=persist))

    def committed(self, queue: MessageQueue) -> int | None:
        """Up to where the group has consumed a queue; None where it never committed."""
        return self._loop.run(self._consumer.committed(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        return self._loop.run(self._consumer.offset_for_timestamp(queue, timestamp_ms))
