"""The address of a queue: topic, broker and number (RocketMQ's MessageQueue)."""

from msgspec import Struct

MAX_QUEUES = 1 << 16  # of a topic; a server or a file with a larger number is wrong, and each queue costs memory


class MessageQueue(Struct, frozen=True, order=True, rename="camel"):
    """A queue of a topic on a broker. Sorts by topic, broker and number, as in RocketMQ."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """``topic@broker:number``."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
