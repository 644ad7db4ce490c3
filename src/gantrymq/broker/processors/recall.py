"""RECALL_MESSAGE: a timer message is not delivered after all.

A recall is a timer message itself, due at the same time as the one that it takes back: the timers read both in the same
slot. It names the other one by TIMER_DEL_UNIQKEY and is not delivered.

Source: RecallMessageProcessor.
"""

from __future__ import annotations

from functools import partial

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import send
from gantrymq.broker.answers import Answers
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.recall_handle import RecallHandle, decode_recall_handle
from gantrymq.model.host import Host
from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.model.message import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_MSG_REGION,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    Message,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.timer.timed_message import delete_key, set_timer

_TAG, _BODY = "_RECALL_TAG_", b"0"
_FAILED = "recall failed, execute error"
UNAVAILABLE = "recall failed, broker service not available"
_STORED = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


class RecallMessageProcessor:
    """Checks recalls and puts them. Without timers (timerWheelEnable=false) every recall fails."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        topics: TopicConfigManager,
        measures: Measures,
        answers: Answers,
    ) -> None:
        self._config, self._clock, self._topics = config, clock, topics
        self._puts, self._timers = storage.puts, storage.store.timers
        self._measures, self._answers = measures, answers

    def recall(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a recall: at once if it is refused, else when it is stored."""
        header, now_ms = request.read(RecallMessageRequestHeader), self._clock.now_ms()
        try:
            recalled = self._check(header, now_ms)
        except RequestRefused as refusal:
            return self._with_region(refusal.answer(request))
        message = self._message(channel, header, recalled, now_ms)
        if self._timers is not None:
            status = set_timer(message, self._config.store, now_ms, self._timers.is_rejected)
            if status is PutMessageStatus.PUT_OK:
                done = partial(self._stored, channel, request, recalled)
                if self._puts.put(AppendableMessage(message), channel, done):
                    return None
                raise refusals.overload()
        return self._with_region(request.response(ResponseCode.SYSTEM_ERROR, _FAILED))

    def _check(self, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle:
        broker = self._config.broker
        if not broker.recall_message_enable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if now_ms < broker.start_accept_send_request_timestamp_ms:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if not broker.is_writable and not broker.allow_recall_when_broker_not_writeable:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if self._topics.get(header.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = decode_recall_handle(header.recall_handle)
        except ValueError as error:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != header.topic:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != broker.broker_name:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, UNAVAILABLE)
        if not 0 < _number(handle.timestamp) - now_ms < self._config.store.timer_max_delay_s * 1000:
            raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _message(
        self, channel: Channel, header: RecallMessageRequestHeader, handle: RecallHandle, now_ms: int
    ) -> Message:
        with_topic = self._config.store.append_topic_for_timer_delete_key
        properties = {
            PROPERTY_TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_key, with_topic=with_topic),
            PROPERTY_UNIQ_KEY: handle.unique_key,
            PROPERTY_TIMER_DELIVER_MS: handle.timestamp,
            PROPERTY_BORN_TIMESTAMP: str(now_ms),
        }
        if header.producer_group:
            properties[PROPERTY_PRODUCER_GROUP] = header.producer_group
        return Message(
            handle.topic,
            _BODY,
            tags=_TAG,
            properties=properties,
            born_timestamp_ms=now_ms,
            born_host=Host.parse(channel.address),
        )

    def _stored(
        self,
        channel: Channel,
        request: RemotingCommand,
        handle: RecallHandle,
        result: PutMessageResult | None,
        busy: str | None,
    ) -> None:
        if result is not None and result.phy_offset >= 0:
            self._measures.stats.put(result.topic, result.count, result.size_bytes)
        if result is None:
            response = request.response(ResponseCode.SYSTEM_BUSY, busy)
        elif result.status in _STORED:
            header = RecallMessageResponseHeader(msg_id=handle.unique_key)
            response = request.response(ResponseCode.SUCCESS, header=header)
        else:
            response = request.response(ResponseCode.SYSTEM_ERROR, _FAILED)
        frames = () if request.is_oneway else (encode_command(self._with_region(response)),)
        self._answers.respond(channel, request, response.code, frames, handle.topic)

    def _with_region(self, response: RemotingCommand) -> RemotingCommand:
        response.ext_fields[PROPERTY_MSG_REGION] = self._config.broker.region_id
        return response


def _number(text: str) -> int:
    """The number in ``text``; -1 if it is not a number."""
    try:
        return parse_number(text, LONG_MAX)
    except ValueError:
        return -1


def routes(context: BrokerContext) -> Routes:
    """The row of recalls."""
    recall = RecallMessageProcessor(
        context.config, context.clock, context.storage, context.tables.topics, context.measures, context.answers
    )
    return {RequestCode.RECALL_MESSAGE: Route(recall.recall, send(RecallMessageRequestHeader), after_dispatch=False)}
