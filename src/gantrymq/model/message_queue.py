"""The address of a queue: topic, broker and number (RocketMQ's MessageQueue)."""

from msgspec import Struct


class MessageQueue(Struct, frozen=True, order=True, rename="camel"):
    """A queue of a topic on a broker. Sorts by topic, broker and number, as in RocketMQ."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """``topic@broker:number``."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
