"""What a message becomes before it is a record: its topic, queue and properties, checked and encoded.

Source: HookUtils.checkBeforePutMessage and transformDelayLevelMessage, MessageExtEncoder.encode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError
from gantrymq.format import record
from gantrymq.format.properties import CRC_PROPERTY_SIZE, encode_properties
from gantrymq.model.host import Host
from gantrymq.model.java import INT_MAX, encode_utf8
from gantrymq.model.message import (
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    SCHEDULE_TOPIC,
    Message,
    is_of_bytes,
    is_one_text,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.consume_queues import is_topic_storable

_UNWRITTEN = bytes(record.SECTOR)  # a property with that looks like one that a power cut has torn


@dataclass(slots=True)
class OutgoingMessage:
    """A message that passed every check: all of its record but the place and the time."""

    topic: str
    queue_id: int
    properties: bytes
    size_bytes: int
    around: record.Around
    source: Message


def store_host_of(config: MessageStoreConfig) -> Host:
    """brokerIP1 and listenPort; raises ConfigError where they are no address."""
    ip = f"[{config.broker_ip1}]" if ":" in config.broker_ip1 else config.broker_ip1
    try:
        return Host.parse(f"{ip}:{config.listen_port}")
    except ValueError as error:
        raise ConfigError("brokerIP1", config.broker_ip1, "an IP address") from error


def prepare(message: Message, config: MessageStoreConfig, store_host: Host) -> OutgoingMessage | PutMessageStatus:
    """Check and encode ``message``; a status says why it cannot be stored."""
    topic, queue_id, body = message.topic, message.queue_id, message.body
    if type(body) is not bytes and not is_of_bytes(body):
        return PutMessageStatus.MESSAGE_ILLEGAL
    topic_length = len(topic_bytes(topic))
    if not topic_length or not 0 <= queue_id <= INT_MAX:
        return PutMessageStatus.MESSAGE_ILLEGAL
    if topic_length > record.MAX_TOPIC_LENGTH_V1 and not config.auto_message_version_on_topic_len:
        return PutMessageStatus.MESSAGE_ILLEGAL
    properties = dict(message.properties)
    properties.pop(PROPERTY_CRC32, None)
    if message.tags:
        properties[PROPERTY_TAGS] = message.tags
    if message.keys:
        if is_one_text(message.keys):
            return PutMessageStatus.MESSAGE_ILLEGAL
        properties[PROPERTY_KEYS] = " ".join(message.keys)
    if message.delay_level > 0:
        level = min(message.delay_level, len(config.delay_levels_ms))
        properties[PROPERTY_DELAY] = str(level)
        properties[PROPERTY_REAL_TOPIC], properties[PROPERTY_REAL_QUEUE_ID] = topic, str(queue_id)
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    try:
        encoded = encode_properties(properties)
    except ValueError:
        return PutMessageStatus.MESSAGE_ILLEGAL
    around = around_records(topic, message.born_host, message.store_host or store_host)
    body_length, room = len(body), CRC_PROPERTY_SIZE if config.enabled_append_prop_crc else 0
    if len(encoded) >= record.SECTOR and b"\0" in encoded and _UNWRITTEN in encoded:  # the longest search last
        return PutMessageStatus.MESSAGE_ILLEGAL
    if len(encoded) + room > record.MAX_PROPERTIES_LENGTH:
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    size = around.size_bytes + body_length + len(encoded) + room
    if body_length > config.max_message_size_bytes or size + record.BLANK_SIZE > config.mapped_file_size_commit_log:
        return PutMessageStatus.MESSAGE_ILLEGAL
    return OutgoingMessage(topic, queue_id, encoded, size, around, message)


@lru_cache(maxsize=1024)  # every put asks, mostly about the same few
def topic_bytes(topic: str) -> bytes:
    """``topic`` encoded; empty where no queue can have that name."""
    return encode_utf8(topic) if is_topic_storable(topic) else b""


@lru_cache(maxsize=1024)
def around_records(topic: str, born_host: Host, store_host: Host) -> record.Around:
    """What is around the records of a topic, which a queue can have, and of two hosts."""
    raw = topic_bytes(topic)
    return record.around_record(1 if len(raw) <= record.MAX_TOPIC_LENGTH_V1 else 2, raw, born_host, store_host)
