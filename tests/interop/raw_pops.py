"""POP requests by the low-level client, to either broker, with fields that no client sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gantrymq.format import record
from gantrymq.format.record import Layout
from gantrymq.model.message import StoredMessage
from gantrymq.model.receipt_handle import parse_message_offsets, parse_start_offsets
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

TIMEOUT_MS = 20_000
Fields = dict[str, Any]


@dataclass
class Handle:
    """The parts of a receipt handle."""

    start: Any
    pop_time: Any
    invisible: Any
    revive: Any
    mark: Any
    broker: Any
    queue: Any
    offset: Any = None

    def __str__(self) -> str:
        parts = [self.start, self.pop_time, self.invisible, self.revive, self.mark, self.broker, self.queue]
        return " ".join(map(str, parts)) + ("" if self.offset is None else f" {self.offset}")


@dataclass
class Popped:
    """The answer to a pop: its messages with their handles."""

    answer: RemotingCommand
    messages: list[tuple[StoredMessage, Handle]] = field(default_factory=list)


def records_of(body: bytes) -> list[StoredMessage]:
    found, at = [], 0
    while at < len(body):
        layout = record.read_layout(memoryview(body), at, len(body))
        assert isinstance(layout, Layout)
        found.append(record.decode_record(memoryview(body), at, layout))
        at += layout.size
    return found


class RawBroker:
    """Asks one broker, and notes what it says."""

    def __init__(self, address: str) -> None:
        self.address, self.client = address, RemotingClient()

    async def ask(self, code: int, fields: Fields, body: bytes = b"") -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        return await self.client.invoke(self.address, RemotingCommand(code, ext_fields=texts, body=body), TIMEOUT_MS)

    async def pop(self, group: str, **of: Any) -> Popped:
        fields: Fields = {
            "consumerGroup": group, "topic": "P", "queueId": 0, "maxMsgNums": 3, "invisibleTime": 5_000, "pollTime": 0,
            "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*", "order": "false", **of,
        }  # fmt: skip
        answer = await self.ask(RequestCode.POP_MESSAGE, fields)
        popped = Popped(answer)
        if answer.code != 0:
            return popped
        got = answer.ext_fields
        starts = parse_start_offsets(got["startOffsetInfo"])
        assert set(starts) == set(parse_message_offsets(got["msgOffsetInfo"]))
        for message in records_of(answer.body):
            parts = message.properties.get("POP_CK")
            if parts is not None:
                handle = Handle(*parts.split(" "))
            else:
                start = next(at for queue, at in starts.items() if queue.queue_id == message.queue_id)
                handle = Handle(
                    start, got["popTime"], got["invisibleTime"], got["reviveQid"], "0", "broker-a", message.queue_id,
                    message.queue_offset,
                )  # fmt: skip
            popped.messages.append((message, handle))
        return popped

    async def committed(self, group: str, topic: str = "P", queue_id: int = 0) -> str | None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return answer.ext_fields.get("offset")

    async def create(self, topic: str, queues: int, perm: int = 6) -> None:
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        answer = await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, answer.remark

    async def send(self, topic: str, queue_id: int, body: str, number: int = 0) -> None:
        properties = f"UNIQ_KEY\x01{topic}-{body}\x02TAGS\x01{'ab'[number % 2]}\x02n\x01{number}\x02WAIT\x01true\x02"
        fields = {
            "a": "Producer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1_700_000_000_000,
            "h": 7, "i": properties, "j": 0, "k": "false", "l": 0, "m": "false",
        }  # fmt: skip
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, fields, body.encode())
        assert answer.code == 0, answer.remark
