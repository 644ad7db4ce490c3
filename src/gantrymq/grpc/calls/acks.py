"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: how a consumer settles what it received.

Source: AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gantrymq.errors import GantrymqError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.clients.registry import Clients
from gantrymq.grpc.clients.renewal import Renewals
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import Handle, read_handle
from gantrymq.grpc.protocol.messages import (
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
    to_ms,
)
from gantrymq.grpc.protocol.status import CallError, status, status_of_error, status_of_response
from gantrymq.grpc.protocol.validation import require_group, require_invisible_time, require_topic
from gantrymq.remoting.codes import ResponseCode


class SettleMessages:
    """Answers the three calls. A handle may be older than the one that a renewal has made of it."""

    def __init__(self, clients: Clients, popped: PoppedMessages, renewals: Renewals) -> None:
        self._clients, self._popped, self._renewals = clients, popped, renewals

    async def ack(self, caller: Caller, request: Any) -> Any:
        """The answer to an AckMessageRequest, with a status for each message."""
        topic, group = require_topic(request.topic.name), require_group(request.group.name)
        if len(request.entries) > limits.MAX_ENTRIES:
            raise CallError(Code.BAD_REQUEST, f"an acknowledgement of more than {limits.MAX_ENTRIES} messages")
        answer = AckMessageResponse()
        answer.entries.extend(
            await asyncio.gather(*(self._ack_one(caller, group, topic, entry) for entry in request.entries))
        )
        codes = {entry.status.code for entry in answer.entries}
        if not codes:
            answer.status.CopyFrom(status(Code.INTERNAL_SERVER_ERROR, "ack message result is empty"))
        else:
            code = Code.MULTIPLE_RESULTS if len(codes) > 1 else Code(codes.pop())
            answer.status.CopyFrom(status(code))
        return answer

    async def _ack_one(self, caller: Caller, group: str, topic: str, entry: Any) -> Any:
        try:
            handle = self._newest(caller, group, entry.message_id, entry.receipt_handle)
            response = await self._popped.ack(caller, handle, group, topic)
            done = status(Code.OK)
            if response.code != ResponseCode.SUCCESS:
                done = status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
        except GantrymqError as error:
            done = status_of_error(error)
        return AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=done)

    async def change_invisible_duration(self, caller: Caller, request: Any) -> Any:
        """The answer to a ChangeInvisibleDurationRequest, with the new handle."""
        topic, group = require_topic(request.topic.name), require_group(request.group.name)
        invisible_ms = require_invisible_time(to_ms(request.invisible_duration))
        handle = self._newest(caller, group, request.message_id, request.receipt_handle)
        renewed = await self._popped.hide(caller, handle, group, topic, invisible_ms, suspend=request.suspend)
        if renewed is None:
            text = "changeInvisibleDuration failed: status is abnormal"
            return ChangeInvisibleDurationResponse(status=status(Code.INTERNAL_SERVER_ERROR, text))
        return ChangeInvisibleDurationResponse(status=status(Code.OK), receipt_handle=str(renewed))

    async def forward_to_dead_letters(self, caller: Caller, request: Any) -> Any:
        """The answer to a ForwardMessageToDeadLetterQueueRequest."""
        topic, group = require_topic(request.topic.name), require_group(request.group.name)
        handle = self._newest(caller, group, request.message_id, request.receipt_handle)
        response = await self._popped.to_dead_letters(caller, handle, group, topic, request.message_id)
        done = status(Code.OK) if response.code == ResponseCode.SUCCESS else status_of_response(response)
        return ForwardMessageToDeadLetterQueueResponse(status=done)

    def _newest(self, caller: Caller, group: str, message_id: str, text: str) -> Handle:
        client = self._clients.find(caller.client_id)
        return self._renewals.take(client, group, message_id, read_handle(text))
