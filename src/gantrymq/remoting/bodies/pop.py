"""The body of BATCH_ACK_MESSAGE."""

import base64
import binascii
from typing import Any

from msgspec import field

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long

_LONG_NAMES = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAck(Body, kw_only=True):
    """Acknowledged messages of one pop from one queue.

    ``retry`` is the mark of the topic in the receipt handles. ``bit_set`` has the bytes of a Java BitSet in base 64.
    Bit i is the message at ``start_offset`` + i.
    """

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    retry: str = field(name="r", default="0")
    start_offset: Long = field(name="so", default=0)
    queue_id: Int = field(name="q", default=0)
    revive_queue_id: Int = field(name="rq", default=0)
    pop_time: Long = field(name="pt", default=0)
    invisible_time: Long = field(name="it", default=0)
    bit_set: str | None = field(name="b", default=None)

    def bits(self, max_count: int) -> list[int]:
        """The numbers of the bits that are set.

        Raises RemotingCommandError if a number is ``max_count`` or above, or the text is no base 64.

        The text's length is checked before it is decoded.
        """
        text = self.bit_set or ""
        if len(text) > 4 * (max_count // 24 + 2):
            raise RemotingCommandError(f"the acknowledged offsets of a pop are more than {max_count}")
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RemotingCommandError(f"the acknowledged offsets of a pop cannot be read: {error}") from None
        bits = [8 * at + bit for at, byte in enumerate(raw) if byte for bit in range(8) if byte >> bit & 1]
        if bits and bits[-1] >= max_count:
            raise RemotingCommandError(f"bit {bits[-1]} of the acknowledged offsets is above {max_count - 1}")
        return bits


def encode_bits(bits: list[int]) -> str:
    """The text of a BitSet (``bit_set``) with ``bits`` set. No bit is negative."""
    raw = bytearray(max(bits, default=-1) // 8 + 1)
    for bit in bits:
        raw[bit // 8] |= 1 << bit % 8
    return base64.b64encode(raw).decode()


class BatchAckMessageRequestBody(Body, kw_only=True):
    """The body of BATCH_ACK_MESSAGE: acknowledgements for one broker."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)

    @classmethod
    def named(cls, value: Any) -> Any:
        """The value with the short names of the fields; RocketMQ reads the long ones as well."""
        acks = value.get("acks") if isinstance(value, dict) else None
        if isinstance(acks, list):
            value["acks"] = [_with_short_names(ack) for ack in acks]
        return value


def _with_short_names(ack: Any) -> Any:
    return {_LONG_NAMES.get(key, key): value for key, value in ack.items()} if isinstance(ack, dict) else ack
