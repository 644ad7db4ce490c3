"""What a request needs of its sender's account. Source: PlainAccessResource, Permission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gantrymq.broker import names
from gantrymq.broker.acl.accounts import PUB, SUB
from gantrymq.remoting.bodies.client import (
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

# What changes a broker, or looks into more than one's own topics and groups, is for administrators.
ADMIN_CODES = frozenset(
    {
        *(RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST),
        *(RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG),
        *(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
        *(RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN),
        *(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET, RequestCode.CLEAN_UNUSED_TOPIC),
        *(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG),
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        *(RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE),
        *(RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_TOPIC_CONFIG),
        *(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_PRODUCER_INFO),
        *(RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_BROKER_CONSUME_STATS),
        # A group of producers is nobody's in the file, and the key of a sum may be anything's: as in RocketMQ 5's auth.
        *(RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.VIEW_BROKER_STATS_DATA),
    }
)


class Need(NamedTuple):
    """A permission on a topic or a group; of a sum of them, any one."""

    name: str
    permission: int
    is_group: bool


def needs(request: RemotingCommand, topic_at: Callable[[int], str | None]) -> list[Need]:
    """The permissions that a request needs; none for one that touches neither topic nor group.

    ``topic_at`` is the topic of the message at an offset of the log, None where there is none.
    """
    fields = request.ext_fields
    code = request.code
    if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return [_send(fields.get("topic", ""))]
    if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        return [_send(fields.get("b", ""))]
    if code == RequestCode.HEART_BEAT:
        return list(_heart_beat(decode_body(HeartbeatData, request.body)))
    if code == RequestCode.QUERY_ASSIGNMENT:
        asked = decode_body(QueryAssignmentRequestBody, request.body)
        return [_read(asked.topic), Need(asked.consumer_group, SUB, is_group=True)]
    if code in _LOCKS:
        return [Need(decode_body(_LOCKS[code], request.body).consumer_group, SUB, is_group=True)]
    if code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return list(_send_back(request.read(ConsumerSendMsgBackRequestHeader), topic_at))
    group_field, *topic_fields = _FIELDS.get(code, ("",))
    permission = PUB | SUB if code in _ABOUT_A_TOPIC else SUB
    topics = (one.strip() for name in topic_fields for one in fields.get(name, "").split(";"))
    found = [_read(topic, permission) for topic in topics if topic]
    if fields.get(group_field):
        found.append(Need(fields[group_field], SUB, is_group=True))
    return found


_LOCKS: dict[int, type[LockBatchRequestBody | UnlockBatchRequestBody]] = {
    RequestCode.LOCK_BATCH_MQ: LockBatchRequestBody,
    RequestCode.UNLOCK_BATCH_MQ: UnlockBatchRequestBody,
}
# A producer asks these, too (MQAdmin): where its queues begin and end, what the topic is, who reads it.
_ABOUT_A_TOPIC = frozenset(
    {
        *(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
        *(RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    }
)
# The field that names a group, or "", and those that name topics, one or several with ";" between them.
_FIELDS: dict[int, tuple[str, ...]] = {
    **dict.fromkeys(map(int, _ABOUT_A_TOPIC), ("", "topic")),
    RequestCode.PULL_MESSAGE: ("consumerGroup", "topic"),
    RequestCode.LITE_PULL_MESSAGE: ("consumerGroup", "topic"),
    RequestCode.QUERY_MESSAGE: ("", "topic"),
    RequestCode.UNREGISTER_CLIENT: ("consumerGroup",),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ("consumerGroup",),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ("consumerGroup",),
    RequestCode.GET_CONSUMER_RUNNING_INFO: ("consumerGroup",),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("group", "topic"),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("consumerGroup", "topic"),
    RequestCode.QUERY_CONSUMER_OFFSET: ("consumerGroup", "topic"),
    RequestCode.QUERY_CORRECTION_OFFSET: ("compareGroup", "topic"),
    RequestCode.GET_CONSUME_STATS: ("consumerGroup", "topic", "topicList"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: ("group", "topic"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: ("group", "topic"),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: ("group",),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: ("group",),
}


def _send(topic: str) -> Need:
    if topic.startswith(names.RETRY_PREFIX):  # a consumer's own, though it is sent
        return Need(topic[len(names.RETRY_PREFIX) :], SUB, is_group=True)
    return Need(topic, PUB, is_group=False)


def _read(topic: str, permission: int = SUB) -> Need:
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        if topic.startswith(prefix):
            return Need(topic[len(prefix) :], SUB, is_group=True)
    return Need(topic, permission, is_group=False)


def _heart_beat(data: HeartbeatData) -> Iterator[Need]:
    for consumer in data.consumer_data_set:
        yield Need(consumer.group_name, SUB, is_group=True)
        for one in consumer.subscription_data_set:
            yield _read(one.topic)


def _send_back(asked: ConsumerSendMsgBackRequestHeader, topic_at: Callable[[int], str | None]) -> Iterator[Need]:
    """What comes back gets to the group: the sender must be allowed to read it, whatever stands at the offset."""
    yield Need(asked.group, SUB, is_group=True)
    topic = topic_at(asked.offset)
    if topic is not None:
        yield _read(topic)
