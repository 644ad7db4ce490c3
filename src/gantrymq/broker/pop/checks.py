"""The checks of POP requests, with RocketMQ's error texts.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor, AckMessageProcessor,
ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from gantrymq.broker import names
from gantrymq.broker.reads.record_filter import RecordFilter
from gantrymq.broker.sessions.consumers import (
    CLUSTERING,
    SUB_ALL,
    ConsumerManager,
    SubscriptionError,
    build_subscription,
    is_tag_type,
    tags_codes,
)
from gantrymq.broker.tables.consumer_filters import ConsumerFilterManager
from gantrymq.broker.tables.subscription_groups import SubscriptionGroupManager
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import PERM_READ, LiveConfig
from gantrymq.errors import FilterSyntaxError, ReceiptHandleError
from gantrymq.model.receipt_handle import ORDER_REVIVE_QUEUE, ReceiptHandle, parse_receipt_handle
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel


class PopRefusal(Exception):
    """Raised for a request that is answered with an error."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(remark)
        self.code, self.remark = code, remark

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """The answer to a request."""
        return request.response(self.code, self.remark)


class PopFilter(NamedTuple):
    """Which messages a pop asks for: those with one of these tags codes (None: any) that the filter lets pass."""

    codes: Collection[int] | None = None
    record_filter: RecordFilter | None = None


class OfQueues(Protocol):
    """The header of a request for a queue, or for all queues of a topic (-1), of a group."""

    @property
    def consumer_group(self) -> str:
        """The group."""
        ...

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue."""
        ...


class PopChecks:
    """Checks requests. Each method raises PopRefusal. Thread rule: the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
    ) -> None:
        self._config, self._clock, self._topics, self._groups = config, clock, topics, groups
        self._consumers, self._filters = consumers, filters

    def require_readable(self, verb: str) -> None:
        """Refuse the request if the broker's permission does not allow pops."""
        broker = self._config.broker
        if not broker.is_readable:
            remark = f"the broker[{broker.broker_ip1}] {verb} message is forbidden"
            raise PopRefusal(ResponseCode.NO_PERMISSION, remark)

    def consumption(self, channel: Channel, asked: OfQueues) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """Check the topic and the group of a request that looks for messages."""
        topic = self._topic(asked.topic)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{asked.topic}] peeking message is forbidden"
            raise PopRefusal(ResponseCode.NO_PERMISSION, remark)
        if asked.queue_id >= topic.read_queue_nums:
            raise PopRefusal(ResponseCode.INVALID_PARAMETER, _illegal_queue(channel, asked.queue_id, topic))
        group = self._groups.find(asked.consumer_group)
        if group is None:
            remark = f"subscription group [{asked.consumer_group}] does not exist, {names.FAQ}"
            raise PopRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {asked.consumer_group}"
            raise PopRefusal(ResponseCode.NO_PERMISSION, remark)
        return topic, group

    def popped_queue(self, channel: Channel, topic_name: str, queue_id: int) -> None:
        """Refuse an acknowledgement of a queue that does not exist."""
        topic = self._topic(topic_name)
        if not 0 <= queue_id < topic.read_queue_nums:
            raise PopRefusal(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(channel, queue_id, topic))

    def handle(self, text: str, revive_queues: int) -> ReceiptHandle:
        """The receipt handle of a request. RocketMQ answers a malformed one with the error of its parser."""
        try:
            handle = parse_receipt_handle(text)
        except ReceiptHandleError as error:
            raise PopRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        require_revive_queue(handle.revive_queue_id, revive_queues)
        return handle

    def filter(self, asked: OfQueues, exp: str | None, exp_type: str | None, *, is_noted: bool) -> PopFilter:
        """The filter of a request. With ``is_noted`` the group's subscription is shown to administrators."""
        try:
            found = build_subscription(asked.topic, exp or SUB_ALL, exp_type if exp else None, self._clock.now_ms())
            sql = None if is_tag_type(found.expression_type) else self._filters.compile(found.expression_type, exp)
        except (SubscriptionError, FilterSyntaxError):
            remark = "parse the consumer's subscription failed"
            raise PopRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        if is_noted:
            self._consumers.note_pull(asked.consumer_group, CLUSTERING, found, monotonic_ms(self._clock))
        return PopFilter(tags_codes(found), RecordFilter(sql) if sql is not None else None)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! {names.FAQ}"
            raise PopRefusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return topic


def require_revive_queue(queue_id: int, revive_queues: int) -> None:
    """Refuse a receipt handle that names no queue of the revive topic. RocketMQ loses such an acknowledgement."""
    if queue_id != ORDER_REVIVE_QUEUE and not 0 <= queue_id < revive_queues:
        remark = f"the revive queue {queue_id} of the receipt handle is not one of {revive_queues}"
        raise PopRefusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _illegal_queue(channel: Channel, queue_id: int, topic: TopicConfig) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{channel.address}]"
    )
