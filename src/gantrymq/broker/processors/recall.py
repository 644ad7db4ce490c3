"""RECALL_MESSAGE: a timer message is not delivered after all.

A recall is a timer message itself, due at the same time as the one that it takes back: the timers read both in the same
slot. It names the other one by TIMER_DEL_UNIQKEY and is not delivered.

Source: RecallMessageProcessor.
"""

from __future__ import annotations

from functools import partial

from gantrymq.broker.answers import Respond
from gantrymq.broker.appends.put_queue import OVERLOAD, PutQueue
from gantrymq.broker.statistics import BrokerStatsManager
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
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult
from gantrymq.store.timer.timed_message import delete_key, set_timer
from gantrymq.store.timer.timer_service import TimerMessageService

_TAG, _BODY = "_RECALL_TAG_", b"0"
_UNAVAILABLE = "recall failed, broker service not available"
_STORED = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT)


class RecallMessageProcessor:
    """Checks recalls and puts them; ``timers`` is None with timerWheelEnable=false."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        puts: PutQueue,
        stats: BrokerStatsManager,
        timers: TimerMessageService | None,
        answer: Respond,
    ) -> None:
        self._config, self._clock, self._topics = config, clock, topics
        self._puts, self._stats, self._timers, self._answer = puts, stats, timers, answer

    def recall(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Answer a recall: at once if it is refused, else when it is stored."""
        header, now_ms = request.read(RecallMessageRequestHeader), self._clock.now_ms()
        found = self._check(header, now_ms)
        if not isinstance(found, RecallHandle):
            return self._with_region(request.response(*found))
        message = self._message(channel, header, found, now_ms)
        if self._timers is not None:
            status = set_timer(message, self._config.store, now_ms, self._timers.is_rejected)
            if status is PutMessageStatus.PUT_OK:
                done = partial(self._stored, channel, request, found)
                if self._puts.put(AppendableMessage(message), channel, done):
                    return None
                return request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return self._with_region(request.response(ResponseCode.SYSTEM_ERROR, "recall failed, execute error"))

    def _check(self, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle | tuple[int, str]:
        """The handle, or the code and remark of a refusal."""
        broker = self._config.broker
        if not broker.recall_message_enable:
            return ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
        if now_ms < broker.start_accept_send_request_timestamp_ms:
            return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE
        if not broker.is_writable and not broker.allow_recall_when_broker_not_writeable:
            return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE
        if self._topics.get(header.topic) is None:
            return ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
        try:
            handle = decode_recall_handle(header.recall_handle)
        except ValueError as error:
            return ResponseCode.ILLEGAL_OPERATION, str(error)
        if handle.topic != header.topic:
            return ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"
        if handle.broker_name != broker.broker_name:
            return ResponseCode.ILLEGAL_OPERATION, _UNAVAILABLE
        if not 0 < _number(handle.timestamp) - now_ms < self._config.store.timer_max_delay_s * 1000:
            return ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"
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
            self._stats.put(result.topic, result.count, result.size_bytes)
        if result is None:
            response = request.response(ResponseCode.SYSTEM_BUSY, busy)
        elif result.status in _STORED:
            header = RecallMessageResponseHeader(msg_id=handle.unique_key)
            response = request.response(ResponseCode.SUCCESS, header=header)
        else:
            response = request.response(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        frames = () if request.is_oneway else (encode_command(self._with_region(response)),)
        self._answer(channel, request, response.code, frames, handle.topic)

    def _with_region(self, response: RemotingCommand) -> RemotingCommand:
        response.ext_fields[PROPERTY_MSG_REGION] = self._config.broker.region_id
        return response


def _number(text: str) -> int:
    """The number in ``text``; -1 if it is not a number."""
    try:
        return parse_number(text, LONG_MAX)
    except ValueError:
        return -1
