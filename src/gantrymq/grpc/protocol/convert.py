"""A stored message as the protocol's Message.

Source: GrpcConverter.
"""

from __future__ import annotations

import hashlib
from typing import Any

from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX, SEPARATOR
from gantrymq.grpc.protocol.codes import DigestType, Encoding, GrpcMessageType
from gantrymq.grpc.protocol.messages import EARLIEST_MS, LATEST_MS, Message, set_ms
from gantrymq.model import message as names
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number
from gantrymq.model.message import StoredMessage

# The names that are no user properties (MessageConst.STRING_HASH_SET).
RESERVED = frozenset(
    {
        *(names.PROPERTY_TRACE_SWITCH, names.PROPERTY_MSG_REGION, names.PROPERTY_KEYS, names.PROPERTY_TAGS),
        *(names.PROPERTY_WAIT, names.PROPERTY_DELAY, names.PROPERTY_RETRY_TOPIC, names.PROPERTY_ORIGIN_GROUP),
        *(names.PROPERTY_REAL_TOPIC, names.PROPERTY_REAL_QUEUE_ID, names.PROPERTY_TRANSACTION_PREPARED),
        *(names.PROPERTY_PRODUCER_GROUP, names.PROPERTY_ORIGIN_MESSAGE_ID, names.PROPERTY_RECONSUME_TIME),
        *(names.PROPERTY_UNIQ_KEY, names.PROPERTY_MAX_RECONSUME_TIMES, names.PROPERTY_POP_CK),
        *(names.PROPERTY_FIRST_POP_TIME, names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, names.PROPERTY_INSTANCE_ID),
        *(names.PROPERTY_CORRELATION_ID, names.PROPERTY_REPLY_TO_CLIENT, names.PROPERTY_TTL),
        *(names.PROPERTY_REPLY_ARRIVE_TIME, names.PROPERTY_PUSH_REPLY_TIME, names.PROPERTY_CLUSTER),
        *(names.PROPERTY_MESSAGE_TYPE, names.PROPERTY_INNER_MULTI_QUEUE_OFFSET, *names.TIMER_PROPERTIES),
        *(names.PROPERTY_TIMER_ENQUEUE_MS, names.PROPERTY_TIMER_DEQUEUE_MS, names.PROPERTY_TIMER_ROLL_TIMES),
        *(names.PROPERTY_TIMER_OUT_MS, names.PROPERTY_TIMER_DEL_UNIQKEY, names.PROPERTY_BORN_HOST),
        *(names.PROPERTY_BORN_TIMESTAMP, names.PROPERTY_DLQ_ORIGIN_TOPIC, names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID),
        *(names.PROPERTY_CRC32, names.PROPERTY_PRIORITY, names.PROPERTY_LITE_TOPIC, names.PROPERTY_TRANSFER_FLAG),
        *("MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "CORRECTION_FLAG", "MQ2_FLAG", "CONSUME_START_TIME"),
        *("POP_CK_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "TIMER_DELAY_LEVEL"),
    }
)


def message_type(properties: dict[str, str]) -> GrpcMessageType:
    """The kind of a message with these properties (TopicMessageType.parseFromMessageProperty)."""
    if properties.get(names.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return GrpcMessageType.TRANSACTION
    if names.PROPERTY_DELAY in properties or any(name in properties for name in names.TIMER_PROPERTIES):
        return GrpcMessageType.DELAY
    if names.PROPERTY_SHARDING_KEY in properties:
        return GrpcMessageType.FIFO
    if names.PROPERTY_PRIORITY in properties:
        return GrpcMessageType.PRIORITY
    return GrpcMessageType.LITE if names.PROPERTY_LITE_TOPIC in properties else GrpcMessageType.NORMAL


def to_message(stored: StoredMessage, now_ms: int, receipt_handle: str = "") -> Any:
    """The Message for clients. The body stays compressed, and says so."""
    made, properties = Message(body=stored.body), stored.properties
    set_resource(made.topic, stored.topic)
    for name, value in properties.items():
        if name not in RESERVED:
            made.user_properties[name] = value
    system = made.system_properties
    if names.PROPERTY_TAGS in properties:
        system.tag = properties[names.PROPERTY_TAGS]
    system.keys.extend(stored.keys)
    system.message_id = properties.get(names.PROPERTY_UNIQ_KEY) or stored.msg_id
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.GZIP if stored.sys_flag & COMPRESSED else Encoding.IDENTITY
    system.message_type = message_type(properties)
    _set_time(system.born_timestamp, stored.born_timestamp_ms)
    system.born_host = properties.get(names.PROPERTY_BORN_HOST) or str(stored.born_host).rpartition(":")[0]
    _set_time(system.store_timestamp, stored.store_timestamp_ms)
    system.store_host = str(stored.store_host)
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times + 1, INT_MAX)
    if receipt_handle:
        system.receipt_handle = receipt_handle
    _set_optional(system, properties, now_ms)
    return made


def _set_optional(system: Any, properties: dict[str, str], now_ms: int) -> None:
    """The fields that only some messages have."""
    delay_s = _number(properties.get(names.PROPERTY_TIMER_DELAY_SEC), LONG_MAX // 1_000_000)
    deliver_ms = _number(properties.get(names.PROPERTY_TIMER_DELIVER_MS), LONG_MAX)
    if delay_s >= 0:
        _set_time(system.delivery_timestamp, now_ms + delay_s * 1000)
    elif deliver_ms >= 0:
        _set_time(system.delivery_timestamp, deliver_ms)
    priority = _number(properties.get(names.PROPERTY_PRIORITY), INT_MAX)
    if priority >= 0:
        system.priority = priority
    if names.PROPERTY_SHARDING_KEY in properties:
        system.message_group = properties[names.PROPERTY_SHARDING_KEY]
    if names.PROPERTY_LITE_TOPIC in properties:
        system.lite_topic = properties[names.PROPERTY_LITE_TOPIC]
    if names.PROPERTY_TRACE_CONTEXT in properties:
        system.trace_context = properties[names.PROPERTY_TRACE_CONTEXT]
    origin = properties.get(names.PROPERTY_DLQ_ORIGIN_TOPIC)
    origin_id = properties.get(names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    if origin is not None and origin_id is not None:
        system.dead_letter_queue.topic, system.dead_letter_queue.message_id = origin, origin_id


def set_resource(resource: Any, full_name: str) -> None:
    """Set a Resource: the namespace, and the name without it."""
    prefix = next(
        (known_prefix for known_prefix in (RETRY_PREFIX, DLQ_PREFIX) if full_name.startswith(known_prefix)), ""
    )
    namespace, separator, rest = full_name[len(prefix) :].partition(SEPARATOR)
    if separator and namespace and rest:
        resource.resource_namespace, resource.name = namespace, prefix + rest
    else:
        resource.name = full_name


def _set_time(field: Any, milliseconds: int) -> None:
    """Set a Timestamp. A time that none may have becomes the nearest one, because SDKs cannot read it."""
    set_ms(field, min(max(milliseconds, EARLIEST_MS), LATEST_MS))


def _number(text: str | None, max_value: int) -> int:
    """A number that is not negative, or -1."""
    if not text:
        return -1
    try:
        return parse_number(text, max_value)
    except ValueError:
        return -1
