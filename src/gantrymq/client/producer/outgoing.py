"""A message before it is sent: validated, given its id, compressed, and encoded as a request.

A field that only a store uses is rejected if it is set, because a producer would ignore it.

Source: Validators, DefaultMQProducerImpl.sendKernelImpl, MessageBatch, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from gantrymq.client.hooks import SendMessageContext
from gantrymq.client.namespace import RETRY_PREFIX, wrap_namespace
from gantrymq.client.producer.compression import compress
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.errors import MQClientError
from gantrymq.format.properties import encode_properties
from gantrymq.model import flags
from gantrymq.model.java import INT_MAX, LONG_MAX, NOT_UTF8, decode_utf8, is_utf8
from gantrymq.model.message import (
    LOOPBACK,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INSTANCE_ID,
    PROPERTY_KEYS,
    PROPERTY_LITE_TOPIC,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    REPLY_TYPE,
    TIMER_PROPERTIES,
    Message,
    is_delayed,
    is_of_bytes,
    is_one_text,
)
from gantrymq.model.message_queue import MessageQueue
from gantrymq.model.system_names import NOT_ALLOWED_SEND_TOPICS
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch

TOPIC_MAX_LENGTH = 127
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_COMPRESSION = flags.COMPRESSED | flags.COMPRESSION_MASK
# Field: (its value when it is not set, the hint in the error).
_OF_A_STORE = {
    "queue_id": (0, "the queue is chosen by the producer, or given beside the message: send(message, queue)"),
    "born_timestamp_ms": (0, "it is the time of the send"),
    "born_host": (LOOPBACK, "the broker sees it"),
    "store_host": (None, "it is the broker's"),
    "prepared_transaction_offset": (0, "the broker sets it"),
}


def check_message(message: object, config: ProducerConfig) -> None:
    """Validate a message. Raises MQClientError, with RocketMQ's text if there is one."""
    if not isinstance(message, Message):
        given = f"{message!r:.80} of type {type(message).__name__}"
        raise MQClientError(f"a Message is sent, not {given}: send(Message('topic', b'body'))")
    check_topic(message.topic)
    _check_body(message.body, config)
    _check_tags(message.tags)
    _check_keys(message.keys)
    _check_properties(message.properties, config)
    _check_numbers(message, config)
    if (
        not message.queue_id
        and not message.born_timestamp_ms
        and message.born_host is LOOPBACK
        and message.store_host is None
        and not message.prepared_transaction_offset
    ):
        return  # as nearly always; the loop takes four times as long
    for name, (unset, instead) in _OF_A_STORE.items():
        if getattr(message, name) != unset:
            raise MQClientError(f"{name}={getattr(message, name)!r} has no effect in a producer: {instead}")


def check_topic(topic: object) -> None:
    """Validate the name of a topic to send to. Raises MQClientError."""
    if not isinstance(topic, str):
        raise MQClientError(f"the topic is of type {type(topic).__name__}, not a text")
    _check_topic_name(topic)


@lru_cache(maxsize=256)
def _check_topic_name(topic: str) -> None:
    if not topic.strip():
        raise MQClientError("The specified topic is blank")
    if len(topic) > TOPIC_MAX_LENGTH:
        raise MQClientError(f"The specified topic is longer than topic max length {TOPIC_MAX_LENGTH}.")
    if not _TOPIC.fullmatch(topic):
        raise MQClientError(
            f"The specified topic[{topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if topic in NOT_ALLOWED_SEND_TOPICS:
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
    if not tags:
        return
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
    if not properties:
        return
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
    """Raises MQClientError for a text that UTF-8 cannot encode."""
    if not is_utf8(text):
        raise MQClientError(f"{what}: {text!r:.80} is not allowed: {NOT_UTF8}")


def _check_numbers(message: Message, config: ProducerConfig) -> None:
    level, times = message.delay_level, message.reconsume_times
    if message.delay_ms or message.deliver_at is not None:
        _check_timer(message)
    priority = message.priority
    if priority is not None and (not _is_whole(priority) or not 0 <= priority <= INT_MAX):
        raise MQClientError(f"priority={priority!r} is not allowed: a whole number from 0")
    if not _is_whole(level) or not 0 <= level <= config.max_delay_level:
        raise MQClientError(f"delay_level={level!r} is not allowed: {_levels(config)}")
    if not _is_whole(message.flag) or not -INT_MAX - 1 <= message.flag <= INT_MAX:
        raise MQClientError(f"flag={message.flag!r} is not allowed: a whole number of 32 bits")
    if not _is_whole(times) or not 0 <= times <= INT_MAX:
        raise MQClientError(f"reconsume_times={times!r} is not allowed: a whole number from 0")
    if not _is_whole(message.sys_flag) or message.sys_flag & ~_COMPRESSION:
        raise MQClientError(f"sys_flag={message.sys_flag!r} is not allowed: only bits of compression, or 0")
    if not isinstance(message.wait_store_msg_ok, bool):
        raise MQClientError(f"wait_store_msg_ok={message.wait_store_msg_ok!r} is not allowed: True or False")


def _check_timer(message: Message) -> None:
    delay_ms, deliver_at = message.delay_ms, message.deliver_at
    if not _is_whole(delay_ms) or not 0 <= delay_ms <= LONG_MAX:
        raise MQClientError(f"delay_ms={delay_ms!r} is not allowed: a whole number of milliseconds from 0")
    if deliver_at is not None:
        _deliver_ms(deliver_at)
    if bool(message.delay_level) + bool(delay_ms) + (deliver_at is not None) > 1:
        raise MQClientError("a message has one of delay_level, delay_ms and deliver_at")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _deliver_ms(deliver_at: datetime | int) -> int:
    """Milliseconds since the epoch, rounded up, so that no message is early. Raises MQClientError."""
    if isinstance(deliver_at, datetime):
        with suppress(OverflowError):  # of a local time in the year 1 or 9999
            return max(-((_EPOCH - deliver_at.astimezone(UTC)) // timedelta(milliseconds=1)), 0)
    elif _is_whole(deliver_at) and 0 <= deliver_at <= LONG_MAX:
        return deliver_at
    allowed = "a datetime, or a whole number of milliseconds since the epoch"
    raise MQClientError(f"deliver_at={deliver_at!r} is not allowed: {allowed}")


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, int) and not isinstance(value, bool))


def _levels(config: ProducerConfig) -> str:
    return f"0 for no delay, or a level from 1 to {config.max_delay_level} (max_delay_level)"


MAX_PROPERTIES_BYTES = 0x7FFF
# A broker ignores these in a message of a batch, or stores the whole batch otherwise.
_ALONE = frozenset(
    (
        PROPERTY_DELAY, *TIMER_PROPERTIES, PROPERTY_TRANSACTION_PREPARED, PROPERTY_PRODUCER_GROUP, PROPERTY_PRIORITY,
        PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_MESSAGE_TYPE, PROPERTY_LITE_TOPIC,
    )
)  # fmt: skip


@dataclass(slots=True)  # a frozen one takes three times as long to make
class OutgoingMessage:
    """The parts of a send that do not depend on the queue. None is changed.

    ``ids`` are the messages' ids, comma-joined for a batch.

    ``correlation_id`` is that of a request that waits for a reply, ``context`` what the producer's hooks get.
    ``is_batchable`` says whether the message may leave in a batch that the producer makes, ``waits`` whether its
    acknowledgement waits for the store. Such a batch has its messages as ``parts``.
    """

    topic: str
    ids: str
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    reconsume_times: int
    code: RequestCode = RequestCode.SEND_MESSAGE_V2
    max_reconsume_times: int | None = None
    correlation_id: str | None = None
    context: SendMessageContext | None = None
    is_batchable: bool = False
    waits: bool = True
    parts: Sequence[OutgoingMessage] = ()

    def note(self, queue: MessageQueue, broker_address: str) -> None:
        """Set the queue and the broker in the context that hooks see."""
        if self.context is not None:
            self.context.queue, self.context.broker_address = queue, broker_address
        for part in self.parts:
            part.note(queue, broker_address)

    def request(self, config: ProducerConfig, queue: MessageQueue, born_ms: int) -> RemotingCommand:
        """A new request for a queue; each attempt needs its own."""
        header = SendMessageRequestHeaderV2(
            producer_group=wrap_namespace(config.namespace, config.producer_group),
            topic=self.topic,
            default_topic=config.create_topic_key,
            default_topic_queue_nums=config.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=born_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=False,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker_name,
        )
        return RemotingCommand.request(header, self.body, code=self.code)


def prepare(message: Message, unique_id: str, config: ProducerConfig) -> OutgoingMessage:
    """Prepare one message. Raises MQClientError, with RocketMQ's text if there is one."""
    check_message(message, config)
    properties = _properties(message, unique_id, config)
    body, sys_flag = _packed(bytes(message.body), message.sys_flag, config)
    is_reply = properties.get(PROPERTY_MESSAGE_TYPE) == REPLY_TYPE
    # The reply topic is of a cluster, and in no namespace.
    topic = message.topic if is_reply else wrap_namespace(config.namespace, message.topic)
    times, max_times = _reconsume_times(topic, properties, message.reconsume_times)
    return OutgoingMessage(
        topic,
        properties[PROPERTY_UNIQ_KEY],
        body,
        _text(properties),
        message.flag,
        sys_flag,
        times,
        RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2,
        max_times,
        is_batchable=not (sys_flag or times or is_reply or topic.startswith(RETRY_PREFIX))
        and _ALONE.isdisjoint(properties),
        waits=message.wait_store_msg_ok,
    )


def check_batch(messages: object, config: ProducerConfig) -> list[Message]:
    """The messages of a batch, each of them valid. Raises MQClientError."""
    if isinstance(messages, Message | str | bytes) or not isinstance(messages, Iterable):
        raise MQClientError(f"a batch is several Messages, as a list, not one {type(messages).__name__}")
    messages = list(messages)
    if not messages:
        raise MQClientError("the batch is empty")
    for message in messages:
        check_message(message, config)
    return messages


def prepare_batch(messages: Iterable[Message], new_id: Callable[[], str], config: ProducerConfig) -> OutgoingMessage:
    """Prepare a batch: messages of one topic, without delay, stored all or none. The batch has an id of its own.

    Raises MQClientError as :func:`prepare` does.
    """
    messages = check_batch(messages, config)
    first = messages[0]
    parts, ids = [], []
    for message in messages:
        _check_batched(first, message)
        properties = _properties(message, new_id(), config)
        ids.append(properties[PROPERTY_UNIQ_KEY])
        parts.append(BatchedMessage(message.flag, bytes(message.body), _encoded(properties)))
    body = encode_batch(parts)
    if len(body) > config.max_message_size:
        raise MQClientError(f"the message body size over max value, MAX: {config.max_message_size}")
    own = {PROPERTY_WAIT: _boolean(first.wait_store_msg_ok), PROPERTY_UNIQ_KEY: new_id()}
    return OutgoingMessage(
        wrap_namespace(config.namespace, first.topic),
        ",".join(ids),
        body,
        _text(own),
        0,
        0,
        0,
        RequestCode.SEND_BATCH_MESSAGE,
    )


def join_messages(messages: Sequence[OutgoingMessage]) -> OutgoingMessage:
    """The batch of prepared messages that are batchable, of one topic, and wait alike. It has their ids."""
    first = messages[0]
    ids = ",".join([message.ids for message in messages])
    body = encode_batch(
        [BatchedMessage(message.flag, message.body, message.properties.encode()) for message in messages]
    )
    own = {PROPERTY_WAIT: _boolean(first.waits), PROPERTY_UNIQ_KEY: first.ids}
    return OutgoingMessage(first.topic, ids, body, _text(own), 0, 0, 0, RequestCode.SEND_BATCH_MESSAGE, parts=messages)


def _packed(body: bytes, sys_flag: int, config: ProducerConfig) -> tuple[bytes, int]:
    """The body, compressed if that makes it smaller, and the sysFlag that says so.

    RocketMQ's client also sends a body that compression made larger; a body of exactly ``maxMessageSize`` is then
    refused. A body that its sysFlag marks as compressed is not compressed again, because readers decompress once.
    """
    if len(body) < config.compress_msg_body_over_howmuch or sys_flag & flags.COMPRESSED:
        return body, sys_flag
    packed = compress(body, config.compression_type, config.compression_level)
    if len(packed) >= len(body):
        return body, sys_flag
    return packed, sys_flag | flags.COMPRESSED | config.compression_type.value


def _check_batched(first: Message, message: Message) -> None:
    if message.topic != first.topic:
        raise MQClientError("The topic of the messages in one batch should be the same")
    if message.wait_store_msg_ok != first.wait_store_msg_ok:
        raise MQClientError("The waitStoreMsgOK of the messages in one batch should the same")
    if is_delayed(message):
        raise MQClientError("TimeDelayLevel is not supported for batching")
    if message.sys_flag:
        raise MQClientError("sys_flag is not supported for batching: bodies are stored as they are")
    if message.topic.startswith(RETRY_PREFIX):
        raise MQClientError("Retry Group is not supported for batching")


def _properties(message: Message, unique_id: str, config: ProducerConfig) -> dict[str, str]:
    properties = dict(message.properties)
    if message.tags:
        properties[PROPERTY_TAGS] = message.tags
    if message.keys:
        properties[PROPERTY_KEYS] = " ".join(message.keys)
    if message.delay_level:
        properties[PROPERTY_DELAY] = str(message.delay_level)
    if message.delay_ms:
        properties[PROPERTY_TIMER_DELAY_MS] = str(message.delay_ms)
    if message.deliver_at is not None:
        properties[PROPERTY_TIMER_DELIVER_MS] = str(_deliver_ms(message.deliver_at))
    if message.priority is not None:
        properties[PROPERTY_PRIORITY] = str(message.priority)
    properties[PROPERTY_WAIT] = _boolean(message.wait_store_msg_ok)
    properties.setdefault(PROPERTY_UNIQ_KEY, unique_id)
    if config.namespace:
        properties[PROPERTY_INSTANCE_ID] = config.namespace
    return properties


def _reconsume_times(topic: str, properties: dict[str, str], times: int) -> tuple[int, int | None]:
    """How often a message has failed and may fail. In a retry topic these are properties, and they are not stored."""
    if not topic.startswith(RETRY_PREFIX):
        return times, None
    max_times = properties.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
    return int(properties.pop(PROPERTY_RECONSUME_TIME, times)), None if max_times is None else int(max_times)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _text(properties: dict[str, str]) -> str:
    return decode_utf8(_encoded(properties))


def _encoded(properties: dict[str, str]) -> bytes:
    try:
        raw = encode_properties(properties)
    except ValueError as error:
        raise MQClientError(str(error)) from error
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise MQClientError(f"the properties have {len(raw)} bytes, {MAX_PROPERTIES_BYTES} are allowed")
    return raw
