"""Receipt handles in calls: RocketMQ's eight fields, and as a ninth the message's place in the log.

Source: ReceiptHandle, AbstractProcessor (validateReceiptHandle), ConsumerProcessor (createHandle).
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.errors import ReceiptHandleError
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError
from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.model.receipt_handle import ReceiptHandle, parse_receipt_handle

_PHY_OFFSET_INDEX = 8  # the index of the ninth field
UNKNOWN = -1


class Handle(NamedTuple):
    """A receipt handle. ``phy_offset`` is UNKNOWN for a handle without the ninth field."""

    receipt: ReceiptHandle
    phy_offset: int

    def __str__(self) -> str:
        """The text for clients."""
        return f"{self.receipt} {self.phy_offset}"

    @property
    def queue_offset(self) -> int:
        """The message's offset in its queue."""
        receipt = self.receipt
        return receipt.start_offset if receipt.queue_offset is None else receipt.queue_offset

    @property
    def message_key(self) -> tuple[str, int, int]:
        """What stays the same when the handle is renewed: broker, queue and offset."""
        return self.receipt.broker_name, self.receipt.queue_id, self.queue_offset


def read_handle(text: str) -> Handle:
    """Parse a handle of a client, which may have forged it. Raises CallError."""
    try:
        receipt = parse_receipt_handle(text)
        fields = text.split(" ")
        if receipt.queue_offset is None:
            raise ReceiptHandleError("a receipt handle without an offset")
        phy_offset = parse_number(fields[_PHY_OFFSET_INDEX], LONG_MAX) if len(fields) > _PHY_OFFSET_INDEX else UNKNOWN
    except (ReceiptHandleError, ValueError) as error:
        raise CallError(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
    return Handle(receipt, max(phy_offset, UNKNOWN))


def require_valid(handle: Handle, now_ms: int) -> None:
    """Raise CallError for a handle whose message is visible again."""
    if handle.receipt.visible_time_ms <= now_ms:
        raise CallError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
