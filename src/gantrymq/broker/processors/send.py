"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Source: AbstractSendMessageProcessor, SendMessageProcessor.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import cache, partial

from gantrymq.broker import names
from gantrymq.broker.answers import Respond
from gantrymq.broker.appends.put_queue import OVERLOAD, PutQueue
from gantrymq.broker.appends.send_properties import (
    UniqueIds,
    broker_marks,
    delay_level,
    is_illegal,
    plain_properties,
    prepared_properties,
    read_properties,
    take_priority,
)
from gantrymq.broker.appends.wire_messages import WireBatch, WireMessage, measure_batch
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.sessions.queue_locks import RebalanceLockManager
from gantrymq.broker.statistics import BrokerStatsManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import UNIT_FLAG, UNIT_SUB_FLAG, TopicConfigManager, being_deleted, describe
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.broker.transactions.half_messages import can_be_put_back, half_message
from gantrymq.broker.transactions.metrics import TransactionMetrics
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
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, RemotingCommand, encode_command
from gantrymq.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantrymq.remoting.quick_answers import SendAnswers
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.log.appendable import Appendable, AppendableMessage, topic_bytes
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.timer.timed_message import is_timer_message, set_timer
from gantrymq.store.timer.timer_service import TimerMessageService

_DLQ_QUEUES = 1
_MAX_SINGLE_MESSAGES = 2_000  # limit for a batch whose records no kernel can write: 15 microseconds each
_WARNING_INTERVAL_MS = 60_000
_V3_4_9 = 121  # MQVersion.V3_4_9: from this version on a request has maxReconsumeTimes

log = get_logger()
SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2
_STORED = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_TIMER_FAILURES = {
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay {most_ms}ms; or if set del msg, "
        "the delay time should be bigger than the current time",
    ),
    PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL: (
        ResponseCode.SYSTEM_ERROR,
        "timer message is under flow control, max num limit is {twice} or the current value is greater than {limit} "
        "and less than {twice}, trigger random flow control",
    ),
    PutMessageStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
}


class Refusal(Exception):
    """Raised for a send that is answered with an error."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(remark)
        self.code, self.remark = code, remark


class _Sent:
    """What the answer to a send needs."""

    __slots__ = (
        "channel", "is_half", "prepared", "properties", "queue_id", "recall_handle", "request", "topic",
        "transaction_id",
    )  # fmt: skip

    def __init__(self, channel: Channel, request: RemotingCommand, header: SendHeader, queue_id: int) -> None:
        self.channel, self.request, self.queue_id = channel, request, queue_id
        self.topic, self.properties = header.topic, header.properties
        self.transaction_id: str | None = None
        self.is_half = False
        self.prepared: PreparedMessage | None = None
        self.recall_handle: str | None = None


class SendMessageProcessor:
    """Validates sends as RocketMQ does, with its error texts, and puts them into ``puts``.

    ``answer(channel, pieces, topic)`` sends a response. If the send created the topic, it first waits until the topic
    is durable.
    """

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager,
        puts: PutQueue,
        stats: BrokerStatsManager,
        decisions: Decisions,
        transactions: TransactionMetrics,
        disk_ratio: Callable[[], float],
        answer: Respond,
        timers: TimerMessageService | None,
        meter: BrokerMeter,
    ) -> None:
        self._config, self._clock, self._meter = config, clock, meter
        self._topics, self._groups, self._locks = topics, groups, locks
        self._puts, self._stats, self._disk_ratio, self._answer = puts, stats, disk_ratio, answer
        self._decisions, self._transactions = decisions, transactions
        self._timers = timers
        self._quiet_until_ms = 0
        self._ids = UniqueIds(Host.parse(f"{config.broker.broker_ip1}:0").ip)

    def send(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a send: at once if it is rejected, otherwise when it is stored."""
        is_v1 = request.code == RequestCode.SEND_MESSAGE
        header: SendHeader
        header = request.read(SendMessageRequestHeader) if is_v1 else request.read(SendMessageRequestHeaderV2)
        try:
            topic = self.check(channel, header)
            queue_id = header.queue_id
            if queue_id < 0:
                queue_id = random.randrange(max(topic.write_queue_nums, 1))
            sent = _Sent(channel, request, header, queue_id)
            appendable = (self._batch if header.batch else self._single)(sent, header, topic)
        except Refusal as refusal:
            return self._with_region(request.response(refusal.code, refusal.remark))
        if not self._puts.put(appendable, channel, partial(self._stored, sent)):
            return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return None

    # Checks (preSend, msgCheck)

    def check(self, channel: Channel, header: SendHeader) -> TopicConfig:
        """Check a send and return its topic, which is created if that is allowed. Raises Refusal."""
        broker, name = self._config.broker, header.topic
        until = broker.start_accept_send_request_timestamp_ms
        if until and self._clock.now_ms() < until:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {_local_time(until)}")
        if not broker.is_writable and self._topics.is_order_topic(name):
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{broker.broker_ip1}] sending message is forbidden")
        topic = self._topics.get(name)
        if topic is None:
            wrong = names.wrong_topic(name)
            if wrong is not None:
                raise Refusal(ResponseCode.INVALID_PARAMETER, wrong)
        if name in names.NOT_ALLOWED_SEND_TOPICS:
            raise Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if topic is None:
            topic = self._create(header)
        if header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {describe(topic)} Producer: {channel.address}",
            )
        return topic

    def _create(self, header: SendHeader) -> TopicConfig:
        name = header.topic
        if name in self._topics.going:
            raise Refusal(ResponseCode.SYSTEM_BUSY, being_deleted(name))
        is_retry = name.startswith(names.RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = UNIT_SUB_FLAG if is_retry else UNIT_FLAG
        created = self._topics.create_by_send(name, header.default_topic, header.default_topic_queue_nums, sys_flag)
        if created is None and is_retry:
            created = self._topics.create_for_group(name, 1, sys_flag=sys_flag)
        if created is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{names.FAQ}")
        return created

    # Messages

    def _single(self, sent: _Sent, header: SendHeader, topic: TopicConfig) -> Appendable:
        as_it_came = self._prepared if header.sys_flag & TRANSACTION_MASK else self._passthrough
        plain = as_it_came(sent, header, topic)
        if plain is not None:
            return plain
        properties = read_properties(header.properties)
        topic_name = sent.topic = self._retry_or_dead(sent, header, properties)
        broker = self._config.broker
        properties.pop(PROPERTY_POP_CK, None)
        properties[PROPERTY_MSG_REGION] = broker.region_id
        properties[PROPERTY_TRACE_SWITCH] = "true" if broker.trace_on else "false"
        if not properties.get(PROPERTY_UNIQ_KEY):
            properties[PROPERTY_UNIQ_KEY] = self._ids.next(self._clock.now_ms())
        sent.transaction_id = properties[PROPERTY_UNIQ_KEY]
        properties[PROPERTY_CLUSTER] = broker.broker_cluster_name
        if (wanted := take_priority(properties)) >= 0:
            sent.queue_id = min(wanted, topic.write_queue_nums - 1)
        level = delay_level(properties)
        is_back = (header.reconsume_times or 0) > 0 and level > 0  # a client before 4.6.1 sends TRAN_MSG back, too
        sent.is_half = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true" and not is_back
        self._warn_of_no_queue(sent, header)
        self._reject_disabled(sent, properties, header, level)
        message = Message(
            topic_name,
            sent.request.body,
            sent.queue_id if topic_name == header.topic else 0,
            properties=properties,
            # A message that enters no queue is not delayed either.
            delay_level=level if is_consumable(header.sys_flag) else 0,
            flag=header.flag,
            sys_flag=sys_flag(header, topic),
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(sent.channel.address),
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=properties.get(PROPERTY_WAIT, "true").lower() == "true",
        )
        if sent.is_half:
            return AppendableMessage(self._half(message))
        if is_consumable(header.sys_flag) and is_timer_message(topic_name, properties):
            self._set_timer(sent, message)
        return AppendableMessage(message)

    def _half(self, message: Message) -> Message:
        """The half message of one that was sent; raises Refusal where no check could put it back."""
        half = half_message(message)
        if not can_be_put_back(half):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, self._illegal())
        return half

    def _set_timer(self, sent: _Sent, message: Message) -> None:
        """Let a message with a due time wait in the timer topic; raises Refusal."""
        if self._timers is None:
            status = PutMessageStatus.WHEEL_TIMER_NOT_ENABLE
        else:
            status = set_timer(message, self._config.store, self._clock.now_ms(), self._timers.is_rejected)
        if status is not PutMessageStatus.PUT_OK:
            raise Refusal(*self._refused(status))
        real_topic, slot_ms = (message.properties.get(name) for name in (PROPERTY_REAL_TOPIC, PROPERTY_TIMER_OUT_MS))
        if real_topic is not None and slot_ms is not None and not real_topic.startswith(names.RETRY_PREFIX):
            handle = RecallHandle(
                real_topic,
                self._config.broker.broker_name,
                str(int(slot_ms) + 1),  # because the slot time is rounded down (attachRecallHandle)
                message.properties[PROPERTY_UNIQ_KEY],
            )
            sent.recall_handle = encode_recall_handle(handle)

    def _passthrough(self, sent: _Sent, header: SendHeader, topic: TopicConfig) -> WireMessage | None:
        """The message with its properties as in the request. None if the store must process it."""
        broker, body = self._config.broker, sent.request.body
        marks = broker_marks(broker.region_id, broker.broker_cluster_name, broker.trace_on)
        properties = plain_properties(header.properties, marks)
        if (
            properties is None
            or is_illegal(body, (), header.sys_flag)
            or len(properties.encoded) > MAX_PROPERTIES_LENGTH
            or len(body) > self._config.store.max_message_size_bytes
            or not self._is_plain(header)
            or header.topic.startswith(names.RETRY_PREFIX)
        ):
            return None
        sent.transaction_id = properties.unique_key
        return WireMessage(
            header.topic,
            body,
            sent.queue_id,
            sys_flag(header, topic),
            header.born_timestamp,
            Host.parse(sent.channel.address),
            header.reconsume_times or 0,
            properties.wait_store_msg_ok,
            header.flag,
            properties.encoded,
        )

    def _prepared(self, sent: _Sent, header: SendHeader, topic: TopicConfig) -> WireMessage | None:
        """The half message of one with its properties as in the request. None if the store must process it."""
        broker, body = self._config.broker, sent.request.body
        marks = broker_marks(broker.region_id, broker.broker_cluster_name, broker.trace_on)
        properties = prepared_properties(header.properties, marks)
        if (
            properties is None
            or broker.reject_transaction_message
            or is_illegal(body, (), header.sys_flag)
            or len(body) > self._config.store.max_message_size_bytes
            or not header.born_timestamp
            or not self._is_record(header)
            or header.topic.startswith(names.RETRY_PREFIX)
        ):
            return None
        final = WireMessage(
            header.topic,
            body,
            sent.queue_id,
            sys_flag(header, topic) & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            header.born_timestamp,
            Host.parse(sent.channel.address),
            header.reconsume_times or 0,
            False,
            header.flag,
            properties.encoded,
        )
        prepared = PreparedMessage(final, properties.producer_group)
        half = prepared.half(wait_store_msg_ok=properties.wait_store_msg_ok)
        if half is not None:
            sent.is_half, sent.prepared, sent.transaction_id = True, prepared, properties.unique_key
        return half

    def _is_plain(self, header: SendHeader) -> bool:
        """Whether a record can be made from the request as it is, and it is not of a transaction."""
        return is_consumable(header.sys_flag) and self._is_record(header)

    def _is_record(self, header: SendHeader) -> bool:
        """Whether the store adds nothing to a record: a short topic, and no CRC property."""
        return (
            0 < len(topic_bytes(header.topic)) <= MAX_TOPIC_LENGTH_V1 and not self._config.store.enabled_append_prop_crc
        )

    def _retry_or_dead(self, sent: _Sent, header: SendHeader, properties: dict[str, str]) -> str:
        """The topic to store a message in: its own, or the dead letters of its group.

        A message of a retry topic goes to the dead letters if it was retried too often, or if the group consumes in
        order.
        """
        if not header.topic.startswith(names.RETRY_PREFIX):
            return header.topic
        group = header.topic[len(names.RETRY_PREFIX) :]
        config = self._groups.find(group)
        if config is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {names.FAQ}"
            )
        most = config.retry_max_times
        if sent.request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        in_order = not self._locks.is_all_expired(group, monotonic_ms(self._clock))
        if (header.reconsume_times or 0) <= most and not in_order:
            return header.topic
        self._meter.sent_to_dlq(header.producer_group, header.topic)
        properties[PROPERTY_DELAY] = "-1"
        dead = names.dlq_topic(group)
        if self._topics.create_for_group(dead, _DLQ_QUEUES) is None:
            raise Refusal(ResponseCode.SYSTEM_BUSY, being_deleted(dead))
        return dead

    def _warn_of_no_queue(self, sent: _Sent, header: SendHeader) -> None:
        """Log that a message is acknowledged but enters no queue, as in RocketMQ; at most once a minute.

        RocketMQ's clients send such a sysFlag only with TRAN_MSG.
        """
        now_ms = monotonic_ms(self._clock)
        if not is_consumable(header.sys_flag) and not sent.is_half and now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _WARNING_INTERVAL_MS
            text = "a message with the sysFlag of a transaction and without TRAN_MSG is stored in no queue"
            log.warning(text, topic=header.topic, sys_flag=header.sys_flag, producer=sent.channel.address)

    def _reject_disabled(self, sent: _Sent, properties: dict[str, str], header: SendHeader, level: int) -> None:
        if sent.is_half and self._config.broker.reject_transaction_message:
            ip = self._config.broker.broker_ip1
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] sending transaction message is forbidden")
        if is_illegal(sent.request.body, properties, header.sys_flag):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, self._illegal())
        timed = [name for name in TIMER_PROPERTIES if name in properties]
        if sent.is_half and (timed or level > 0):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "Transactional messages do not support delayed delivery")
        if timed and level > 0:
            for name in timed:
                del properties[name]

    def _batch(self, sent: _Sent, header: SendHeader, topic: TopicConfig) -> Appendable:
        if header.topic.startswith(names.RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
        batch_properties, raw = read_properties(header.properties), sent.request.body
        sent.transaction_id = batch_properties.get(PROPERTY_UNIQ_KEY)
        if (
            delay_level(batch_properties) > 0
            or any(name in batch_properties for name in TIMER_PROPERTIES)
            # CommitLog.asyncPutMessages rejects transactions of every kind in a batch.
            or header.sys_flag & TRANSACTION_MASK
            or is_illegal(raw, batch_properties, header.sys_flag)
        ):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, self._illegal())
        if len(raw) > self._config.store.max_message_size_bytes:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "message body size exceeded")
        count, stays = measure_batch(raw)
        batch = WireBatch(
            topic=header.topic,
            body=raw,
            queue_id=sent.queue_id,
            count=count,
            sys_flag=sys_flag(header, topic),
            born_timestamp_ms=header.born_timestamp,
            born_host=Host.parse(sent.channel.address),
            reconsume_times=header.reconsume_times or 0,
            wait_store_msg_ok=batch_properties.get(PROPERTY_WAIT, "true").lower() == "true",
        )
        if not batch.count:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, self._illegal())
        if stays and self._is_plain(header):
            return batch
        if count > _MAX_SINGLE_MESSAGES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {count} messages, each of which has to be looked at, is more than {_MAX_SINGLE_MESSAGES}",
            )
        return batch.unpacked()

    # Answers (handlePutMessageResult)

    def stored(
        self, channel: Channel, request: RemotingCommand, result: PutMessageResult | None, busy: str | None
    ) -> None:
        """Answer one send of a run."""
        header = request.read(SendMessageRequestHeaderV2)
        sent = _Sent(channel, request, header, header.queue_id)
        sent.transaction_id = read_properties(header.properties).get(PROPERTY_UNIQ_KEY)
        self._stored(sent, result, busy)

    def _stored(self, sent: _Sent, result: PutMessageResult | None, busy: str | None) -> None:
        if result is not None and result.phy_offset >= 0:
            self._stats.put(result.topic, result.count, result.size_bytes)
            self._meter.stored(result, sent.properties)
            if sent.is_half:
                self._decisions.stored(result.phy_offset)
                if (prepared := sent.prepared) is not None:
                    half = prepared.stored(result.queue_offset, result.phy_offset)
                    self._decisions.keep(result.phy_offset, half, prepared.size_bytes)
                self._transactions.add(sent.topic, 1)
        # The hash of an Enum member is computed in Python, so a lookup is slow.
        is_ok = result is not None and result.status is PutMessageStatus.PUT_OK
        code, remark = (ResponseCode.SUCCESS, None) if is_ok else self._failure(result, busy)
        pieces = () if sent.request.flag & ONEWAY_FLAG else self._frame(sent, result, code, remark)
        self._answer(sent.channel, sent.request, code, pieces, sent.topic)

    def _frame(self, sent: _Sent, result: PutMessageResult | None, code: int, remark: str | None) -> Sequence[bytes]:
        """Encode the response, in pieces. A result without a remark is that of a stored message."""
        request = sent.request
        if result is None or remark is not None:
            return (encode_command(self._with_region(request.response(code, remark))),)
        if code is ResponseCode.SUCCESS and len(result.phy_offsets) > 1:
            pieces = self._batch_frame(sent, result)
            if pieces is not None:
                return pieces
        if code is ResponseCode.SUCCESS and sent.recall_handle is None:
            broker = self._config.broker
            answers = send_answers(broker.region_id, broker.trace_on)
            frame = answers.encode(request, result.msg_id, sent.queue_id, result.queue_offset, sent.transaction_id)
            if frame is not None:
                return (frame,)
        header = SendMessageResponseHeader(
            msg_id=result.msg_id,
            queue_id=sent.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=sent.transaction_id,
            recall_handle=sent.recall_handle,
        )
        return (encode_command(self._with_region(request.response(code, header=header))),)

    def _batch_frame(self, sent: _Sent, result: PutMessageResult) -> Sequence[bytes] | None:
        """Encode the answer to a stored batch by the template. None if the ordinary encoder is needed."""
        if (host := result.store_host) is None:
            return None
        broker = self._config.broker
        answers, msg_ids = send_answers(broker.region_id, broker.trace_on), result.joined_ids(host)
        return answers.encode_batch(sent.request, msg_ids, sent.queue_id, result.queue_offset, sent.transaction_id)

    def _failure(self, result: PutMessageResult | None, busy: str | None) -> tuple[int, str | None]:
        """The code of a put that is not simply OK, and its remark, which a stored message does not have."""
        if result is None:
            return ResponseCode.SYSTEM_BUSY, busy
        code = _STORED.get(result.status)
        return (code, None) if code is not None else self._refused(result.status)

    def _refused(self, status: PutMessageStatus) -> tuple[int, str]:
        if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."
        if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
            return ResponseCode.MESSAGE_ILLEGAL, self._illegal()
        if status in _TIMER_FAILURES:
            store = self._config.store
            most, congested = store.timer_max_delay_s * 1000, store.timer_congest_num_each_slot
            code, remark = _TIMER_FAILURES[status]
            return code, remark.format(most_ms=most, limit=congested, twice=2 * congested)
        if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            used = self._disk_ratio()
            return ResponseCode.SERVICE_NOT_AVAILABLE, (
                "service not available now. It may be caused by one of the following reasons: "
                f"the broker's disk is full [CL: {used:5.2f} CQ: {used:5.2f} INDEX: {used:5.2f}], "
                "messages are put to the slave, message store has been shut down, etc."
            )
        if status is PutMessageStatus.OS_PAGE_CACHE_BUSY:
            return ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        return ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"

    def _illegal(self) -> str:
        return (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.store.max_message_size_bytes}B, msg properties length limit 32KB."
        )

    def _with_region(self, response: RemotingCommand) -> RemotingCommand:
        broker = self._config.broker
        fields = response.ext_fields
        fields[PROPERTY_MSG_REGION], fields[PROPERTY_TRACE_SWITCH] = (
            broker.region_id,
            "true" if broker.trace_on else "false",
        )
        return response


def sys_flag(header: SendHeader, topic: TopicConfig) -> int:
    """The sysFlag of a record: the request's, and MULTI_TAGS for a topic of that type."""
    return header.sys_flag | MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else header.sys_flag


def _local_time(timestamp_ms: int) -> str:
    """As UtilAll.timeMillisToHumanString2. Unlike datetime it accepts every year that a long can hold."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{millis:03d}"


@cache
def send_answers(region: str, trace_on: bool) -> SendAnswers:
    """The answer templates of a broker."""
    return SendAnswers(((PROPERTY_MSG_REGION, region), (PROPERTY_TRACE_SWITCH, "true" if trace_on else "false")))
