"""The blocking lite-pull consumer. Its event loop runs in a thread of its own.

with LitePullConsumer("127.0.0.1:9876", consumer_group="audit") as consumer:
    consumer.subscribe("TopicTest")
    for message in consumer.poll():
        ...

Source: DefaultLitePullConsumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Unpack

from gantrymq.client.arguments import checked
from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer
from gantrymq.client.consumer.fetch.fetched import FetchedPull
from gantrymq.client.consumer.group.rebalance import TopicMessageQueueChangeListener
from gantrymq.client.consumer.lifecycle import BlockingGroupConsumer
from gantrymq.client.consumer.listeners import MessageQueueListener
from gantrymq.client.consumer.settings import LitePullConsumerConfig, LitePullConsumerSettings
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.client.requests.subscription import TAG
from gantrymq.model.message_queue import MessageQueue


class LitePullConsumer(BlockingGroupConsumer[AsyncLitePullConsumer]):
    """Returns messages when polled; see :class:`gantrymq.client.consumer.async_lite_pull.AsyncLitePullConsumer`.

    ``name_servers`` is the list of name servers, with fields of
    :class:`gantrymq.client.consumer.settings.LitePullConsumerConfig` as ``settings``, or a LitePullConsumerConfig.
    ``with`` starts the consumer; if it has been started before, it goes on and AlreadyStartedError is raised.

    Thread rule: any thread.
    """

    def __init__(
        self, name_servers: LitePullConsumerConfig | str, **settings: Unpack[LitePullConsumerSettings]
    ) -> None:
        config = LitePullConsumerConfig.of(name_servers, settings)
        super().__init__("lite-pull-consumer", lambda: AsyncLitePullConsumer(config))

    def close(self) -> None:
        """Persist the committed offsets, and leave the group. A second call waits for the first.

        A callback for queue changes may call it. Then it returns at once, and the close goes on after the callback.
        """
        if self._loop.is_current:
            self._loop.close_beside(self._consumer.close())
        else:
            self._loop.close(self._consumer.close())

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Subscribe to a topic with the group.

        ``expression`` is ``*``, ``TagA || TagB``, or with ``SQL92`` a condition.
        """
        self._loop.run(self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._loop.run(self._consumer.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Fetch exactly these queues, whatever other members of the group have."""
        self._loop.run(self._consumer.assign(queues))

    def set_sub_expression_for_assign(self, topic: str, expression: str, expression_type: str = TAG) -> None:
        """Set the filter of the assigned queues of a topic: tags, or with ``SQL92`` a condition."""
        self._loop.do(lambda: self._consumer.set_sub_expression_for_assign(topic, expression, expression_type))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are being fetched."""
        return self._loop.do(self._consumer.assignment)

    def register_message_queue_listener(self, listener: MessageQueueListener) -> None:
        """Register a callback for changes of the assignment. The callback must not block."""
        self._loop.do(lambda: self._consumer.register_message_queue_listener(listener))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Register a callback for changes of a topic's queues. It is called once at the start, and must not block."""
        self._loop.do(lambda: self._consumer.register_topic_message_queue_change_listener(topic, listener))

    def fetch_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic."""
        return self._loop.run(self._consumer.fetch_message_queues(topic))

    @checked
    def poll(self, timeout_ms: int | None = None) -> list[ReceivedMessage]:
        """The messages of one pull. Waits at most ``timeout_ms``, by default ``poll_timeout_ms``.

        If an exception of a signal handler interrupts it, the next poll returns the messages.
        """
        self._loop.check_open()
        self._loop.check_not_current()
        pulls: list[FetchedPull] = []
        try:
            if not self._consumer.take_ready(pulls):  # only a poll that waits costs two switches of threads
                pulls = self._loop.run(self._consumer.poll_pull(timeout_ms), undo=self._consumer.give_back)
            messages = self._consumer.polled(pulls)
        except BaseException:
            self._consumer.give_back(pulls)
            raise
        return messages

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching and returning messages of these queues."""
        self._loop.do(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Undo :meth:`pause` for these queues."""
        self._loop.do(lambda: self._consumer.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at ``offset``. Raises MQClientError if the queue has no such offset."""
        self._loop.run(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        self._loop.run(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue after its last message."""
        self._loop.run(self._consumer.seek_to_end(queue))

    def commit(self, queues: Iterable[MessageQueue] | None = None, *, persist: bool = True) -> None:
        """Commit the messages that polls have returned, of these queues or of all. Raises if ``persist`` fails."""
        self._loop.run(self._consumer.commit(queues, persist=persist))

    def commit_offsets(self, offsets: Mapping[MessageQueue, int], *, persist: bool = True) -> None:
        """Commit these offsets: everything before them is consumed. Raises if ``persist`` fails."""
        self._loop.run(self._consumer.commit_offsets(offsets, persist=persist))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None if the group has never committed one."""
        return self._loop.run(self._consumer.committed(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after ``timestamp_ms``."""
        return self._loop.run(self._consumer.offset_for_timestamp(queue, timestamp_ms))
