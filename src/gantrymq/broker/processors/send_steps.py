"""The steps from the request of a send to the records that are stored for it.

The obvious way is one function that decodes the properties, acts on them and builds a message. But most sends have no
property that the broker acts on, and decoding is the expensive part: their records are built from the request as it is.
So the steps are a list. The first step that returns records ends it. A step that is not for a send returns None.

Source: SendMessageProcessor.sendMessage, sendBatchMessage; HookUtils.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gantrymq.broker import names, refusals
from gantrymq.broker.appends.send_properties import (
    UniqueIds,
    broker_properties,
    delay_level,
    is_message_illegal,
    plain_properties,
    prepared_properties,
    read_properties,
    take_priority,
)
from gantrymq.broker.appends.wire_messages import WireBatch, WireMessage, measure_batch
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.send_checks import SendHeader
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.transactions.half_messages import can_be_put_back, half_message
from gantrymq.broker.transactions.open_halves import PreparedMessage
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.recall_handle import RecallHandle, encode_recall_handle
from gantrymq.format.record import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH_V1
from gantrymq.logs import get_logger
from gantrymq.model.flags import MULTI_TAGS, TRANSACTION_COMMIT, TRANSACTION_MASK, is_consumable
from gantrymq.model.host import Host
from gantrymq.model.message import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    TIMER_PROPERTIES,
    Message,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.log.appendable import Appendable, AppendableMessage, topic_bytes
from gantrymq.store.message_store import MessageStore
from gantrymq.store.timer.timed_message import is_timer_message, set_timer

_DLQ_QUEUES = 1
_MAX_SINGLE_MESSAGES = 2_000  # limit for a batch whose records no kernel can write: 15 microseconds each
_WARNING_INTERVAL_MS = 60_000
_V3_4_9 = 121  # MQVersion.V3_4_9: from this version on a request has maxReconsumeTimes

log = get_logger()


@dataclass(slots=True)
class Send:
    """A send on its way: what the steps find out, and what its answer needs."""

    channel: Channel
    request: RemotingCommand
    header: SendHeader
    queue_id: int
    topic: str  # where it is stored
    transaction_id: str | None = None
    is_half: bool = False
    prepared: PreparedMessage | None = None
    recall_handle: str | None = None
    planned: list[TopicConfig] = field(default_factory=list)  # topics that the send creates if it is accepted


class SendSteps:
    """Makes the records of sends. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        store: MessageStore,
        tables: Tables,
        locks: RebalanceLockManager,
        measures: Measures,
    ) -> None:
        self._config, self._clock, self._store = config, clock, store
        self._topics, self._groups, self._locks, self._measures = tables.topics, tables.groups, locks, measures
        self._quiet_until_ms = 0
        self._ids = UniqueIds(store.store_host.ip)
        self._steps: tuple[Callable[[Send, TopicConfig], Appendable | None], ...] = (
            self._wire_message,  # first, because most sends end here
            self._wire_half,
            self._batch,
            self._message,
        )

    def records(self, send: Send, topic: TopicConfig) -> Appendable:
        """The records of a send to ``topic``. Raises RequestRefused."""
        for step in self._steps:
            if (records := step(send, topic)) is not None:
                return records
        raise AssertionError("the last step takes every send")

    # A record with its properties as in the request

    def _wire_message(self, send: Send, topic: TopicConfig) -> WireMessage | None:
        """A message that is of no transaction."""
        header, broker = send.header, self._config.broker
        if header.batch or header.sys_flag & TRANSACTION_MASK:
            return None
        own_properties = broker_properties(broker.region_id, broker.broker_cluster_name, broker.trace_on)
        properties = plain_properties(header.properties, own_properties)
        if properties is None or len(properties.encoded) > MAX_PROPERTIES_LENGTH or not self._is_as_received(send):
            return None
        send.transaction_id = properties.unique_key
        return wire_message(
            send, sys_flag(header, topic), properties.encoded, wait_store_msg_ok=properties.wait_store_msg_ok
        )

    def _wire_half(self, send: Send, topic: TopicConfig) -> WireMessage | None:
        """The half message of a transaction."""
        header, broker = send.header, self._config.broker
        if header.batch or not header.sys_flag & TRANSACTION_MASK:
            return None
        own_properties = broker_properties(broker.region_id, broker.broker_cluster_name, broker.trace_on)
        properties = prepared_properties(header.properties, own_properties)
        if (
            properties is None
            or broker.reject_transaction_message
            or not header.born_timestamp
            or not self._is_as_received(send)
        ):
            return None
        final_flag = sys_flag(header, topic) & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        prepared = PreparedMessage(
            wire_message(send, final_flag, properties.encoded, wait_store_msg_ok=False), properties.producer_group
        )
        half = prepared.half(wait_store_msg_ok=properties.wait_store_msg_ok)
        if half is not None:
            send.is_half, send.prepared, send.transaction_id = True, prepared, properties.unique_key
        return half

    def _is_as_received(self, send: Send) -> bool:
        """Whether the body and the topic can be stored as they are."""
        header, body = send.header, send.request.body
        return (
            not is_message_illegal(body, (), header.sys_flag)
            and len(body) <= self._config.store.max_message_size_bytes
            and self._is_record(header)
            and not header.topic.startswith(names.RETRY_PREFIX)
        )

    def _is_record(self, header: SendHeader) -> bool:
        """Whether the store adds nothing to a record: a short topic, and no CRC property."""
        return (
            0 < len(topic_bytes(header.topic)) <= MAX_TOPIC_LENGTH_V1 and not self._config.store.enabled_append_prop_crc
        )

    # A batch

    def _batch(self, send: Send, topic: TopicConfig) -> Appendable | None:
        header = send.header
        if not header.batch:
            return None
        if header.topic.startswith(names.RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        batch_properties, raw = read_properties(header.properties), send.request.body
        send.transaction_id = batch_properties.get(PROPERTY_UNIQ_KEY)
        if (
            delay_level(batch_properties) > 0
            or any(name in batch_properties for name in TIMER_PROPERTIES)
            # CommitLog.asyncPutMessages rejects transactions of every kind in a batch.
            or header.sys_flag & TRANSACTION_MASK
            or is_message_illegal(raw, batch_properties, header.sys_flag)
        ):
            raise refusals.message_illegal(self._config.store)
        if len(raw) > self._config.store.max_message_size_bytes:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "message body size exceeded")
        count, stays = measure_batch(raw)
        batch = WireBatch(
            topic=header.topic,
            body=raw,
            queue_id=send.queue_id,
            count=count,
            sys_flag=sys_flag(header, topic),
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(send.channel.address),
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=batch_properties.get(PROPERTY_WAIT, "true").lower() == "true",
        )
        if not batch.count:
            raise refusals.message_illegal(self._config.store)
        if stays and is_consumable(header.sys_flag) and self._is_record(header):
            return batch
        if count > _MAX_SINGLE_MESSAGES:
            remark = (
                f"a batch of {count} messages, each of which has to be looked at, is more than {_MAX_SINGLE_MESSAGES}"
            )
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        return batch.unpacked()

    # A message whose properties the broker acts on

    def _message(self, send: Send, topic: TopicConfig) -> Appendable:
        header = send.header
        properties = read_properties(header.properties)
        send.topic = self._retry_or_dead(send, properties)
        self._mark(send, properties)
        if (wanted := take_priority(properties)) >= 0:
            send.queue_id = min(wanted, topic.write_queue_nums - 1)
        level = delay_level(properties)
        is_back = (header.reconsume_times or 0) > 0 and level > 0  # a client before 4.6.1 sends TRAN_MSG back, too
        send.is_half = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true" and not is_back
        self._warn_of_no_queue(send)
        self._reject_disabled(send, properties, level)
        is_queued = is_consumable(header.sys_flag)
        message = Message(
            send.topic,
            send.request.body,
            send.queue_id if send.topic == header.topic else 0,
            properties=properties,
            # A message that enters no queue is not delayed either.
            delay_level=level if is_queued else 0,
            flag=header.flag,
            sys_flag=sys_flag(header, topic),
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(send.channel.address),
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=properties.get(PROPERTY_WAIT, "true").lower() == "true",
        )
        if send.is_half:
            message = self._half(message)
        elif is_queued and is_timer_message(send.topic, properties):
            self._set_timer(send, message)
        return AppendableMessage(message)

    def _mark(self, send: Send, properties: dict[str, str]) -> None:
        """Set the properties that the broker adds to every message."""
        broker = self._config.broker
        properties.pop(PROPERTY_POP_CK, None)
        properties[PROPERTY_MSG_REGION] = broker.region_id
        properties[PROPERTY_TRACE_SWITCH] = "true" if broker.trace_on else "false"
        if not properties.get(PROPERTY_UNIQ_KEY):
            properties[PROPERTY_UNIQ_KEY] = self._ids.next(self._clock.now_ms())
        send.transaction_id = properties[PROPERTY_UNIQ_KEY]
        properties[PROPERTY_CLUSTER] = broker.broker_cluster_name

    def _half(self, message: Message) -> Message:
        """The half message of one that was sent; raises RequestRefused where no check could put it back."""
        half = half_message(message)
        if not can_be_put_back(half):
            raise refusals.message_illegal(self._config.store)
        return half

    def _set_timer(self, send: Send, message: Message) -> None:
        """Let a message with a due time wait in the timer topic; raises RequestRefused."""
        timers = self._store.timers
        if timers is None:
            status = PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        else:
            status = set_timer(message, self._config.store, self._clock.now_ms(), timers.is_rejected)
        if status is not PutMessageStatus.PUT_OK:
            raise refusals.send_refused(status, self._config.store, self._store)
        real_topic, slot_ms = (message.properties.get(name) for name in (PROPERTY_REAL_TOPIC, PROPERTY_TIMER_OUT_MS))
        if real_topic is not None and slot_ms is not None and not real_topic.startswith(names.RETRY_PREFIX):
            handle = RecallHandle(
                real_topic,
                self._config.broker.broker_name,
                str(int(slot_ms) + 1),  # because the slot time is rounded down (attachRecallHandle)
                message.properties[PROPERTY_UNIQ_KEY],
            )
            send.recall_handle = encode_recall_handle(handle)

    def _retry_or_dead(self, send: Send, properties: dict[str, str]) -> str:
        """The topic to store a message in: its own, or the dead letters of its group.

        A message of a retry topic goes to the dead letters if it was retried too often, or if the group consumes in
        order.
        """
        header = send.header
        if not header.topic.startswith(names.RETRY_PREFIX):
            return header.topic
        group = header.topic[len(names.RETRY_PREFIX) :]
        config = self._groups.find(group)
        if config is None:
            raise refusals.group_missing_to_send(group)
        max_times = config.retry_max_times
        if send.request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        in_order = not self._locks.is_all_expired(group, monotonic_ms(self._clock))
        if (header.reconsume_times or 0) <= max_times and not in_order:
            return header.topic
        self._measures.meter.sent_to_dlq(header.producer_group, header.topic)
        properties[PROPERTY_DELAY] = "-1"
        dead = names.dlq_topic(group)
        if dead in self._topics.going:
            raise refusals.being_deleted(dead)
        send.planned.append(self._topics.planned_for_group(dead, _DLQ_QUEUES))
        return dead

    def _warn_of_no_queue(self, send: Send) -> None:
        """Log that a message is acknowledged but enters no queue, as in RocketMQ; at most once a minute.

        RocketMQ's clients send such a sysFlag only with TRAN_MSG.
        """
        header, now_ms = send.header, monotonic_ms(self._clock)
        if not is_consumable(header.sys_flag) and not send.is_half and now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _WARNING_INTERVAL_MS
            text = "a message with the sysFlag of a transaction and without TRAN_MSG is stored in no queue"
            log.warning(text, topic=header.topic, sys_flag=header.sys_flag, producer=send.channel.address)

    def _reject_disabled(self, send: Send, properties: dict[str, str], level: int) -> None:
        if send.is_half and self._config.broker.reject_transaction_message:
            raise refusals.broker_forbids(self._config.broker, "sending transaction")
        if is_message_illegal(send.request.body, properties, send.header.sys_flag):
            raise refusals.message_illegal(self._config.store)
        timed = [name for name in TIMER_PROPERTIES if name in properties]
        if send.is_half and (timed or level > 0):
            remark = "Transactional messages do not support delayed delivery"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if timed and level > 0:
            for name in timed:
                del properties[name]


def wire_message(send: Send, flags: int, properties: bytes, *, wait_store_msg_ok: bool) -> WireMessage:
    """The record of a send, with ``flags`` as its sysFlag and with these encoded properties."""
    header = send.header
    return WireMessage(
        header.topic,
        send.request.body,
        send.queue_id,
        flags,
        header.born_timestamp,
        Host.parse(send.channel.address),
        header.reconsume_times or 0,
        wait_store_msg_ok,
        header.flag,
        properties,
    )


def sys_flag(header: SendHeader, topic: TopicConfig) -> int:
    """The sysFlag of a record: the request's, and MULTI_TAGS for a topic of that type."""
    return header.sys_flag | MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else header.sys_flag
