"""Turns a message with a due time into a timer message, and a timer message into its delivery.

The due time is rounded down to timerPrecisionMs, and one that is a multiple of it is moved back by one precision, as in
RocketMQ. A slot is delivered when the next slot begins, so the message is on time and never early.

Thread rule: plain functions.

Source: HookUtils.handleScheduleMessage, TimerMessageStore.convert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_properties
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number
from gantrymq.model.message import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQ_KEY,
    TIMER_PROPERTIES,
    TIMER_TOPIC,
    Message,
    StoredMessage,
    message_for_queue,
)
from gantrymq.model.status import PutMessageStatus

# The bytes that deliveries and rolls add to the properties of a waiting message.
_RESERVED_BYTES = CRC_PROPERTY_SIZE + sum(
    len(name) + len(str(max_value)) + 2
    for name, max_value in (
        (PROPERTY_TIMER_ENQUEUE_MS, LONG_MAX),
        (PROPERTY_TIMER_DEQUEUE_MS, LONG_MAX),
        (PROPERTY_TIMER_ROLL_TIMES, INT_MAX),
    )
)
_MAX_BYTES_A_CHARACTER = 4
NEVER_ENQUEUED_MS = LONG_MAX  # TIMER_ENQUEUE_MS of a message that was due when it was read from the timer topic


def is_timer_message(topic: str, properties: dict[str, str]) -> bool:
    """Whether a message requests a due time that is not resolved yet (checkIfTimerMessage)."""
    return (
        topic != TIMER_TOPIC
        and PROPERTY_TIMER_OUT_MS not in properties
        and any(name in properties for name in TIMER_PROPERTIES)
    )


def set_timer(
    message: Message, config: MessageStoreConfig, now_ms: int, is_rejected: Callable[[int], bool]
) -> PutMessageStatus:
    """Turn a message with a due time in the future into one of the timer topic. PUT_OK unless it is rejected.

    ``is_rejected(slot_ms)`` is flow control. A message that is already due is not changed. One whose properties leave
    no room for those of its delivery is rejected; RocketMQ acknowledges it and never delivers it.
    (transformTimerMessage)
    """
    properties = message.properties
    try:
        deliver_ms = _deliver_ms(properties, now_ms)
    except ValueError:
        return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
    if deliver_ms <= now_ms:
        is_deletion = PROPERTY_TIMER_DEL_UNIQKEY in properties
        return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL if is_deletion else PutMessageStatus.PUT_OK
    if deliver_ms - now_ms > config.timer_max_delay_s * 1000:
        return PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
    slot_ms = (deliver_ms - 1) // config.timer_precision_ms * config.timer_precision_ms
    if is_rejected(slot_ms):
        return PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL
    properties[PROPERTY_TIMER_OUT_MS] = str(slot_ms)
    properties[PROPERTY_REAL_TOPIC], properties[PROPERTY_REAL_QUEUE_ID] = message.topic, str(message.queue_id)
    # It could wait, but its delivery could not be stored. Encoding is only for properties that may be too long.
    longest = sum(map(len, properties)) + sum(map(len, properties.values())) + len(properties)
    if (
        longest * _MAX_BYTES_A_CHARACTER > MAX_PROPERTIES_LENGTH - _RESERVED_BYTES
        and len(encode_properties(properties)) + _RESERVED_BYTES > MAX_PROPERTIES_LENGTH
    ):
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    message.topic, message.queue_id = TIMER_TOPIC, 0
    return PutMessageStatus.PUT_OK


def _deliver_ms(properties: dict[str, str], now_ms: int) -> int:
    if (seconds := properties.get(PROPERTY_TIMER_DELAY_SEC)) is not None:
        return now_ms + parse_number(seconds, LONG_MAX) * 1000
    if (delay_ms := properties.get(PROPERTY_TIMER_DELAY_MS)) is not None:
        return now_ms + parse_number(delay_ms, LONG_MAX)
    return parse_number(properties.get(PROPERTY_TIMER_DELIVER_MS, ""), LONG_MAX)


def due_ms(message: StoredMessage | None) -> int | None:
    """TIMER_OUT_MS of a record of the timer topic; None for other records, and without a time or topic."""
    return due_ms_in(message.topic, message.properties) if message is not None else None


def due_ms_in(topic: str, properties: Mapping[str, str]) -> int | None:
    """As :func:`due_ms`, of a record with this topic and these properties."""
    if topic != TIMER_TOPIC or PROPERTY_REAL_TOPIC not in properties:
        return None
    try:
        return max(parse_number(properties.get(PROPERTY_TIMER_OUT_MS, ""), LONG_MAX), 0)
    except ValueError:
        return None


def delete_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """The TIMER_DEL_UNIQKEY that recalls a message (buildDeleteKey)."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def key_of(properties: Mapping[str, str], *, with_topic: bool) -> str | None:
    """The TIMER_DEL_UNIQKEY that recalls a record of the timer topic; None if its properties have no UNIQ_KEY."""
    unique_key = properties.get(PROPERTY_UNIQ_KEY)
    return (
        delete_key(properties.get(PROPERTY_REAL_TOPIC, ""), unique_key, with_topic=with_topic) if unique_key else None
    )


def to_deliver(message: StoredMessage, enqueue_ms: int, now_ms: int, *, rolls: bool) -> Message | None:
    """The message to store when the slot of a timer record is due; None if the record does not name its topic.

    Its topic is the real one, or with ``rolls`` the timer topic again. REAL_TOPIC and REAL_QID stay, as in RocketMQ:
    convertMessage removes them after it has encoded the properties. (convert, convertMessage)
    """
    properties = dict(message.properties)
    topic, queue_id = properties[PROPERTY_REAL_TOPIC], _number(properties.get(PROPERTY_REAL_QUEUE_ID, ""))
    if queue_id < 0:
        return None
    properties[PROPERTY_TIMER_ENQUEUE_MS], properties[PROPERTY_TIMER_DEQUEUE_MS] = str(enqueue_ms), str(now_ms)
    if rolls:
        properties[PROPERTY_TIMER_ROLL_TIMES] = str(max(_number(properties.get(PROPERTY_TIMER_ROLL_TIMES, "0")), 0) + 1)
        topic, queue_id = TIMER_TOPIC, 0
    return message_for_queue(message, topic, queue_id, properties)


def _number(text: str) -> int:
    """The number in ``text``; -1 if there is none."""
    try:
        return parse_number(text, INT_MAX)
    except ValueError:
        return -1
