"""A message on its way out: checked, given its id, compressed, and made into a request.

Source: Validators, DefaultMQProducerImpl.sendKernelImpl, MessageBatch, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gantrymq.client.compression import compress
from gantrymq.client.message_check import check_message
from gantrymq.client.namespace import RETRY_PREFIX, wrap_namespace
from gantrymq.client.producer_settings import ProducerConfig
from gantrymq.errors import MQClientError
from gantrymq.format.properties import encode_properties
from gantrymq.model import flags
from gantrymq.model.java import decode_utf8
from gantrymq.model.message import (
    PROPERTY_DELAY,
    PROPERTY_INSTANCE_ID,
    PROPERTY_KEYS,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
)
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch

MAX_PROPERTIES_BYTES = 0x7FFF


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """All of a send that does not depend on the queue. ``ids`` are the messages' own, comma-joined for a batch."""

    topic: str
    ids: str
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    reconsume_times: int
    is_batch: bool
    max_reconsume_times: int | None = None

    def request(self, config: ProducerConfig, queue: MessageQueue, born_ms: int) -> RemotingCommand:
        """The request for a queue; a new one each time it is sent."""
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
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2
        return RemotingCommand.request(header, self.body, code=code)


def prepare(message: Message, unique_id: str, config: ProducerConfig) -> OutgoingMessage:
    """One message; raises MQClientError with RocketMQ's words for what it does not send."""
    check_message(message, config)
    properties = _properties(message, unique_id, config)
    body, sys_flag = _packed(bytes(message.body), message.sys_flag, config)
    topic = wrap_namespace(config.namespace, message.topic)
    times, most = _reconsume_times(topic, properties, message.reconsume_times)
    return OutgoingMessage(
        topic, properties[PROPERTY_UNIQ_KEY], body, _text(properties), message.flag, sys_flag, times, is_batch=False,
        max_reconsume_times=most,
    )  # fmt: skip


def prepare_batch(messages: Iterable[Message], new_id: Callable[[], str], config: ProducerConfig) -> OutgoingMessage:
    """A batch: messages of one topic, none delayed, stored all or none. It has an id of its own beside theirs.

    Raises MQClientError as :func:`prepare` does.
    """
    if isinstance(messages, Message | str | bytes) or not isinstance(messages, Iterable):
        raise MQClientError(f"a batch is several Messages, as a list, not one {type(messages).__name__}")
    messages = list(messages)
    if not messages:
        raise MQClientError("the batch is empty")
    for message in messages:
        check_message(message, config)
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
        wrap_namespace(config.namespace, first.topic), ",".join(ids), body, _text(own), 0, 0, 0, is_batch=True
    )


def _packed(body: bytes, sys_flag: int, config: ProducerConfig) -> tuple[bytes, int]:
    """A body compressed, where that makes it smaller, and the sysFlag that says so.

    RocketMQ's client sends what compressing made larger, too; a body of just ``maxMessageSize`` is then refused. A body
    that its sysFlag calls compressed stays as it is: readers decompress once.
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
    if message.delay_level > 0 or PROPERTY_DELAY in message.properties:
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
    properties[PROPERTY_WAIT] = _boolean(message.wait_store_msg_ok)
    properties.setdefault(PROPERTY_UNIQ_KEY, unique_id)
    if config.namespace:
        properties[PROPERTY_INSTANCE_ID] = config.namespace
    return properties


def _reconsume_times(topic: str, properties: dict[str, str], times: int) -> tuple[int, int | None]:
    """How often a message failed and may fail; in a retry topic it comes as properties that are not stored."""
    if not topic.startswith(RETRY_PREFIX):
        return times, None
    most = properties.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
    return int(properties.pop(PROPERTY_RECONSUME_TIME, times)), None if most is None else int(most)


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
