"""The records of a transaction, and how each is made from another.

A prepared message becomes a half message in RMQ_SYS_TRANS_HALF_TOPIC, which no consumer reads. A commit puts its final
message into the real topic. An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC names the queue offsets of half messages that
are decided, ended by commas; one of 4.9.8 names a single offset. A half message that is checked is put back behind the
others with one check more; after the last check it goes to TRANS_CHECK_MAX_TIME_TOPIC.

Pure: no I/O, no clock.

Source: TransactionalMessageBridge, TransactionalMessageUtil, EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner, MessageDecoder.encode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gantrymq.broker import names
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_properties
from gantrymq.format.record import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH_V1, encode_record
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX, LONG_MAX, encode_utf8, parse_number
from gantrymq.model.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
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

REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","
# What a put back adds to the properties: the checks, and the offset of the first record. A half message leaves room.
_RESERVED_BYTES = sum(
    len(name) + len(str(most)) + 2
    for name, most in (
        (PROPERTY_TRANSACTION_CHECK_TIMES, INT_MAX),
        (PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, LONG_MAX),
    )
)
_NO_NUMBER = -1


def half_message(prepared: Message) -> Message:
    """The half message of a prepared one (parseHalfMessageInner)."""
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
    """Whether the properties of a half message leave room for those that a put back adds."""
    return _fits(half.properties, _RESERVED_BYTES)


def fits(message: Message) -> bool:
    """Whether a record has room for the properties of a message."""
    return _fits(message.properties, 0)


def real_queue(half: StoredMessage) -> tuple[str, int] | None:
    """The topic and queue that a half message is for; None where it does not say so."""
    topic, queue_id = half.properties.get(PROPERTY_REAL_TOPIC), number(half.properties.get(PROPERTY_REAL_QUEUE_ID))
    return (topic, queue_id) if topic and 0 <= queue_id <= INT_MAX else None


def final_message(half: StoredMessage, topic: str, queue_id: int) -> Message:
    """What a commit puts into the real topic. TRAN_MSG stays, as RocketMQ stores it."""
    properties = dict(half.properties)
    properties.pop(PROPERTY_REAL_TOPIC, None)
    properties.pop(PROPERTY_REAL_QUEUE_ID, None)
    final = message_for_queue(half, topic, queue_id, properties)
    final.sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    final.prepared_transaction_offset = half.phy_offset
    return final


def checked_message(half: StoredMessage, times: int) -> Message:
    """The half message as it is put back for another check.

    RocketMQ drops its flag and its reconsumeTimes then.
    """
    return message_for_queue(half, names.TRANS_HALF_TOPIC, half.queue_id, _with_times(half, times))


def immune_message(half: StoredMessage) -> Message:
    """The half message as it is put back because its first check is not due.

    It names the queue offset of its first record, which its producer knows. RocketMQ counts a check, too.
    """
    properties = dict(half.properties)
    properties.setdefault(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return message_for_queue(half, names.TRANS_HALF_TOPIC, half.queue_id, properties)


def discarded_message(half: StoredMessage) -> Message:
    """What goes to TRANS_CHECK_MAX_TIME_TOPIC of a half message that was checked often enough."""
    return message_for_queue(half, names.TRANS_CHECK_MAX_TIME_TOPIC, 0, dict(half.properties))


def resumed_message(discarded: StoredMessage) -> Message:
    """The half message that RESUME_CHECK_HALF_MESSAGE makes of a discarded one, without checks."""
    return message_for_queue(discarded, names.TRANS_HALF_TOPIC, 0, _with_times(discarded, 0))


def op_message(queue_id: int, body: bytes, now_ms: int, host: Host) -> Message:
    """The op message that says which half messages of a queue are decided (makeOpMessageInner)."""
    return Message(
        names.TRANS_OP_HALF_TOPIC,
        body,
        queue_id,
        properties={PROPERTY_WAIT: "true", PROPERTY_TAGS: REMOVE_TAG},
        born_timestamp_ms=now_ms,
        born_host=host,
        wait_store_msg_ok=False,
    )


def op_body(offsets: Sequence[int]) -> bytes:
    """The body of an op message."""
    return "".join(f"{offset}{OFFSET_SEPARATOR}" for offset in offsets).encode()


def decided_offsets(op: StoredMessage) -> Iterator[int]:
    """The queue offsets that an op message names; none where its tag is another one. Other texts are passed over."""
    if op.tags != REMOVE_TAG:
        return
    for text in op.body.decode("ascii", "replace").split(OFFSET_SEPARATOR):
        if (offset := number(text)) >= 0:
            yield offset


def check_times(half: StoredMessage) -> int:
    """How often a half message was checked."""
    return max(number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)), 0)


def is_checked_enough(half: StoredMessage, most: int) -> bool:
    """Whether a half message was checked ``most`` times, or more. One that was never checked is checked once."""
    return PROPERTY_TRANSACTION_CHECK_TIMES in half.properties and check_times(half) >= most


def immunity_ms(half: StoredMessage, timeout_ms: int) -> int | None:
    """How long after its birth a half message is not checked, where its producer has set that; else None."""
    text = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = number(text)
    return seconds * 1000 if seconds >= 0 else timeout_ms


def first_offset(half: StoredMessage) -> int:
    """The queue offset of the first record of a half message that was put back while it was immune; else -1."""
    return number(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))


def wire_record(half: StoredMessage, topic: str, queue_id: int) -> bytes:
    """The body of CHECK_TRANSACTION_STATE: the half message as a record of its real queue."""
    raw = encode_utf8(topic)
    version = 1 if len(raw) <= MAX_TOPIC_LENGTH_V1 else 2
    real = replace(half, topic=topic, queue_id=queue_id, version=version)
    return encode_record(real, raw, encode_properties(half.properties))


def number(text: str | None) -> int:
    """The number of a property that is not negative; -1 where it has none."""
    try:
        return max(parse_number(text or "", LONG_MAX), _NO_NUMBER)
    except ValueError:
        return _NO_NUMBER


def _fits(properties: dict[str, str], reserved_bytes: int) -> bool:
    return len(encode_properties(properties)) + CRC_PROPERTY_SIZE + reserved_bytes <= MAX_PROPERTIES_LENGTH


def _with_times(half: StoredMessage, times: int) -> dict[str, str]:
    return {**half.properties, PROPERTY_TRANSACTION_CHECK_TIMES: str(times)}
