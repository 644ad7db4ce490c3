"""What a decision needs of a half message: read from the log, or kept since the half message was stored.

The obvious way to commit is to read the half message from the log, to decode its properties, and to encode those of
the final message. That took a third of the event loop's time for a transaction. But most decisions arrive within
milliseconds, and body and properties of a final message are bytes that arrived with its half message. So these bytes
are kept for the newest half messages (:class:`gantrymq.broker.transactions.decisions.Decisions`).

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.appends.wire_messages import WireMessage
from gantrymq.broker.transactions.half_messages import RESERVED_BYTES, final_message, real_queue
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.model.flags import TRANSACTION_MASK
from gantrymq.model.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    StoredMessage,
)
from gantrymq.store.log.appendable import Appendable, AppendableMessage

_OBJECT_BYTES = 1024  # the memory of a prepared message without its body and properties, about


class OpenHalf(NamedTuple):
    """What a decision on a half message needs of it.

    ``immunity_s`` is the text of CHECK_IMMUNITY_TIME_IN_SECONDS. ``final()`` is what a commit puts.
    """

    queue_id: int
    queue_offset: int
    producer_group: str | None
    real_queue: tuple[str, int] | None
    born_timestamp_ms: int
    immunity_s: str | None
    final: Callable[[], Appendable]


def open_half(half: StoredMessage) -> OpenHalf:
    """What a decision needs, from a half message in the log."""
    queue, properties = real_queue(half), half.properties

    def final() -> Appendable:
        assert queue is not None, "a half message without a real queue is not committed"
        return AppendableMessage(final_message(half, *queue))

    return OpenHalf(
        half.queue_id,
        half.queue_offset,
        properties.get(PROPERTY_PRODUCER_GROUP),
        queue,
        half.born_timestamp_ms,
        properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS),
        final,
    )


class PreparedMessage:
    """A prepared message whose half and final messages are made of the bytes that arrived, without decoding them.

    ``final`` is the message of its topic; its ``properties`` are those of a half message without the real queue.
    """

    __slots__ = ("final", "producer_group")

    def __init__(self, final: WireMessage, producer_group: str) -> None:
        self.final, self.producer_group = final, producer_group

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about."""
        return len(self.final.body) + len(self.final.properties) + _OBJECT_BYTES

    def half(self, *, wait_store_msg_ok: bool) -> WireMessage | None:
        """The half message, as :func:`half_message` makes it. None if a check could not put it back."""
        final = self.final
        queue = f"{PROPERTY_REAL_TOPIC}\x01{final.topic}\x02{PROPERTY_REAL_QUEUE_ID}\x01{final.queue_id}\x02"
        properties = final.properties + queue.encode()
        if len(properties) + CRC_PROPERTY_SIZE + RESERVED_BYTES > MAX_PROPERTIES_LENGTH:
            return None
        return WireMessage(
            names.TRANS_HALF_TOPIC,
            final.body,
            0,
            final.sys_flag & ~TRANSACTION_MASK,
            final.born_timestamp_ms,
            final.born_host,
            final.reconsume_times,
            wait_store_msg_ok,
            final.flag,
            properties,
        )

    def stored(self, queue_offset: int, phy_offset: int) -> OpenHalf:
        """What a decision needs, once the half message is in the log."""
        final = self.final
        final.prepared_transaction_offset = phy_offset
        return OpenHalf(
            0,
            queue_offset,
            self.producer_group,
            (final.topic, final.queue_id),
            final.born_timestamp_ms,
            None,
            lambda: final,
        )
