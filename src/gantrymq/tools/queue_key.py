"""The name of a queue of a broker."""

from __future__ import annotations

from typing import NamedTuple


class QueueKey(NamedTuple):
    """A queue of a broker. ``topic`` is the topic without the namespace."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        """The text for messages."""
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"
