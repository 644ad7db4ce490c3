"""The name of a queue of a broker, and a part of the queue."""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.model.message_queue import MessageQueue


class QueueKey(NamedTuple):
    """A queue of a broker. ``topic`` is the topic without the namespace."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        """The text for messages."""
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"


class QueueSlice(NamedTuple):
    """The messages of a queue from offset ``low`` to before ``high``; ``shown`` is the topic as rows show it."""

    queue: MessageQueue
    shown: str
    low: int
    high: int

    @property
    def name(self) -> str:
        """The queue, for messages."""
        return str(QueueKey(self.queue.broker_name, self.shown, self.queue.queue_id))
