"""Requests of a group member to brokers.

Source: MQClientAPIImpl.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gantrymq.client.requests.calls import Call, PullResult, accepted, read_pull, success
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    GetConsumerListByGroupRequestHeader,
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from gantrymq.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from gantrymq.remoting.headers.pull import PullMessageRequestHeader
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader


def consumer_ids(group: str) -> Call[list[str]]:
    """GET_CONSUMER_LIST_BY_GROUP: the client ids of a group at the broker."""
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    return Call(
        lambda: RemotingCommand.request(header),
        lambda response, address: (
            decode_body(GetConsumerListByGroupResponseBody, success(response, address).body).consumer_id_list
        ),
    )


def query_assignment(
    group: str, topic: str, client_id: str, strategy: str, message_model: str
) -> Call[list[MessageQueueAssignment] | None]:
    """QUERY_ASSIGNMENT: the queues that the broker assigns to this client. None: the client keeps what it has."""
    body = QueryAssignmentRequestBody(
        topic=topic, consumer_group=group, client_id=client_id, strategy_name=strategy, message_model=message_model
    )

    def read(response: RemotingCommand, address: str) -> list[MessageQueueAssignment] | None:
        answer = decode_body(QueryAssignmentResponseBody, success(response, address).body)
        return answer.message_queue_assignments

    return Call(lambda: RemotingCommand(RequestCode.QUERY_ASSIGNMENT, body=body.encode()), read)


def check_client(client_id: str, group: str, wanted: SubscriptionData) -> Call[None]:
    """CHECK_CLIENT_CONFIG: raises MQBrokerError if the broker does not evaluate this kind of filter."""
    body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=wanted)
    return Call(lambda: RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode()), accepted)


def query_offset(group: str, queue: MessageQueue) -> Call[int | None]:
    """QUERY_CONSUMER_OFFSET; None if the group has no committed offset."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )

    def read(response: RemotingCommand, address: str) -> int | None:
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return success(response, address).read(QueryConsumerOffsetResponseHeader).offset

    return Call(lambda: RemotingCommand.request(header), read)


def update_offset(group: str, queue: MessageQueue, offset: int) -> Call[None]:
    """UPDATE_CONSUMER_OFFSET."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )
    return Call(lambda: RemotingCommand.request(header), accepted)


def lock_batch(group: str, client_id: str, queues: Collection[MessageQueue]) -> Call[set[MessageQueue]]:
    """LOCK_BATCH_MQ: the queues that are locked now."""
    body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues)).encode()
    return Call(
        lambda: RemotingCommand.request(LockBatchMqRequestHeader(), body),
        lambda response, address: set(
            decode_body(LockBatchResponseBody, success(response, address).body).lock_ok_mq_set
        ),
    )


def unlock_batch(group: str, client_id: str, queues: Collection[MessageQueue]) -> Call[None]:
    """UNLOCK_BATCH_MQ."""
    body = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues)).encode()
    return Call(lambda: RemotingCommand.request(UnlockBatchMqRequestHeader(), body), accepted)


def send_message_back(
    group: str, message: ReceivedMessage, topic: str, delay_level: int, max_reconsume_times: int
) -> Call[None]:
    """CONSUMER_SEND_MSG_BACK: the broker delivers the message again, or moves it to the dead letters.

    ``topic`` is the full name. ``delay_level`` 0 lets the broker choose by the number of failures, -1 means dead
    letters.
    """
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.phy_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=topic,
        max_reconsume_times=max_reconsume_times,
        bname=message.broker_name,
    )
    return Call(lambda: RemotingCommand.request(header), accepted)


@dataclass(frozen=True, slots=True)
class GroupPull:
    """How a consumer pulls: the limits of one pull in messages and bytes, and how long the broker may hold it."""

    group: str
    max_messages: int
    max_bytes: int
    suspend_ms: int
    lite: bool = False
    post_subscription: bool = False


def group_pull(
    rules: GroupPull, queue: MessageQueue, offset: int, wanted: SubscriptionData, commit_offset: int | None
) -> Call[PullResult]:
    """PULL_MESSAGE or LITE_PULL_MESSAGE. The broker holds it until there is a message, at most ``suspend_ms``.

    ``commit_offset`` is committed along with the pull unless it is None or 0.
    """
    flags = PullSysFlag.SUSPEND
    flags |= PullSysFlag.COMMIT_OFFSET if commit_offset else 0
    flags |= PullSysFlag.SUBSCRIPTION if rules.post_subscription else 0
    flags |= PullSysFlag.LITE_PULL_MESSAGE if rules.lite else 0
    header = PullMessageRequestHeader(
        consumer_group=rules.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=rules.max_messages,
        sys_flag=flags,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=rules.suspend_ms,
        subscription=wanted.sub_string if rules.post_subscription else None,
        sub_version=0 if rules.lite and wanted.expression_type == "TAG" else wanted.sub_version,
        expression_type=wanted.expression_type,
        max_msg_bytes=rules.max_bytes,
        bname=queue.broker_name,
    )
    code = RequestCode.LITE_PULL_MESSAGE if rules.lite else RequestCode.PULL_MESSAGE
    return Call(lambda: RemotingCommand.request(header, code=code), read_pull)
