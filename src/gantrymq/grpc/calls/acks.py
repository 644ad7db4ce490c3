"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: how a consumer settles what it received.

Source: AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.errors import GantrymqError
from gantrymq.grpc import limits
from gantrymq.grpc.brokers.popped import PoppedMessages
from gantrymq.grpc.calls.gathering import Gathering
from gantrymq.grpc.clients.registry import Clients
from gantrymq.grpc.clients.renewal import Renewals
from gantrymq.grpc.protocol.caller import Caller
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.handles import Handle, read_handle
from gantrymq.grpc.protocol.messages import (
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
    to_ms,
)
from gantrymq.grpc.protocol.status import CallError, status, status_of_error, status_of_response
from gantrymq.grpc.protocol.validation import require_group, require_invisible_time, require_topic
from gantrymq.remoting.codes import ResponseCode


class SettleMessages:
    """Answers the three calls. A handle may be older than the one that a renewal has made of it."""

    def __init__(self, config: GrpcConfig, clients: Clients, popped: PoppedMessages, renewals: Renewals) -> None:
        self._config, self._clients, self._popped, self._renewals = config, clients, popped, renewals
        self._acks = Gathering(asyncio.get_running_loop())

    async def ack(self, caller: Caller, request: Any) -> Any:
        """The answer to an AckMessageRequest, with a status for each message."""
        topic, group = require_topic(request.topic.name), require_group(request.group.name)
        if len(request.entries) > limits.MAX_ENTRIES:
            raise CallError(Code.BAD_REQUEST, f"an acknowledgement of more than {limits.MAX_ENTRIES} messages")
        entries = request.entries
        if not entries:
            return AckMessageResponse(status=status(Code.INTERNAL_SERVER_ERROR, "ack message result is empty"))
        if len(entries) == 1:
            results = [await self._ack_single(caller, group, topic, entries[0])]
        else:
            results = await self._ack_all(caller, group, topic, entries)
        codes = {done.code for done in results}
        answer = AckMessageResponse(status=status(Code.MULTIPLE_RESULTS if len(codes) > 1 else Code(codes.pop())))
        for entry, done in zip(entries, results, strict=True):
            answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=done)
        return answer

    async def _ack_single(self, caller: Caller, group: str, topic: str, entry: Any) -> Any:
        """The status of the only entry of a call, as the SDKs send them."""
        await self._acks.turn()  # a call that is cancelled here leaves the renewal of its message as it is
        try:
            handle = self._newest(caller, group, entry.message_id, entry.receipt_handle)
        except CallError as error:
            return status_of_error(error)
        return await self._ack_one(caller, group, topic, handle)

    async def _ack_all(self, caller: Caller, group: str, topic: str, entries: Sequence[Any]) -> list[Any]:
        """The status of each entry. The entries of one broker are one request to it."""
        done: dict[int, Any] = {}
        of_brokers: dict[str, dict[int, Handle]] = {}
        for number, entry in enumerate(entries):
            try:
                handle = self._newest(caller, group, entry.message_id, entry.receipt_handle)
                self._popped.require_valid(handle)
                of_brokers.setdefault(handle.receipt.broker_name, {})[number] = handle
            except CallError as error:
                done[number] = status_of_error(error)
        for results in await asyncio.gather(
            *(self._ack_at(caller, name, group, topic, handles) for name, handles in of_brokers.items())
        ):
            done |= results
        return [done[number] for number in range(len(entries))]

    async def _ack_at(
        self, caller: Caller, broker_name: str, group: str, topic: str, handles: dict[int, Handle]
    ) -> dict[int, Any]:
        """The status of each handle of a broker.

        The answer to a request for several is one code. If it is not a success, each is acknowledged once more by a
        request of its own, which a broker takes a second time.
        """
        joined = {number: handle for number, handle in handles.items() if self._popped.can_join(handle)}
        done: dict[int, Any] = {}
        if len(joined) > 1:
            try:
                if await self._popped.ack_several(caller, broker_name, joined.values(), group, topic):
                    done = dict.fromkeys(joined, status(Code.OK))
            except GantrymqError as error:
                return dict.fromkeys(handles, status_of_error(error))
        single = {number: handle for number, handle in handles.items() if number not in done}
        results = await asyncio.gather(*(self._ack_one(caller, group, topic, handle) for handle in single.values()))
        return done | dict(zip(single, results, strict=True))

    async def _ack_one(self, caller: Caller, group: str, topic: str, handle: Handle) -> Any:
        try:
            response = await self._popped.ack(caller, handle, group, topic)
        except GantrymqError as error:
            return status_of_error(error)
        if response.code != ResponseCode.SUCCESS:
            return status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
        return status(Code.OK)

    async def change_invisible_duration(self, caller: Caller, request: Any) -> Any:
        """The answer to a ChangeInvisibleDurationRequest, with the new handle."""
        topic, group = require_topic(request.topic.name), require_group(request.group.name)
        invisible_ms = require_invisible_time(to_ms(request.invisible_duration), self._config.max_invisible_ms)
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
        """End the renewal of a message. Returns its newest handle. Raises CallError for another account's client."""
        known = self._clients.find(caller.client_id) is not None
        client = self._clients.of(caller) if known else None
        return self._renewals.take(client, group, message_id, read_handle(text))
