"""CONSUMER_SEND_MSG_BACK: a message that a consumer failed on is stored again, to be delivered later.

Source: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.answers import Respond
from gantrymq.broker.appends.put_queue import OVERLOAD, PutQueue
from gantrymq.broker.appends.send_properties import is_illegal
from gantrymq.broker.metrics.meter import BrokerMeter
from gantrymq.broker.statistics import SNDBCK_PUT_NUMS, BrokerStatsManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import UNIT_SUB_FLAG, TopicConfigManager, being_deleted
from gantrymq.config.broker_settings import PERM_WRITE, LiveConfig
from gantrymq.model.java import INT_MAX
from gantrymq.model.message import (
    PROPERTY_DELAY,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT,
    TIMER_PROPERTIES,
    Message,
    StoredMessage,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_V3_4_9 = 121
_FIRST_LEVEL = 3


class ConsumerSendMsgBackProcessor:
    """Stores messages that are sent back in the group's retry topic, or in its dead letters.

    ``queued_at`` returns the message at an offset of the log if its queue has a unit for it, else None.
    """

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        queued_at: Callable[[int], StoredMessage | None],
        puts: PutQueue,
        stats: BrokerStatsManager,
        answer: Respond,
        access: AccessControl | None,
        meter: BrokerMeter,
    ) -> None:
        self._meter = meter
        self._config, self._topics, self._groups = config, topics, groups
        self._queued_at, self._puts, self._stats, self._answer = queued_at, puts, stats, answer
        self._access = access

    def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer when the message is stored again."""
        asked = request.read(ConsumerSendMsgBackRequestHeader)
        group = self._groups.find(asked.group)
        if group is None:
            remark = f"subscription group not exist, {asked.group} {names.FAQ}"
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        broker = self._config.broker
        if not broker.is_writable:
            remark = f"the broker[{broker.broker_ip1}] sending message is forbidden"
            return request.response(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return request.response(ResponseCode.SUCCESS)
        retry = names.retry_topic(asked.group)
        sys_flag = UNIT_SUB_FLAG if asked.unit_mode else 0
        topic = self._topics.create_for_group(retry, group.retry_queue_nums, sys_flag=sys_flag)
        if topic is None:
            return request.response(ResponseCode.SYSTEM_BUSY, being_deleted(retry))
        if not topic.perm & PERM_WRITE:
            return request.response(ResponseCode.NO_PERMISSION, f"the topic[{retry}] sending message is forbidden")
        message = self._queued_at(asked.offset)
        if message is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {asked.offset}")
        # Check again: at the first check the offset may have been the end of the log, without a record and its topic.
        refusal = self._access.refusal(channel, request) if self._access is not None else None
        if refusal is not None:
            return refusal
        most = group.retry_max_times
        if request.version >= _V3_4_9 and asked.max_reconsume_times is not None:
            most = asked.max_reconsume_times
        if message.reconsume_times >= most or asked.delay_level < 0:
            self._meter.sent_to_dlq(asked.group, asked.origin_topic or message.topic)
            again = self._again(message, names.dlq_topic(asked.group), 0, 0)
            if self._topics.create_for_group(again.topic, 1) is None:
                return request.response(ResponseCode.SYSTEM_BUSY, being_deleted(again.topic))
        else:
            level = asked.delay_level or _FIRST_LEVEL + max(message.reconsume_times, 0)
            # Limited to the queues that consumers know: the group's number may have changed since the topic was
            # created.
            queues = max(min(group.retry_queue_nums, topic.read_queue_nums, topic.write_queue_nums), 1)
            again = self._again(message, retry, random.randrange(queues), level)

        if is_illegal(again.body, again.properties, again.sys_flag):
            return request.response(ResponseCode.SYSTEM_ERROR, PutMessageStatus.MESSAGE_ILLEGAL.value)

        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            answer = self._stored(request, asked.group, again, result, busy)
            frames = () if request.is_oneway else (encode_command(answer),)
            self._answer(channel, request, answer.code, frames, again.topic)

        if not self._puts.put(AppendableMessage(again), channel, stored):
            return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return None

    def _again(self, message: StoredMessage, topic: str, queue_id: int, delay_level: int) -> Message:
        properties = dict(message.properties)
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        if not properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "").strip():
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = message.msg_id
        if delay_level > 0:  # checkIfTimerMessage removes the due time that the message was sent with
            for name in TIMER_PROPERTIES:
                properties.pop(name, None)
        properties[PROPERTY_DELAY] = str(delay_level)
        properties[PROPERTY_WAIT] = "false"
        return Message(
            topic,
            message.body,
            queue_id,
            properties=properties,
            delay_level=delay_level,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            reconsume_times=min(message.reconsume_times + 1, INT_MAX),
            wait_store_msg_ok=False,
        )

    def _stored(
        self,
        request: RemotingCommand,
        group: str,
        again: Message,
        result: PutMessageResult | None,
        busy: str | None,
    ) -> RemotingCommand:
        if result is None:
            return request.response(ResponseCode.SYSTEM_BUSY, busy)
        if result.status is not PutMessageStatus.PUT_OK:
            return request.response(ResponseCode.SYSTEM_ERROR, result.status.value)
        self._stats.add(SNDBCK_PUT_NUMS, f"{again.properties[PROPERTY_RETRY_TOPIC]}@{group}", 1)
        return request.response(ResponseCode.SUCCESS)
