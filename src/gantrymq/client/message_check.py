"""What a producer does not send, said in words where the message is given.

Fields of a message that only a store takes are refused when they are set: a producer would pass over them in silence.

Source: Validators, Message, MessageBatch.
"""

from __future__ import annotations

import re

from gantrymq.client.producer_settings import ProducerConfig
from gantrymq.errors import MQClientError
from gantrymq.model import flags
from gantrymq.model.java import INT_MAX, NOT_UTF8, is_utf8
from gantrymq.model.message import (
    LOOPBACK,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    Message,
    is_of_bytes,
    is_one_text,
)

TOPIC_MAX_LENGTH = 127
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
# Topics of the system that no producer may write.
_FORBIDDEN = frozenset(
    "SCHEDULE_TOPIC_XXXX RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC "
    "SELF_TEST_TOPIC OFFSET_MOVED_EVENT RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC".split()
)
_COMPRESSION = flags.COMPRESSED | flags.COMPRESSION_MASK
# By field: its value where it is not set, and what to do instead.
_OF_A_STORE = {
    "queue_id": (0, "the queue is chosen by the producer, or given beside the message: send(message, queue)"),
    "born_timestamp_ms": (0, "it is the time of the send"),
    "born_host": (LOOPBACK, "the broker sees it"),
    "store_host": (None, "it is the broker's"),
    "prepared_transaction_offset": (0, "the broker sets it"),
}


def check_message(message: object, config: ProducerConfig) -> None:
    """Raises MQClientError; with RocketMQ's words where it has any."""
    if not isinstance(message, Message):
        given = f"{message!r:.80} of type {type(message).__name__}"
        raise MQClientError(f"a Message is sent, not {given}: send(Message('topic', b'body'))")
    check_topic(message.topic)
    _check_body(message.body, config)
    _check_tags(message.tags)
    _check_keys(message.keys)
    _check_properties(message.properties, config)
    _check_numbers(message, config)
    for name, (unset, instead) in _OF_A_STORE.items():
        if getattr(message, name) != unset:
            raise MQClientError(f"{name}={getattr(message, name)!r} has no effect in a producer: {instead}")


def check_topic(topic: object) -> None:
    """The name of a topic that may be sent to; raises MQClientError."""
    if not isinstance(topic, str):
        raise MQClientError(f"the topic is of type {type(topic).__name__}, not a text")
    if not topic.strip():
        raise MQClientError("The specified topic is blank")
    if len(topic) > TOPIC_MAX_LENGTH:
        raise MQClientError(f"The specified topic is longer than topic max length {TOPIC_MAX_LENGTH}.")
    if not _TOPIC.fullmatch(topic):
        raise MQClientError(
            f"The specified topic[{topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if topic in _FORBIDDEN:
        raise MQClientError(f"Sending message to topic[{topic}] is forbidden.")


def _check_body(body: object, config: ProducerConfig) -> None:
    if not is_of_bytes(body):
        hint = "; encode the text: 'text'.encode()" if isinstance(body, str) else ""
        raise MQClientError(f"the message body is of type {type(body).__name__}, not bytes{hint}")
    size_bytes = len(body)  # type: ignore[arg-type]
    if not size_bytes:
        raise MQClientError("the message body length is zero")
    if size_bytes > config.max_message_size:
        raise MQClientError(f"the message body size over max value, MAX: {config.max_message_size}")


def _check_tags(tags: object) -> None:
    if not isinstance(tags, str):
        raise MQClientError(f"tags={tags!r:.80} is not allowed: a message has one tag, as a text")
    if "||" in tags:
        raise MQClientError(f"tags={tags!r:.80} is not allowed: || joins the tags of a subscription, none would match")
    if tags != tags.strip():
        raise MQClientError(f"tags={tags!r:.80} is not allowed: a subscription's tags have no blanks around them")
    _check_text("tags", tags)


def _check_keys(keys: object) -> None:
    if is_one_text(keys):
        raise MQClientError(f"keys={keys!r:.80} is one text: keys is a list of them")
    if not isinstance(keys, tuple | list | set | frozenset):
        raise MQClientError(f"keys={keys!r:.80} is not allowed: a list of texts")
    for key in keys:
        if not isinstance(key, str) or not key or " " in key:
            raise MQClientError(f"keys: {key!r:.80} is not allowed: a text without spaces, which separate keys")
        _check_text("keys", key)


def _check_properties(properties: object, config: ProducerConfig) -> None:
    if not isinstance(properties, dict):
        raise MQClientError(f"properties={properties!r:.80} is not allowed: a dict of texts")
    for name, value in properties.items():
        if not isinstance(name, str) or not name:
            raise MQClientError(f"properties: the name {name!r:.80} is not allowed: a text that is not empty")
        if not isinstance(value, str):
            raise MQClientError(f"properties: {name}={value!r:.80} is not allowed: a text")
        _check_text("properties", name)
        _check_text(f"properties: {name!r:.80}", value)
    level = properties.get(PROPERTY_DELAY)
    if level is not None and not (level.isascii() and level.isdecimal() and int(level) <= config.max_delay_level):
        raise MQClientError(f"properties: {PROPERTY_DELAY}={level!r:.80} is not allowed: {_levels(config)}")
    if "/" in properties.get(PROPERTY_INNER_MULTI_DISPATCH, ""):
        raise MQClientError(
            f"{PROPERTY_INNER_MULTI_DISPATCH} {properties[PROPERTY_INNER_MULTI_DISPATCH]} can not contains / character"
        )


def _check_text(what: str, text: str) -> None:
    """Raises MQClientError for a text that would arrive as another one."""
    if not is_utf8(text):
        raise MQClientError(f"{what}: {text!r:.80} is not allowed: {NOT_UTF8}")


def _check_numbers(message: Message, config: ProducerConfig) -> None:
    level, times = message.delay_level, message.reconsume_times
    if not _is_whole(level) or not 0 <= level <= config.max_delay_level:
        raise MQClientError(f"delay_level={level!r} is not allowed: {_levels(config)}")
    if not _is_whole(message.flag) or not -INT_MAX - 1 <= message.flag <= INT_MAX:
        raise MQClientError(f"flag={message.flag!r} is not allowed: a whole number of 32 bits")
    if not _is_whole(times) or not 0 <= times <= INT_MAX:
        raise MQClientError(f"reconsume_times={times!r} is not allowed: a whole number from 0")
    if not _is_whole(message.sys_flag) or message.sys_flag & ~_COMPRESSION:
        raise MQClientError(f"sys_flag={message.sys_flag!r} is not allowed: bits of compression alone, or 0")
    if not isinstance(message.wait_store_msg_ok, bool):
        raise MQClientError(f"wait_store_msg_ok={message.wait_store_msg_ok!r} is not allowed: True or False")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _levels(config: ProducerConfig) -> str:
    return f"0 for no delay, or a level from 1 to {config.max_delay_level} (max_delay_level)"
