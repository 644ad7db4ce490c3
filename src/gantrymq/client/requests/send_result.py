"""The result of a send.

Source: SendResult, SendStatus, TransactionSendResult, LocalTransactionState, MQClientAPIImpl.processSendResponse.
"""

from dataclasses import dataclass, fields
from enum import Enum
from typing import Self

from msgspec import field

from gantrymq.client.requests.calls import refusal
from gantrymq.model.message import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageResponseHeader

DEFAULT_REGION = "DefaultRegion"


class SendStatus(Enum):
    """SEND_OK: stored as configured. The others: stored, but not flushed in time, or not replicated."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class SendResult:
    """``msg_id`` is the producer's id (UNIQ_KEY), ``offset_msg_id`` the broker's. For a batch both are comma-joined.

    ``recall_handle`` is that of a timer message. ``region_id`` is the broker's, and ``is_trace_on`` its ``traceOn``.
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = DEFAULT_REGION
    is_trace_on: bool = True


class LocalTransactionState(Enum):
    """The result of a local transaction. The broker asks again after UNKNOW (RocketMQ's spelling)."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


@dataclass(frozen=True, slots=True)
class TransactionSendResult(SendResult):
    """The result of a send in a transaction: the result of the half message, and the producer's decision."""

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOW

    @classmethod
    def of(cls, sent: SendResult, state: LocalTransactionState) -> Self:
        """The result of a half message's send and the decision."""
        known = {field.name: getattr(sent, field.name) for field in fields(SendResult)}
        return cls(**known, local_transaction_state=state)


class _SendAnswer(SendMessageResponseHeader, kw_only=True):
    """The header of an answer, with the two fields that a broker adds to it."""

    region_id: str | None = field(name=PROPERTY_MSG_REGION, default=None)
    trace_on: str | None = field(name=PROPERTY_TRACE_SWITCH, default=None)


_STATUS = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


def read_send_result(response: RemotingCommand, address: str, queue: MessageQueue, ids: str) -> SendResult:
    """The result in the answer to a send. Raises MQBrokerError if the broker refused the message."""
    status = _STATUS.get(response.code)  # type: ignore[call-overload]
    if status is None:
        raise refusal(response, address)
    header = response.read(_SendAnswer)
    return SendResult(
        status,
        ids,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.msg_id,
        header.transaction_id,
        header.recall_handle,
        header.region_id or DEFAULT_REGION,
        header.trace_on != "false",
    )
