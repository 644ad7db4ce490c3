"""The checks of POP requests, with RocketMQ's error texts.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor, AckMessageProcessor,
ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from gantrymq.broker import refusals
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
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import PERM_READ, LiveConfig
from gantrymq.errors import FilterSyntaxError, ReceiptHandleError
from gantrymq.model.receipt_handle import ORDER_REVIVE_QUEUE, ReceiptHandle, parse_receipt_handle
from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused


class PopFilter(NamedTuple):
    """Which messages a pop asks for: those with one of these tags codes (None: any) that the filter lets pass."""

    codes: Collection[int] | None = None
    record_filter: RecordFilter | None = None


class OfQueues(Protocol):
    """The header of a request for a queue, or for all queues of a topic (-1), of a group."""

    @property
    def consumer_group(self) -> str:
        """The consumer group that the request names."""
        ...

    @property
    def topic(self) -> str:
        """The topic that the request names."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue id that the request names."""
        ...


class PopChecks:
    """Checks requests. Each method raises RequestRefused. Thread rule: the event loop's thread."""

    def __init__(self, config: LiveConfig, clock: Clock, tables: Tables, consumers: ConsumerManager) -> None:
        self._config, self._clock, self._consumers = config, clock, consumers
        self._topics, self._groups, self._filters = tables.topics, tables.groups, tables.filters

    def require_readable(self, verb: str) -> None:
        """Raise RequestRefused if the broker's permission (brokerPermission) does not include reading.

        ``verb`` names the refused action in the answer to the client, for example "polling message".
        """
        broker = self._config.broker
        if not broker.is_readable:
            raise refusals.broker_forbids(broker, verb)

    def consumption(self, channel: Channel, header: OfQueues) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """Check the topic and the group of a request that looks for messages."""
        topic = self._topic(header.topic)
        if not topic.perm & PERM_READ:
            raise refusals.topic_forbids(header.topic, "peeking")
        if header.queue_id >= topic.read_queue_nums:
            raise refusals.wrong_queue_to_consume(ResponseCode.INVALID_PARAMETER, header.queue_id, topic, channel)
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise refusals.group_missing_to_consume(header.consumer_group)
        if not group.consume_enable:
            raise refusals.group_disabled(header.consumer_group)
        return topic, group

    def popped_queue(self, channel: Channel, topic_name: str, queue_id: int) -> None:
        """Refuse an acknowledgement of a queue that does not exist."""
        topic = self._topic(topic_name)
        if not 0 <= queue_id < topic.read_queue_nums:
            raise refusals.wrong_queue_to_consume(ResponseCode.MESSAGE_ILLEGAL, queue_id, topic, channel)

    def handle(self, text: str, revive_queues: int) -> ReceiptHandle:
        """The receipt handle of a request. RocketMQ answers a malformed one with the error of its parser."""
        try:
            handle = parse_receipt_handle(text)
        except ReceiptHandleError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        require_revive_queue(handle.revive_queue_id, revive_queues)
        return handle

    def filter(self, header: OfQueues, exp: str | None, exp_type: str | None, *, is_noted: bool) -> PopFilter:
        """The filter of a request. With ``is_noted`` the group's subscription is shown to administrators."""
        try:
            subscription = build_subscription(
                header.topic, exp or SUB_ALL, exp_type if exp else None, self._clock.now_ms()
            )
            sql = (
                None
                if is_tag_type(subscription.expression_type)
                else self._filters.compile(subscription.expression_type, exp)
            )
        except (SubscriptionError, FilterSyntaxError):
            raise refusals.wrong_subscription() from None
        if is_noted:
            self._consumers.note_pull(header.consumer_group, CLUSTERING, subscription, monotonic_ms(self._clock))
        return PopFilter(tags_codes(subscription), RecordFilter(sql) if sql is not None else None)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise refusals.topic_missing(name, refusals.APPLY_TO_CONSUME)
        return topic


def require_revive_queue(queue_id: int, revive_queues: int) -> None:
    """Refuse a receipt handle that names no queue of the revive topic. RocketMQ loses such an acknowledgement."""
    if queue_id != ORDER_REVIVE_QUEUE and not 0 <= queue_id < revive_queues:
        remark = f"the revive queue {queue_id} of the receipt handle is not one of {revive_queues}"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
