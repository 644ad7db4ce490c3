"""The refusals that several processors answer with, in RocketMQ's words. Each text stands here once.

A processor raises a refusal, and the dispatcher answers the request with its code and its remark. A text that only one
processor has stands in that processor. Different requests have different texts for the same refusal: clients compare
them.

Source: the processors of org.apache.rocketmq.broker.processor.
"""

from __future__ import annotations

from gantrymq.broker import names
from gantrymq.broker.tables.topics import describe
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.bodies.topic import TopicConfig
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused
from gantrymq.store.message_store import MessageStore

_APPLY = ", apply first please!"

TOO_FEW_SLAVES = "in-sync replicas not enough"
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
APPLY_TO_SEND, APPLY_TO_CONSUME, APPLY_TO_COMMIT = _APPLY + names.FAQ, f"{_APPLY} {names.FAQ}", _APPLY
"""What follows the refusal of a topic that is missing, for each kind of request."""

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


def topic_missing(topic: str, advice: str = "") -> RequestRefused:
    """The topic does not exist. ``advice`` is one of the APPLY constants."""
    return RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist{advice}")


def group_missing_to_send(group: str) -> RequestRefused:
    """The group of a message that is sent back, or to a retry topic, does not exist."""
    remark = f"subscription group not exist, {group} {names.FAQ}"
    return RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def group_missing_to_consume(group: str) -> RequestRefused:
    """The group that pulls or pops does not exist."""
    remark = f"subscription group [{group}] does not exist, {names.FAQ}"
    return RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def group_disabled(group: str, forbidden_type: int | None = None) -> RequestRefused:
    """The group may not consume."""
    remark = f"subscription group no permission, {group}"
    return RequestRefused(ResponseCode.NO_PERMISSION, remark, forbidden_type)


def broker_forbids(broker: BrokerConfig, verb: str, forbidden_type: int | None = None) -> RequestRefused:
    """The broker's permission, or a key, forbids ``verb`` ("sending", "pulling", "pop", …)."""
    remark = f"the broker[{broker.broker_ip1}] {verb} message is forbidden"
    return RequestRefused(ResponseCode.NO_PERMISSION, remark, forbidden_type)


def topic_forbids(topic: str, verb: str, forbidden_type: int | None = None) -> RequestRefused:
    """The topic's permission forbids ``verb`` ("sending", "pulling", "peeking")."""
    return RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic}] {verb} message is forbidden", forbidden_type)


def system_topic(topic: str) -> RequestRefused:
    """An administrative request would change a system topic."""
    return RequestRefused(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")


def being_deleted(topic: str) -> RequestRefused:
    """A message stored now would be deleted with the topic's old queues."""
    return RequestRefused(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] is being deleted, try again")


def overload() -> RequestRefused:
    """The admission limit for puts is reached."""
    return RequestRefused(ResponseCode.SYSTEM_BUSY, OVERLOAD)


def wrong_queue(queue_id: int, topic: TopicConfig, producer: Channel | None = None) -> RequestRefused:
    """The topic has no such queue. ``producer`` is the sender of a message."""
    remark = f"queueId[{queue_id}] is illegal, {describe(topic)}"
    if producer is not None:
        remark = f"request {remark} Producer: {producer.address}"
    return RequestRefused(ResponseCode.INVALID_PARAMETER, remark)


def wrong_queue_to_consume(code: int, queue_id: int, topic: TopicConfig, consumer: Channel) -> RequestRefused:
    """The topic has no such queue to pull, to pop or to acknowledge from."""
    remark = (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{consumer.address}]"
    )
    return RequestRefused(code, remark)


def wrong_subscription() -> RequestRefused:
    """The subscription, or its filter, cannot be parsed."""
    return RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")


def filter_unsupported(expression_type: str | None) -> RequestRefused:
    """The broker cannot filter by expressions of this type."""
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)


def wrong_invisible_time(invisible_ms: int, most_ms: int) -> RequestRefused:
    """A checkpoint with this time cannot be a timer message."""
    remark = f"the invisible time {invisible_ms} is not between 0 and {most_ms} (timerMaxDelaySec)"
    return RequestRefused(ResponseCode.INVALID_PARAMETER, remark)


def client_outdated(version: int) -> RequestRefused:
    """The client does not know the request that the broker would forward to it."""
    remark = f"the client does not support this feature. version={version}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)


def message_illegal(config: MessageStoreConfig) -> RequestRefused:
    """The store would take no such message."""
    remark = (
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{config.max_message_size_bytes}B, msg properties length limit 32KB."
    )
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def send_refused(status: PutMessageStatus, config: MessageStoreConfig, store: MessageStore) -> RequestRefused:
    """The store refused the put of a send with ``status`` (handlePutMessageResult)."""
    if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
        return RequestRefused(ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken.")
    if status in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED):
        return message_illegal(config)
    if status in _TIMER_FAILURES:
        max_ms, congested = config.timer_max_delay_s * 1000, config.timer_congest_num_each_slot
        code, remark = _TIMER_FAILURES[status]
        return RequestRefused(code, remark.format(most_ms=max_ms, limit=congested, twice=2 * congested))
    if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        used = store.disk_used_ratio
        remark = (
            "service not available now. It may be caused by one of the following reasons: "
            f"the broker's disk is full [CL: {used:5.2f} CQ: {used:5.2f} INDEX: {used:5.2f}], "
            "messages are put to the slave, message store has been shut down, etc."
        )
        return RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    if status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
        return RequestRefused(ResponseCode.SYSTEM_ERROR, TOO_FEW_SLAVES)
    if status is PutMessageStatus.OS_PAGE_CACHE_BUSY:
        return RequestRefused(ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while")
    return RequestRefused(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")
