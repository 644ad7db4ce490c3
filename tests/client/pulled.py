"""A queue and its messages as they were pulled, for tests of consumers."""

from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.model.host import Host
from gantrymq.model.message_queue import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
HOST = Host(b"\x7f\x00\x00\x01", 10911)


def message(offset: int, body: bytes = b"x", topic: str = "T", **properties: str) -> ReceivedMessage:
    return ReceivedMessage(topic, 0, offset, 1000 + offset, 100, 0, 0, 0, HOST, 0, HOST, 0, 0, 0, body, properties)
