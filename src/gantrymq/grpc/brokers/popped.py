"""The requests to a broker about messages that were received: acknowledge, hide for another time, move to dead letters.

Source: ConsumerProcessor (ackMessage, changeInvisibleTime), ProducerProcessor (forwardMessageToDeadLetterQueue).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gantrymq.clock import Clock
from gantrymq.errors import GantrymqError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.interface import Brokers, ask
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import UNKNOWN, Handle, require_valid
from gantrymq.grpc.protocol.status import CallError
from gantrymq.logs import get_logger
from gantrymq.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, encode_bits
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

_TO_DEAD_LETTERS = -1  # a delay level
_MAX_BITS = 65_536  # a broker refuses an offset that is further behind the first one of its pop

log = get_logger("gantrymq.grpc")


class BatchAckKey(NamedTuple):
    """What the messages of one pop have in common."""

    mark: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int


class PoppedMessages:
    """Settles messages of a group. Each method raises CallError for a handle that is too old."""

    def __init__(self, brokers: Brokers, clock: Clock) -> None:
        self._brokers, self._clock = brokers, clock

    def require_valid(self, handle: Handle) -> None:
        """Raise CallError for a handle whose message is visible again."""
        require_valid(handle, self._clock.now_ms())

    async def ack(self, caller: Caller, handle: Handle, group: str, topic: str) -> RemotingCommand:
        """Acknowledge a message of ``topic``."""
        self.require_valid(handle)
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

    @staticmethod
    def can_join(handle: Handle) -> bool:
        """Whether :meth:`ack_several` takes a handle. A broker acknowledges messages of an ordered pop one by one."""
        behind = handle.queue_offset - handle.receipt.start_offset
        return not handle.receipt.is_order and 0 <= behind < _MAX_BITS

    async def ack_several(
        self, caller: Caller, broker_name: str, handles: Iterable[Handle], group: str, topic: str
    ) -> bool:
        """Acknowledge valid handles of one broker with one request. Returns whether the broker has taken them all.

        A broker leaves out offsets that are outside their queue. If one is refused, others may have been taken.
        """
        bits: dict[BatchAckKey, list[int]] = {}
        for handle in handles:
            receipt = handle.receipt
            key = BatchAckKey(
                receipt.mark,
                receipt.queue_id,
                receipt.start_offset,
                receipt.pop_time_ms,
                receipt.invisible_time_ms,
                receipt.revive_queue_id,
            )
            bits.setdefault(key, []).append(handle.queue_offset - receipt.start_offset)
        acks = [
            BatchAck(
                consumer_group=group,
                topic=topic,
                retry=key.mark,
                start_offset=key.start_offset,
                queue_id=key.queue_id,
                revive_queue_id=key.revive_queue_id,
                pop_time=key.pop_time_ms,
                invisible_time=key.invisible_time_ms,
                bit_set=encode_bits(of_pop),
            )
            for key, of_pop in bits.items()
        ]
        body = BatchAckMessageRequestBody(broker_name=broker_name, acks=acks)
        command = RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())
        response = await ask(self._brokers, caller, broker_name, command, limits.REQUEST_TIMEOUT_MS)
        return response.code == ResponseCode.SUCCESS

    async def hide(
        self, caller: Caller, handle: Handle, group: str, topic: str, invisible_ms: int, *, suspend: bool = False
    ) -> Handle | None:
        """Hide a message for ``invisible_ms`` from now on. Returns the new handle, None if the broker refuses.

        With ``suspend`` the next delivery does not count as another attempt.
        """
        self.require_valid(handle)
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
        """Store a message in the dead letters of its group, then acknowledge it.

        The response is that of the first part. A dead letter whose message cannot be acknowledged, because it has
        become visible for example, is stored all the same: the client must not send it again.
        """
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
            try:
                await self.ack(caller, handle, group, topic)
            except GantrymqError as error:
                log.info("the message of a dead letter was not acknowledged", group=group, reason=str(error))
        return response

    async def _ask(self, caller: Caller, handle: Handle, command: RemotingCommand) -> RemotingCommand:
        name = handle.receipt.broker_name
        return await ask(self._brokers, caller, name, command, limits.REQUEST_TIMEOUT_MS)
