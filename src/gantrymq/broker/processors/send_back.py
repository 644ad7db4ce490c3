"""CONSUMER_SEND_MSG_BACK: a message that a consumer failed on is stored again, to be delivered later.

Source: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import random

from gantrymq.broker import names, refusals
from gantrymq.broker.acl.permissions import send_back
from gantrymq.broker.answers import Answers
from gantrymq.broker.appends.send_properties import is_message_illegal
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.statistics import SNDBCK_PUT_NUMS
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.tables.topics import UNIT_SUB_FLAG
from gantrymq.config.broker_settings import PERM_WRITE, LiveConfig
from gantrymq.model.delays import retry_level
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
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

_V3_4_9 = 121


class ConsumerSendMsgBackProcessor:
    """Stores messages that are sent back in the group's retry topic, or in its dead letters."""

    def __init__(
        self, config: LiveConfig, storage: Storage, tables: Tables, measures: Measures, answers: Answers
    ) -> None:
        self._config, self._measures, self._answers = config, measures, answers
        self._topics, self._groups = tables.topics, tables.groups
        self._queued_at, self._puts = storage.records.queued, storage.puts

    def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer when the message is stored again."""
        header = request.read(ConsumerSendMsgBackRequestHeader)
        group = self._groups.find(header.group)
        if group is None:
            raise refusals.group_missing_to_send(header.group)
        broker = self._config.broker
        if not broker.is_writable:
            raise refusals.broker_forbids(broker, "sending")
        if group.retry_queue_nums <= 0:
            return request.response(ResponseCode.SUCCESS)
        retry = names.retry_topic(header.group)
        sys_flag = UNIT_SUB_FLAG if header.unit_mode else 0
        if retry in self._topics.going:
            raise refusals.being_deleted(retry)
        topic = self._topics.planned_for_group(retry, group.retry_queue_nums, sys_flag=sys_flag)
        if not topic.perm & PERM_WRITE:
            raise refusals.topic_forbids(retry, "sending")
        message = self._queued_at(header.offset)
        if message is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        # Check again: at the first check the offset may have been the end of the log, without a record and its topic.
        refusal = self._answers.refusal(channel, request)
        if refusal is not None:
            return refusal
        max_times = group.retry_max_times
        if request.version >= _V3_4_9 and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        if message.reconsume_times >= max_times or header.delay_level < 0:
            self._measures.meter.sent_to_dlq(header.group, header.origin_topic or message.topic)
            again = self._again(message, names.dlq_topic(header.group), 0, 0)
            if again.topic in self._topics.going:
                raise refusals.being_deleted(again.topic)
            topic = self._topics.planned_for_group(again.topic, 1)
        else:
            level = header.delay_level or retry_level(message.reconsume_times)
            # Limited to the queues that consumers know: the group's number may have changed since the topic was
            # created.
            queues = max(min(group.retry_queue_nums, topic.read_queue_nums, topic.write_queue_nums), 1)
            again = self._again(message, retry, random.randrange(queues), level)

        if is_message_illegal(again.body, again.properties, again.sys_flag):
            return request.response(ResponseCode.SYSTEM_ERROR, PutMessageStatus.MESSAGE_ILLEGAL.value)

        def stored(result: PutMessageResult | None, busy: str | None) -> None:
            answer = self._stored(request, header.group, again, result, busy)
            frames = () if request.is_oneway else (encode_command(answer),)
            self._answers.respond(channel, request, answer.code, frames, again.topic)

        if not self._puts.put(AppendableMessage(again), channel, stored):
            raise refusals.overload()
        self._topics.add(topic)
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
        self._measures.stats.add(SNDBCK_PUT_NUMS, f"{again.properties[PROPERTY_RETRY_TOPIC]}@{group}", 1)
        return request.response(ResponseCode.SUCCESS)


def routes(context: BrokerContext) -> Routes:
    """The row of messages that are sent back.

    A message can be sent back once its queue has a unit for it, which may be a moment after its acknowledgement.
    """
    back = ConsumerSendMsgBackProcessor(
        context.config, context.storage, context.tables, context.measures, context.answers
    )
    may_send = send_back(context.storage.records.topic_at)
    return {RequestCode.CONSUMER_SEND_MSG_BACK: Route(back.send_back, may_send, after_dispatch=True)}
