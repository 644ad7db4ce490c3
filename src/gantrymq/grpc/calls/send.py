"""SendMessage: messages of all kinds, checked against the type of their topic.

A message of a message group goes to the queue that Guava's consistent hash finds for it, as at RocketMQ's proxy, so
that both keep the order of a group together. Others take turns over the writable queues.

Source: SendMessageActivity, ProducerProcessor, DefaultTopicMessageTypeValidator, MessageQueueSelector.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, NamedTuple

from gantrymq.client.namespace import DLQ_PREFIX, RETRY_PREFIX
from gantrymq.clock import Clock
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.format.properties import encode_properties
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, QueueRoute, ask, message_type_of
from gantrymq.grpc.calls.gathering import Gathering
from gantrymq.grpc.calls.route import find_route
from gantrymq.grpc.calls.transactions import Transactions
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code, Encoding, GrpcMessageType
from gantrymq.grpc.protocol.convert import RESERVED, message_type
from gantrymq.grpc.protocol.messages import LATEST_MS, SendMessageResponse, SendResultEntry, to_ms
from gantrymq.grpc.protocol.status import CallError, refused, status
from gantrymq.grpc.protocol.validation import (
    has_control,
    require_key,
    require_message_group,
    require_tag,
    require_topic,
    require_user_property,
)
from gantrymq.model import message as names
from gantrymq.model.flags import COMPRESSED, TRANSACTION_PREPARED
from gantrymq.model.java import string_hash
from gantrymq.model.system_names import AUTO_CREATE_TOPIC
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch

_DEFAULT_QUEUES = 4
_MIXED = "MIXED"
# Stored, but not as safely as the broker was told to.
_PERSISTENCE = {
    int(ResponseCode.FLUSH_DISK_TIMEOUT): (Code.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): (Code.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    int(ResponseCode.SLAVE_NOT_AVAILABLE): (Code.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}


class WriteQueue(NamedTuple):
    """A queue that can be written."""

    broker_name: str
    queue_id: int


class _Prepared(NamedTuple):
    """A message of a request: its properties for the broker, and its body."""

    properties: dict[str, str]
    body: bytes


class SendMessage:
    """Answers sends. Thread rule: the event loop's thread."""

    def __init__(self, config: GrpcConfig, brokers: Brokers, clock: Clock, transactions: Transactions) -> None:
        self._config, self._brokers, self._clock, self._transactions = config, brokers, clock, transactions
        self._turns, self._sends = count(), Gathering(asyncio.get_running_loop())

    async def send(self, caller: Caller, request: Any) -> Any:
        """The answer to a SendMessageRequest. Raises CallError if a message is refused."""
        if not request.messages:
            raise CallError(Code.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0]
        topic = require_topic(first.topic.name)
        prepared = []
        for message in request.messages:
            if message.topic != first.topic:
                raise CallError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            prepared.append(_Prepared(self._properties(caller, message, topic), self._body(message)))
        if len(prepared) > 1 and any(message_type(message.properties) is GrpcMessageType.DELAY for message in prepared):
            raise CallError(Code.BAD_REQUEST, "Delayed messages are not supported for batching")
        await self._check_type(caller, topic, prepared[0].properties)
        route = await find_route(self._brokers, caller, topic)
        group = first.system_properties.message_group if len(prepared) == 1 else ""
        queue = self._queue(route, group)
        if not first.system_properties.message_group:  # messages of a group keep their order
            await self._sends.turn()
        response = await self._put(caller, topic, queue, first, prepared)
        return self._answer(caller, topic, queue, prepared, response)

    async def _check_type(self, caller: Caller, topic: str, properties: dict[str, str]) -> None:
        if not self._config.check_message_type or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return
        expected = message_type_of(await self._brokers.topic(caller, topic))
        actual = message_type(properties).name
        if expected not in (actual, _MIXED):
            raise CallError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
            )

    def _queue(self, route: QueueRoute, message_group: str) -> WriteQueue:
        queues = write_queues(route)
        if not queues:
            raise CallError(Code.FORBIDDEN, "no writable queue")
        if message_group:
            return queues[consistent_hash(string_hash(message_group), len(queues))]
        return queues[next(self._turns) % len(queues)]

    async def _put(
        self, caller: Caller, topic: str, queue: WriteQueue, first: Any, prepared: list[_Prepared]
    ) -> RemotingCommand:
        system, properties = first.system_properties, prepared[0].properties
        is_batch = len(prepared) > 1
        body = prepared[0].body
        if is_batch:
            body = encode_batch(BatchedMessage(0, item.body, encode_properties(item.properties)) for item in prepared)
        header = SendMessageRequestHeaderV2(
            producer_group=topic,  # so that checks of its transactions find the producers of the topic
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=_sys_flag(system),
            born_timestamp=int(properties[names.PROPERTY_BORN_TIMESTAMP]),
            flag=0,
            properties=encode_properties(properties).decode(),
            reconsume_times=0,
            batch=is_batch,
            broker_name=queue.broker_name,
        )
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, header=header, body=body)
        return await ask(self._brokers, caller, queue.broker_name, command, limits.REQUEST_TIMEOUT_MS)

    def _answer(
        self, caller: Caller, topic: str, queue: WriteQueue, prepared: list[_Prepared], response: RemotingCommand
    ) -> Any:
        answer = SendMessageResponse()
        entry = SendResultEntry()
        if response.code == ResponseCode.SUCCESS:
            sent = response.read(SendMessageResponseHeader)
            properties = prepared[0].properties
            entry.status.CopyFrom(status(Code.OK))
            entry.message_id = properties[names.PROPERTY_UNIQ_KEY]
            entry.transaction_id = sent.transaction_id or ""
            entry.offset = sent.queue_offset
            entry.recall_handle = sent.recall_handle or ""
            if names.PROPERTY_TRANSACTION_PREPARED in properties and sent.transaction_id:
                self._transactions.sent(topic, queue.broker_name, sent)
        elif response.code in _PERSISTENCE:
            code, name = _PERSISTENCE[response.code]
            entry.status.CopyFrom(status(code, f"send message failed, sendStatus={name}"))
        else:
            raise refused(response)
        answer.entries.append(entry)
        answer.status.CopyFrom(status(Code(entry.status.code)))
        return answer

    # One message

    def _body(self, message: Any) -> bytes:
        body: bytes = message.body
        max_bytes = self._brokers.max_body_bytes
        if not body and self._config.check_body_empty:
            raise CallError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
        if 0 < max_bytes < len(body):
            raise CallError(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {max_bytes}")
        return body

    def _properties(self, caller: Caller, message: Any, topic: str) -> dict[str, str]:
        """The properties of a message for the broker. Raises CallError if one is not allowed."""
        system = message.system_properties
        properties = _user_properties(self._config, message)
        if not system.message_id.strip():
            raise CallError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
        if has_control(system.message_id):
            raise CallError(Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
        properties[names.PROPERTY_UNIQ_KEY] = system.message_id
        if system.message_type == GrpcMessageType.TRANSACTION:
            properties[names.PROPERTY_TRANSACTION_PREPARED] = "true"
            if system.HasField("orphaned_transaction_recovery_duration"):
                seconds = int(system.orphaned_transaction_recovery_duration.seconds)
                _check_recovery(seconds, self._config.max_transaction_recovery_s)
                properties[names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
        if system.HasField("delivery_timestamp"):
            properties[names.PROPERTY_TIMER_DELIVER_MS] = str(self._delivery_ms(system.delivery_timestamp))
        if system.HasField("priority"):
            if system.priority < 0:
                raise CallError(Code.BAD_REQUEST, "The priority must be greater than or equal to 0")
            properties[names.PROPERTY_PRIORITY] = str(system.priority)
        properties[names.PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt)
        properties[names.PROPERTY_PRODUCER_GROUP] = topic
        if system.message_group:
            require_message_group(system.message_group, self._config.max_message_group_bytes)
            properties[names.PROPERTY_SHARDING_KEY] = system.message_group
        if system.lite_topic:
            raise CallError(Code.ILLEGAL_LITE_TOPIC, "there are no lite topics here")
        if system.trace_context:
            properties[names.PROPERTY_TRACE_CONTEXT] = _clean("trace context", system.trace_context)
        properties[names.PROPERTY_BORN_HOST] = _clean("born host", system.born_host.strip() or caller.address)
        properties[names.PROPERTY_BORN_TIMESTAMP] = str(self._born_ms(system))
        return {name: value for name, value in properties.items() if value}

    def _delivery_ms(self, timestamp: Any) -> int:
        deliver_ms = to_ms(timestamp)
        most_ms = self._config.max_delay_ms
        if 0 < most_ms < deliver_ms - self._clock.now_ms():
            text = f"the max delay time of message is too large, max is {most_ms}"
            raise CallError(Code.ILLEGAL_DELIVERY_TIME, text)
        return deliver_ms

    def _born_ms(self, system: Any) -> int:
        """The time at which the client made the message; now if it gives none, or one that no Timestamp may have."""
        born_ms = to_ms(system.born_timestamp) if system.HasField("born_timestamp") else 0
        return born_ms if 0 < born_ms <= LATEST_MS else self._clock.now_ms()


def _user_properties(config: GrpcConfig, message: Any) -> dict[str, str]:
    system, properties = message.system_properties, dict(message.user_properties)
    if len(properties) > config.max_user_properties:
        text = f"too many user properties, max is {config.max_user_properties}"
        raise CallError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size_bytes = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        require_user_property(name, value, RESERVED)
        size_bytes += len(name.encode()) + len(value.encode())
    require_tag(system.tag)
    for key in system.keys:
        require_key(key)
    if size_bytes > config.max_user_property_bytes:
        text = f"the total size of user property is too large, max is {config.max_user_property_bytes}"
        raise CallError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    properties[names.PROPERTY_TAGS] = system.tag
    properties[names.PROPERTY_KEYS] = " ".join(system.keys)
    return properties


def _check_recovery(seconds: int, max_seconds: int) -> None:
    if 0 < max_seconds < seconds:
        text = f"the max transaction recovery time of message is too large, max is {max_seconds}"
        raise CallError(Code.BAD_REQUEST, text)


def _clean(what: str, text: str) -> str:
    """A text that a record can hold: the separators of properties would add others to it."""
    if "\x01" in text or "\x02" in text:
        raise CallError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the {what} cannot contain control character")
    return text


def _sys_flag(system: Any) -> int:
    flag = COMPRESSED if system.body_encoding == Encoding.GZIP else 0
    return flag | (TRANSACTION_PREPARED if system.message_type == GrpcMessageType.TRANSACTION else 0)


def write_queues(route: QueueRoute) -> list[WriteQueue]:
    """The writable queues of a topic, by broker name and number, at brokers that have a master."""
    masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.broker_addrs}
    return [
        WriteQueue(queue.broker_name, queue_id)
        for queue in sorted(route.queues, key=lambda queues: queues.broker_name)
        if queue.is_writable and queue.broker_name in masters
        for queue_id in range(queue.write_queue_nums)
    ]


def consistent_hash(key: int, buckets: int) -> int:
    """Guava's Hashing.consistentHash: the bucket of a 32-bit key."""
    state, candidate = key & 0xFFFFFFFFFFFFFFFF, 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((candidate + 1) / (((state >> 33) + 1) / 0x80000000))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
