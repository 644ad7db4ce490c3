"""The one walk through the queues of a topic and of its retry topics, for pops, peeks and notifications.

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.checks import OfQueues
from gantrymq.broker.pop.records import retry_topic
from gantrymq.broker.tables.topics import TopicConfigManager, queue_ids
from gantrymq.remoting.bodies.topic import TopicConfig


def retry_topics(topics: TopicConfigManager, header: OfQueues, versions_2: Iterable[bool]) -> list[TopicConfig]:
    """The retry topics of a request's group that exist, of version 2 (True) and of version 1 (False)."""
    names = (retry_topic(header.topic, header.consumer_group, is_v2=is_v2) for is_v2 in versions_2)
    return [topic for name in names if (topic := topics.get(name)) is not None]


@dataclass(frozen=True, slots=True)
class QueueWalk:
    """The queues of a request in their order. ``first`` shifts the begin in each topic.

    The queues of ``retries`` come last, or first with ``is_retry_first``.
    """

    topic: TopicConfig
    retries: Sequence[TopicConfig]
    first: int
    is_descending: bool = False
    is_retry_first: bool = False

    def queues(
        self, header: OfQueues, has_room: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[PoppedQueue, bool]]:
        """Each queue, and whether it is one of a retry topic.

        ``has_room`` is called after the other queues: without room the last retry topics are left out.
        """
        group = header.consumer_group
        if self.is_retry_first:
            yield from self._retry_queues(group)
        if header.queue_id >= 0:
            yield PoppedQueue(header.topic, group, header.queue_id), False
        else:
            yield from ((queue, False) for queue in self._queues_of(self.topic, group))
        if not self.is_retry_first and has_room():
            yield from self._retry_queues(group)

    def _retry_queues(self, group: str) -> Iterator[tuple[PoppedQueue, bool]]:
        for retry in self.retries:
            yield from ((queue, True) for queue in self._queues_of(retry, group))

    def _queues_of(self, topic: TopicConfig, group: str) -> Iterator[PoppedQueue]:
        name = str(topic.topic_name)
        numbers = queue_ids(name, topic.read_queue_nums)
        for number in reversed(numbers) if self.is_descending else numbers:
            yield PoppedQueue(name, group, (number + self.first) % len(numbers))
