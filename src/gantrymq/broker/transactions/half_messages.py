"""The messages of a transaction, and their conversions into each other.

A prepared message becomes a half message in RMQ_SYS_TRANS_HALF_TOPIC, which no consumer reads. A commit puts the final
message into the real topic. An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC names decided half messages
(:mod:`gantrymq.format.op_message`). A half message that is checked is put back at
the end of its queue with its number of checks plus 1. After the last check it goes to TRANS_CHECK_MAX_TIME_TOPIC.

Pure: no I/O, no clock.

Source: TransactionalMessageBridge, EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner, MessageDecoder.encode.
"""

from __future__ import annotations

from dataclasses import replace

from gantrymq.broker import names
from gantrymq.format.op_message import REMOVE_TAG, number
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_properties
from gantrymq.format.record import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH_V1, encode_record
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX, LONG_MAX, encode_utf8
from gantrymq.model.message import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
    StoredMessage,
    message_for_queue,
)

# The bytes that putting back adds to the properties: number of checks, offset of the first record.
RESERVED_BYTES = sum(
    len(name) + len(str(max_value)) + 2
    for name, max_value in (
        (PROPERTY_TRANSACTION_CHECK_TIMES, INT_MAX),
        (PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, LONG_MAX),
    )
)


def half_message(prepared: Message) -> Message:
    """The half message of a prepared message (parseHalfMessageInner)."""
    properties = dict(prepared.properties)
    if unique_key := properties.get(PROPERTY_UNIQ_KEY):
        properties[PROPERTY_TRANSACTION_ID] = unique_key
    properties[PROPERTY_REAL_TOPIC] = prepared.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(prepared.queue_id)
    return replace(
        prepared,
        topic=names.TRANS_HALF_TOPIC,
        queue_id=0,
        properties=properties,
        delay_level=0,
        sys_flag=prepared.sys_flag & ~TRANSACTION_MASK,
    )


def can_be_put_back(half: Message) -> bool:
    """Whether the properties of a half message leave room for those that putting it back adds."""
    return _fits(half.properties, RESERVED_BYTES)


def fits(message: Message) -> bool:
    """Whether a record has room for the properties of a message."""
    return _fits(message.properties, 0)


def real_queue(half: StoredMessage) -> tuple[str, int] | None:
    """The real topic and queue of a half message; None if its properties do not name them."""
    topic, queue_id = half.properties.get(PROPERTY_REAL_TOPIC), number(half.properties.get(PROPERTY_REAL_QUEUE_ID))
    return (topic, queue_id) if topic and 0 <= queue_id <= INT_MAX else None


def final_message(half: StoredMessage, topic: str, queue_id: int) -> Message:
    """The message that a commit puts into the real topic. TRAN_MSG stays, as in RocketMQ."""
    properties = dict(half.properties)
    properties.pop(PROPERTY_REAL_TOPIC, None)
    properties.pop(PROPERTY_REAL_QUEUE_ID, None)
    final = message_for_queue(half, topic, queue_id, properties)
    final.sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    final.prepared_transaction_offset = half.phy_offset
    return final


def checked_message(half: StoredMessage, times: int) -> Message:
    """The half message to put back for another check.

    RocketMQ drops the flag and the reconsumeTimes of it.
    """
    return message_for_queue(half, names.TRANS_HALF_TOPIC, half.queue_id, _with_times(half, times))


def immune_message(half: StoredMessage) -> Message:
    """The half message to put back because its first check is not due.

    It names the queue offset of its first record, which its producer knows. RocketMQ also counts this as a check.
    """
    properties = dict(half.properties)
    properties.setdefault(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return message_for_queue(half, names.TRANS_HALF_TOPIC, half.queue_id, properties)


def discarded_message(half: StoredMessage) -> Message:
    """The message for TRANS_CHECK_MAX_TIME_TOPIC, made from a half message after its last check."""
    return message_for_queue(half, names.TRANS_CHECK_MAX_TIME_TOPIC, 0, dict(half.properties))


def resumed_message(discarded: StoredMessage) -> Message:
    """The half message that RESUME_CHECK_HALF_MESSAGE makes from a discarded one. Its checks count from 0 again."""
    return message_for_queue(discarded, names.TRANS_HALF_TOPIC, 0, _with_times(discarded, 0))


def op_message(queue_id: int, body: bytes, now_ms: int, host: Host) -> Message:
    """The op message that names decided half messages of a queue (makeOpMessageInner)."""
    return Message(
        names.TRANS_OP_HALF_TOPIC,
        body,
        queue_id,
        properties={PROPERTY_WAIT: "true", PROPERTY_TAGS: REMOVE_TAG},
        born_timestamp_ms=now_ms,
        born_host=host,
        wait_store_msg_ok=False,
    )


def check_times(half: StoredMessage) -> int:
    """The number of checks of a half message so far."""
    return max(number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)), 0)


def is_checked_enough(half: StoredMessage, max_checks: int) -> bool:
    """Whether a half message was checked ``max_value`` times or more. Each message is checked at least once."""
    return PROPERTY_TRANSACTION_CHECK_TIMES in half.properties and check_times(half) >= max_checks


def immunity_ms(text: str | None, timeout_ms: int) -> int | None:
    """The time after its birth during which a half message is not checked, in ms; None unless its producer set one.

    ``text`` is its CHECK_IMMUNITY_TIME_IN_SECONDS.
    """
    if text is None:
        return None
    seconds = number(text)
    return seconds * 1000 if seconds >= 0 else timeout_ms


def first_offset(half: StoredMessage) -> int:
    """The queue offset of the first record of a half message that was put back before its first check; else -1."""
    return number(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))


def wire_record(half: StoredMessage, topic: str, queue_id: int) -> bytes:
    """The body of CHECK_TRANSACTION_STATE: the half message as a record of its real queue."""
    raw = encode_utf8(topic)
    version = 1 if len(raw) <= MAX_TOPIC_LENGTH_V1 else 2
    real = replace(half, topic=topic, queue_id=queue_id, version=version)
    return encode_record(real, raw, encode_properties(half.properties))


def _fits(properties: dict[str, str], reserved_bytes: int) -> bool:
    return len(encode_properties(properties)) + CRC_PROPERTY_SIZE + reserved_bytes <= MAX_PROPERTIES_LENGTH


def _with_times(half: StoredMessage, times: int) -> dict[str, str]:
    return {**half.properties, PROPERTY_TRANSACTION_CHECK_TIMES: str(times)}
