"""A name server and a broker that answer POP as a test says, and note what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from gantrymq.format.properties import encode_properties
from gantrymq.format.record import encode_record
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.bodies.client import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from gantrymq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from gantrymq.remoting.transport.server import RemotingServer

POP_TIME_MS = 1_700_000_000_000
HOST = Host(b"\x7f\x00\x00\x01", 10911)
HeaderT = TypeVar("HeaderT", bound=CommandHeader)


def popped(
    offset: int,
    *,
    topic: str = "T",
    body: bytes = b"body",
    reconsume_times: int = 0,
    sys_flag: int = 0,
    **properties: str,
) -> StoredMessage:
    """A message of queue 0 as a broker pops it."""
    return StoredMessage(
        topic=topic, queue_id=0, queue_offset=offset, phy_offset=1000 + offset, size_bytes=0, flag=0, sys_flag=sys_flag,
        born_timestamp_ms=0, born_host=HOST, store_timestamp_ms=0, store_host=HOST, reconsume_times=reconsume_times,
        prepared_transaction_offset=0, body_crc=0, body=body, properties=properties,
    )  # fmt: skip


class FakePopBroker:
    """``waiting`` has the messages to pop by topic; ``asked`` the headers of the requests, by their class.

    ``assigned`` is the answer to QUERY_ASSIGNMENT for T, and ``answer_pop`` replaces the answer to a pop. A
    NOTIFICATION is held until :meth:`arrive`, or answered at once where ``has_always`` is set.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[StoredMessage]] = {}
        self.asked: list[CommandHeader] = []
        self.has_always = False
        self.answer_pop: Callable[[RemotingCommand], RemotingCommand | None] | None = None
        self.start_offsets = ""  # replaces startOffsetInfo: queue 0 from the first message on, its retry queue from 0
        self.topics = {"T"}
        self.assigned: list[MessageQueueAssignment] | None = [
            MessageQueueAssignment(message_queue=MessageQueue("T", "broker-a", -1), mode="POP")
        ]
        self.assignments: list[QueryAssignmentRequestBody] = []
        self.address = ""
        self._arrivals: dict[str, asyncio.Event] = {}
        self._server = RemotingServer(
            RequestDispatcher(
                {
                    RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                    RequestCode.HEART_BEAT: lambda channel, request: request.response(ResponseCode.SUCCESS),
                    RequestCode.UNREGISTER_CLIENT: lambda channel, request: request.response(ResponseCode.SUCCESS),
                    RequestCode.QUERY_ASSIGNMENT: self._assign,
                    RequestCode.POP_MESSAGE: self._pop,
                    RequestCode.NOTIFICATION: self._notify,
                    RequestCode.ACK_MESSAGE: self._accept(AckMessageRequestHeader),
                    RequestCode.CONSUMER_SEND_MSG_BACK: self._accept(ConsumerSendMsgBackRequestHeader),
                    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
                }
            )
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakePopBroker]:
        port = await self._server.start("127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        try:
            yield self
        finally:
            for event in self._arrivals.values():
                event.set()
            await self._server.close()

    def arrive(self, *messages: StoredMessage, topic: str = "T") -> None:
        """Store messages, and answer the held NOTIFICATION of the topic."""
        self.waiting.setdefault(topic, []).extend(messages)
        self._event(topic).set()

    def of(self, kind: type[HeaderT]) -> list[HeaderT]:
        """The requests of one kind, in order."""
        return [one for one in self.asked if isinstance(one, kind)]

    async def asked_for(self, kind: type[HeaderT], count: int) -> list[HeaderT]:
        """Wait for ``count`` requests of one kind, and return all of that kind."""
        while len(self.of(kind)) < count:
            await asyncio.sleep(0.001)
        return self.of(kind)

    def _event(self, topic: str) -> asyncio.Event:
        return self._arrivals.setdefault(topic, asyncio.Event())

    def _note(self, request: RemotingCommand, kind: type[HeaderT]) -> HeaderT:
        header = request.read(kind)
        self.asked.append(header)
        return header

    def _route(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        topic = (request.ext_fields or {})["topic"]
        if topic not in self.topics:
            return request.response(ResponseCode.TOPIC_NOT_EXIST)
        route = TopicRouteData(
            queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)],
            broker_datas=[BrokerData(cluster="c", broker_name="broker-a", broker_addrs={0: self.address})],
        )
        return request.response(ResponseCode.SUCCESS, body=route.encode())

    def _assign(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        asked = decode_body(QueryAssignmentRequestBody, request.body)
        self.assignments.append(asked)
        body = QueryAssignmentResponseBody(message_queue_assignments=self.assigned if asked.topic == "T" else [])
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def _pop(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = self._note(request, PopMessageRequestHeader)
        if self.answer_pop is not None and (answer := self.answer_pop(request)) is not None:
            return answer
        messages = self.waiting.get(header.topic, [])[: header.max_msg_nums]
        self.waiting[header.topic] = self.waiting.get(header.topic, [])[header.max_msg_nums :]
        if not messages:
            return request.response(ResponseCode.PULL_NOT_FOUND)
        return self.found(request, messages)

    def found(self, request: RemotingCommand, messages: list[StoredMessage], **info: Any) -> RemotingCommand:
        """The answer with these messages."""
        asked = request.read(PopMessageRequestHeader)
        starts = f"0 0 {messages[0].queue_offset};1 0 0" if messages else None
        header = PopMessageResponseHeader(
            pop_time=POP_TIME_MS,
            invisible_time=asked.invisible_time,
            revive_qid=3,
            rest_num=0,
            **{"start_offset_info": self.start_offsets or starts, **info},
        )
        body = b"".join(encode_record(one, one.topic.encode(), encode_properties(one.properties)) for one in messages)
        return request.response(ResponseCode.SUCCESS, header=header, body=body)

    async def _notify(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = self._note(request, NotificationRequestHeader)
        if not self.has_always:
            event = self._event(header.topic)
            await event.wait()
            event.clear()
        return request.response(ResponseCode.SUCCESS, header=NotificationResponseHeader(has_msg=True))

    def _change(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        asked = self._note(request, ChangeInvisibleTimeRequestHeader)
        header = ChangeInvisibleTimeResponseHeader(
            pop_time=POP_TIME_MS + 500, invisible_time=asked.invisible_time, revive_qid=4
        )
        return request.response(ResponseCode.SUCCESS, header=header)

    def _accept(self, kind: type[CommandHeader]) -> Callable[[Channel, RemotingCommand], RemotingCommand]:
        def accept(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            self._note(request, kind)
            return request.response(ResponseCode.SUCCESS)

        return accept
