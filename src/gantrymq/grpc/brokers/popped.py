"""The requests to a broker about messages that were received: acknowledge, hide for another time, move to dead letters.

Source: ConsumerProcessor (ackMessage, changeInvisibleTime), ProducerProcessor (forwardMessageToDeadLetterQueue).
"""

from __future__ import annotations

from dataclasses import replace

from gantrymq.clock import Clock
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, ask
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import UNKNOWN, Handle, require_valid
from gantrymq.grpc.protocol.status import CallError
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

_TO_DEAD_LETTERS = -1  # a delay level


class PoppedMessages:
    """Settles messages of a group. Each method raises CallError for a handle that is too old."""

    def __init__(self, brokers: Brokers, clock: Clock) -> None:
        self._brokers, self._clock = brokers, clock

    async def ack(self, caller: Caller, handle: Handle, group: str, topic: str) -> RemotingCommand:
        """Acknowledge a message of ``topic``."""
        require_valid(handle, self._clock.now_ms())
        receipt = handle.receipt
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=receipt.real_topic(topic, group),
            queue_id=receipt.queue_id,
            extra_info=str(handle),
            offset=handle.queue_offset,
            bname=receipt.broker_name,
        )
        return await self._ask(caller, handle, RemotingCommand.request(header))

    async def hide(
        self, caller: Caller, handle: Handle, group: str, topic: str, invisible_ms: int, *, suspend: bool = False
    ) -> Handle | None:
        """Hide a message for ``invisible_ms`` from now on. Returns the new handle, None if the broker refuses.

        With ``suspend`` the next delivery does not count as another attempt.
        """
        require_valid(handle, self._clock.now_ms())
        receipt = handle.receipt
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=receipt.real_topic(topic, group),
            queue_id=receipt.queue_id,
            extra_info=str(handle),
            offset=handle.queue_offset,
            invisible_time=invisible_ms,
            suspend=suspend,
            bname=receipt.broker_name,
        )
        response = await self._ask(caller, handle, RemotingCommand.request(header))
        if response.code != ResponseCode.SUCCESS:
            return None
        changed = response.read(ChangeInvisibleTimeResponseHeader)
        renewed = replace(
            receipt,
            start_offset=handle.queue_offset,
            pop_time_ms=changed.pop_time,
            invisible_time_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
        )
        return Handle(renewed, handle.phy_offset)

    async def to_dead_letters(
        self, caller: Caller, handle: Handle, group: str, topic: str, message_id: str
    ) -> RemotingCommand:
        """Store a message in the dead letters of its group, then acknowledge it."""
        if handle.phy_offset == UNKNOWN:
            raise CallError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.phy_offset,
            group=group,
            delay_level=_TO_DEAD_LETTERS,
            origin_msg_id=message_id,
            origin_topic=handle.receipt.real_topic(topic, group),
            max_reconsume_times=0,
            bname=handle.receipt.broker_name,
        )
        response = await self._ask(caller, handle, RemotingCommand.request(header))
        if response.code == ResponseCode.SUCCESS:
            await self.ack(caller, handle, group, topic)
        return response

    async def _ask(self, caller: Caller, handle: Handle, command: RemotingCommand) -> RemotingCommand:
        name = handle.receipt.broker_name
        return await ask(self._brokers, caller, name, command, limits.REQUEST_TIMEOUT_MS)
