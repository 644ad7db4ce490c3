"""The requests of POP consumption, and the popped messages with their receipt handles.

A client may leave ``bornTime`` out: the broker then uses its own clock. With the client's clock a broker whose clock is
more than half a second ahead would refuse every pop.

Source: MQClientAPIImpl (popMessageAsync, processPopResponse, ackMessageAsync, changeInvisibleTimeAsync, notification).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from gantrymq.client.requests.calls import Call, PullResult, PullStatus, accepted, refusal, success
from gantrymq.client.requests.received import ReceivedMessage, received_messages
from gantrymq.errors import RemotingCommandError
from gantrymq.model.message import PROPERTY_POP_CK
from gantrymq.model.receipt_handle import (
    RETRY_V1,
    RETRY_V2,
    QueueOfPop,
    ReceiptHandle,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    topic_mark,
)
from gantrymq.remoting.bodies.client import SubscriptionData
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

ALL_QUEUES = -1
MAX_POPPED = 32  # a broker refuses to pop more at once
INIT_MIN, INIT_MAX = 0, 1  # where a group without offsets begins (ConsumeInitMode)

_NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)


class PopTarget(NamedTuple):
    """A queue of a topic, or all its queues at one broker, with the queues of the group's retry topic."""

    topic: str
    broker_name: str
    queue_id: int = ALL_QUEUES


@dataclass(frozen=True, slots=True)
class GroupPop:
    """How a consumer pops. ``init_mode`` says where a group without offsets begins.

    An ordered pop gives a queue's messages to one consumer at a time. A pop that is repeated with the same
    ``attempt_id`` is not blocked by the messages of the first one.
    """

    group: str
    init_mode: int
    order: bool = False


@dataclass(frozen=True, slots=True)
class PopResult:
    """The answer to a pop: nothing, or ``records`` in the format of the commit log and how they were popped."""

    target: PopTarget
    header: PopMessageResponseHeader
    records: bytes


def pop(
    rules: GroupPop, target: PopTarget, wanted: SubscriptionData, max_messages: int, invisible_ms: int, attempt_id: str
) -> Call[PopResult | None]:
    """POP_MESSAGE of all queues, without waiting. None if there is no message."""
    header = PopMessageRequestHeader(
        consumer_group=rules.group,
        topic=target.topic,
        queue_id=target.queue_id,
        max_msg_nums=max_messages,
        invisible_time=invisible_ms,
        init_mode=rules.init_mode,
        exp_type=wanted.expression_type,
        exp=wanted.sub_string,
        order=rules.order,
        attempt_id=attempt_id if rules.order else None,
        bname=target.broker_name,
    )

    def read(response: RemotingCommand, address: str) -> PopResult | None:
        if response.code in _NOTHING:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response, address)
        return PopResult(target, response.read(PopMessageResponseHeader), response.body)

    return Call(lambda: RemotingCommand.request(header), read)


def notification(
    rules: GroupPop, target: PopTarget, wanted: SubscriptionData, poll_ms: int, attempt_id: str
) -> Call[bool]:
    """NOTIFICATION: whether there are messages. The broker holds it until there are, at most ``poll_ms``."""
    header = NotificationRequestHeader(
        consumer_group=rules.group,
        topic=target.topic,
        queue_id=target.queue_id,
        poll_time=poll_ms,
        order=rules.order,
        attempt_id=attempt_id if rules.order else None,
        exp_type=wanted.expression_type,
        exp=wanted.sub_string,
        bname=target.broker_name,
    )

    def read(response: RemotingCommand, address: str) -> bool:
        return success(response, address).read(NotificationResponseHeader).has_msg

    return Call(lambda: RemotingCommand.request(header), read)


def ack(group: str, topic: str, handle: ReceiptHandle) -> Call[None]:
    """ACK_MESSAGE. ``topic`` is the topic that was popped."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.real_topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=_offset(handle),
        bname=handle.broker_name,
    )
    return Call(lambda: RemotingCommand.request(header), accepted)


def change_invisible_time(group: str, topic: str, handle: ReceiptHandle, invisible_ms: int) -> Call[ReceiptHandle]:
    """CHANGE_MESSAGE_INVISIBLETIME. Returns the new handle; the old one is no longer valid."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=handle.real_topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=_offset(handle),
        invisible_time=invisible_ms,
        bname=handle.broker_name,
    )

    def read(response: RemotingCommand, address: str) -> ReceiptHandle:
        changed = success(response, address).read(ChangeInvisibleTimeResponseHeader)
        return replace(
            handle,
            start_offset=header.offset,
            pop_time_ms=changed.pop_time,
            invisible_time_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )

    return Call(lambda: RemotingCommand.request(header), read)


def _offset(handle: ReceiptHandle) -> int:
    return handle.start_offset if handle.queue_offset is None else handle.queue_offset


class Decoding(Protocol):
    """Whether bodies are decompressed, and the limit for a decompressed one."""

    @property
    def decode_decompress_body(self) -> bool:
        """Whether bodies are decompressed."""
        ...

    @property
    def max_decompressed_body_size(self) -> int:
        """The largest decompressed body, in bytes."""
        ...


def popped_messages(popped: PopResult, config: Decoding) -> Iterator[ReceivedMessage]:
    """The messages of a pop with the texts of their receipt handles. Raises as :func:`messages_with_handles` does."""
    for message, handle in messages_with_handles(popped, config):
        message.receipt_handle = str(handle)
        yield message


def messages_with_handles(popped: PopResult, config: Decoding) -> Iterator[tuple[ReceivedMessage, ReceiptHandle]]:
    """The messages of a pop and their receipt handles, under the topic that was popped.

    All handles are made from the answer's header. The broker writes the handle of a message of a retry topic also into
    the message, which shows from which topic it is.

    Raises RemotingCommandError or ReceiptHandleError if the answer is not one to a pop.
    """
    header, target = popped.header, popped.target
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_message_offsets(header.msg_offset_info)
    counts = parse_order_counts(header.order_count_info)
    messages = received_messages(
        PullResult(PullStatus.FOUND, 0, 0, 0, 0, popped.records),
        target.broker_name,
        decompressed=config.decode_decompress_body,
        max_decompressed_body_size=config.max_decompressed_body_size,
    )
    for message in messages:
        key = _queue_of(popped, starts, offsets, message)
        if key not in starts:
            raise RemotingCommandError(f"a popped message of queue {key.queue_id} is not in startOffsetInfo")
        count = counts.get((key, message.queue_offset), counts.get((key, None), 0))
        message.reconsume_times = count or message.reconsume_times
        message.topic = target.topic
        yield message, _handle(popped, key, starts[key], message.queue_offset)


def _queue_of(
    popped: PopResult,
    starts: Mapping[QueueOfPop, int],
    offsets: Mapping[QueueOfPop, Sequence[int]],
    message: ReceivedMessage,
) -> QueueOfPop:
    """The queue in which a popped message is. Removes POP_CK from its properties.

    Any producer can put a POP_CK into a batch, and brokers leave it there. So it counts only if it is the handle that
    the header gives. Otherwise the queue is the first one whose popped offsets have the message's.
    """
    own, given = QueueOfPop(topic_mark(message.topic), message.queue_id), message.properties.pop(PROPERTY_POP_CK, None)
    if given is None:
        return own
    retries = [QueueOfPop(mark, message.queue_id) for mark in (RETRY_V1, RETRY_V2)]
    for key in retries:
        if key in starts and str(_handle(popped, key, starts[key], message.queue_offset)) == given:
            return key
    return next((key for key in (own, *retries) if message.queue_offset in offsets.get(key, ())), own)


def _handle(popped: PopResult, key: QueueOfPop, start_offset: int, queue_offset: int) -> ReceiptHandle:
    header = popped.header
    return ReceiptHandle(
        start_offset=start_offset,
        pop_time_ms=header.pop_time,
        invisible_time_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        mark=key.mark,
        broker_name=popped.target.broker_name,
        queue_id=key.queue_id,
        queue_offset=queue_offset,
    )
