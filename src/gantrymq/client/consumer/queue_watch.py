"""Telling those who want to know which queues a topic has, now and whenever that changes.

Source: DefaultLitePullConsumerImpl.fetchTopicMessageQueuesAndCompareLoop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger
from gantrymq.model.message_queue import MessageQueue

# Told the queues of a topic whenever they are others than before.
TopicMessageQueueChangeListener = Callable[[str, frozenset[MessageQueue]], None]

log = get_logger("gantrymq.client.consumer")


class QueueWatch:
    """One listener a topic; ``fetch`` says its queues. Thread rule: the event loop's thread."""

    def __init__(self, fetch: Callable[[str], Awaitable[tuple[MessageQueue, ...]]], interval_ms: int) -> None:
        self._fetch, self._interval_s = fetch, interval_ms / 1000
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}

    @property
    def topics(self) -> list[str]:
        """Those that somebody wants to know of."""
        return list(self._listeners)

    def register(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """From now on tell this one, in the place of another."""
        self._listeners[topic] = listener

    def follow(self, topic: str) -> Coroutine[None, None, None]:
        """What tells the listener that the topic has now; until it has another, or this is cancelled."""
        return self._tell(topic, self._listeners[topic])

    async def _tell(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        before: frozenset[MessageQueue] | None = None
        while self._listeners[topic] is listener:
            try:
                queues = frozenset(await self._fetch(topic))
                if queues != before:
                    before = queues
                    listener(topic, queues)
            except GantrymqError as error:
                log.warning("the queues of a topic are not known", topic=topic, reason=str(error))
            except Exception as error:  # a listener's own: the next change is told all the same
                log.error("who was told of a topic's queues failed", topic=topic, exc_info=error)
            await asyncio.sleep(self._interval_s)
