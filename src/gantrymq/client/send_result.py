"""The result of a send.

Source: SendResult, SendStatus, MQClientAPIImpl.processSendResponse.
"""

from dataclasses import dataclass
from enum import Enum

from gantrymq.client.calls import refusal
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import SendMessageResponseHeader


class SendStatus(Enum):
    """SEND_OK: stored as configured. The others: stored, but not flushed in time, or not replicated."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class SendResult:
    """``msg_id`` is the producer's id (UNIQ_KEY), ``offset_msg_id`` the broker's. For a batch both are comma-joined."""

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None


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
    header = response.read(SendMessageResponseHeader)
    return SendResult(
        status,
        ids,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.msg_id,
        header.transaction_id,
        header.recall_handle,
    )
