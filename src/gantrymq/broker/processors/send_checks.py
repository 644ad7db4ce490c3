"""The checks of every send, also of runs and of replies, with RocketMQ's error texts.

Source: AbstractSendMessageProcessor.preSend, msgCheck.
"""

from __future__ import annotations

import time

from gantrymq.broker import names, refusals
from gantrymq.broker.tables.topics import UNIT_FLAG, UNIT_SUB_FLAG, TopicConfigManager
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.system_names import NOT_ALLOWED_SEND_TOPICS
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2
_V1 = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)


def read_header(request: RemotingCommand) -> SendHeader:
    """The header of a send or of a reply, in either version."""
    if request.code in _V1:
        return request.read(SendMessageRequestHeader)
    return request.read(SendMessageRequestHeaderV2)


class SendChecks:
    """Checks sends. Thread rule: the event loop's thread."""

    def __init__(self, config: LiveConfig, clock: Clock, topics: TopicConfigManager) -> None:
        self._config, self._clock, self._topics = config, clock, topics

    def check(self, channel: Channel, header: SendHeader) -> TopicConfig:
        """Check a send and return its topic, which may be one that it creates if it is accepted.

        Raises RequestRefused.
        """
        broker, name = self._config.broker, header.topic
        until = broker.start_accept_send_request_timestamp_ms
        if until and self._clock.now_ms() < until:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {_local_time(until)}")
        if not broker.is_writable and self._topics.is_order_topic(name):
            raise refusals.broker_forbids(broker, "sending")
        topic = self._topics.get(name)
        if topic is None:
            wrong = names.wrong_topic(name)
            if wrong is not None:
                raise RequestRefused(ResponseCode.INVALID_PARAMETER, wrong)
        if name in NOT_ALLOWED_SEND_TOPICS:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if topic is None:
            topic = self._planned(header)
        if header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
            raise refusals.wrong_queue(header.queue_id, topic, channel)
        return topic

    def _planned(self, header: SendHeader) -> TopicConfig:
        name = header.topic
        if name in self._topics.going:
            raise refusals.being_deleted(name)
        is_retry = name.startswith(names.RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = UNIT_SUB_FLAG if is_retry else UNIT_FLAG
        planned = self._topics.planned_by_send(name, header.default_topic, header.default_topic_queue_nums, sys_flag)
        if planned is None and is_retry:
            planned = self._topics.planned_for_group(name, 1, sys_flag=sys_flag)
        if planned is None:
            raise refusals.topic_missing(name, refusals.APPLY_TO_SEND)
        return planned


def _local_time(timestamp_ms: int) -> str:
    """As UtilAll.timeMillisToHumanString2. Unlike datetime it accepts every year that a long can hold."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{millis:03d}"
