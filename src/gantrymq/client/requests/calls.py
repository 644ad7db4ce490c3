"""The requests of a client, and how to read their answers, without any I/O.

Source: MQClientAPIImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from gantrymq.errors import MQBrokerError
from gantrymq.model.message import PROPERTY_MSG_REGION
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.route import ClusterInfo, TopicRouteData
from gantrymq.remoting.bodies.topic import TopicList
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import PullSysFlag, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from gantrymq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from gantrymq.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

# This group exists on every broker, even where groups are not created automatically, and no consumer uses it.
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SUBSCRIBE_ALL = "*"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One kind of request. ``request`` makes a new command for each send; ``read`` turns a response into the answer.

    The second argument of ``read`` is the broker's address, which its MQBrokerError names.
    """

    request: Callable[[], RemotingCommand]
    read: Callable[[RemotingCommand, str], T]


class PullStatus(Enum):
    """The result of a pull."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to a pull. ``records`` has stored records in the format of the commit log, one after the other."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    records: bytes


_PULL_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def refusal(response: RemotingCommand, address: str) -> MQBrokerError:
    """The error for a response that is not a success."""
    names = [code.name for code in ResponseCode if code == response.code]
    return MQBrokerError(address, response.code, names[0] if names else "unknown", response.remark or "")


def topic_route(topic: str) -> Call[TopicRouteData | None]:
    """GET_ROUTEINFO_BY_TOPIC; None if the name server does not know the topic."""

    def read(response: RemotingCommand, address: str) -> TopicRouteData | None:
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return decode_body(TopicRouteData, body_of(response, address))

    return Call(
        lambda: RemotingCommand.request(GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)), read
    )


def topic_list() -> Call[list[str]]:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER: every topic, system topics included."""
    return Call(
        lambda: RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        lambda response, address: decode_body(TopicList, body_of(response, address)).topic_list,
    )


def cluster_info() -> Call[ClusterInfo]:
    """GET_BROKER_CLUSTER_INFO."""
    return Call(
        lambda: RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO),
        lambda response, address: decode_body(ClusterInfo, body_of(response, address)),
    )


def min_offset(queue: MessageQueue) -> Call[int]:
    """GET_MIN_OFFSET: the offset of the first message that still exists."""
    return Call(
        lambda: RemotingCommand.request(
            GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        ),
        lambda response, address: success(response, address).read(GetMinOffsetResponseHeader).offset,
    )


def max_offset(queue: MessageQueue) -> Call[int]:
    """GET_MAX_OFFSET: the offset of the next message to be stored."""
    return Call(
        lambda: RemotingCommand.request(
            GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        ),
        lambda response, address: success(response, address).read(GetMaxOffsetResponseHeader).offset,
    )


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Call[int]:
    """SEARCH_OFFSET_BY_TIMESTAMP: the offset of the first message stored at or after ``timestamp_ms``.

    If all messages are older, it is the maximum offset.
    """
    return Call(
        lambda: RemotingCommand.request(
            SearchOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
            )
        ),
        lambda response, address: success(response, address).read(SearchOffsetResponseHeader).offset,
    )


def recall_message(group: str, topic: str, recall_handle: str, broker_name: str) -> Call[tuple[str, str]]:
    """RECALL_MESSAGE: take a timer message back. The answer is its unique key and the broker's region."""
    header = RecallMessageRequestHeader(
        producer_group=group, topic=topic, recall_handle=recall_handle, bname=broker_name
    )

    def read(response: RemotingCommand, address: str) -> tuple[str, str]:
        msg_id = success(response, address).read(RecallMessageResponseHeader).msg_id
        return msg_id, response.ext_fields.get(PROPERTY_MSG_REGION, "")

    return Call(lambda: RemotingCommand.request(header), read)


def pull(
    queue: MessageQueue,
    offset: int,
    max_messages: int,
    *,
    group: str = TOOLS_CONSUMER_GROUP,
    expression: str = SUBSCRIBE_ALL,
    expression_type: str = "TAG",
) -> Call[PullResult]:
    """PULL_MESSAGE that neither waits for messages nor commits an offset.

    The request carries the filter, so the broker need not know the group's subscription.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=PullSysFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
        bname=queue.broker_name,
    )
    return Call(lambda: RemotingCommand.request(header), read_pull)


def read_pull(response: RemotingCommand, address: str) -> PullResult:
    """The result of PULL_MESSAGE. Raises MQBrokerError."""
    status = _PULL_STATUS.get(response.code)  # type: ignore[call-overload]
    if status is None:
        raise refusal(response, address)
    header = response.read(PullMessageResponseHeader)
    return PullResult(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        response.body if status is PullStatus.FOUND else b"",
    )


def success(response: RemotingCommand, address: str) -> RemotingCommand:
    """The response itself, if it is a success. Raises MQBrokerError otherwise."""
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, address)
    return response


def body_of(response: RemotingCommand, address: str) -> bytes:
    """The body of a successful response. Raises MQBrokerError otherwise."""
    return success(response, address).body


def accepted(response: RemotingCommand, address: str) -> None:
    """Return nothing if the response is a success. Raises MQBrokerError otherwise."""
    success(response, address)
