"""The address of a queue: topic, broker and number (RocketMQ's MessageQueue)."""

from msgspec import Struct

MOST_QUEUES = 1 << 16  # of a topic; whoever tells more, a server or a file, is wrong, and each would cost memory


class MessageQueue(Struct, frozen=True, order=True, rename="camel"):
    """A queue of a topic on a broker; sorts as RocketMQ's does: by topic, broker, number."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """``topic@broker:number``, for people."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
