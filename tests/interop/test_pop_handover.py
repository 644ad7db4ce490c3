"""A broker is killed in the middle of POP, and the other implementation continues with its store.

With the merge buffer, batch acknowledgements, changed invisible times and ordered pops.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gantrymq.model.message import StoredMessage
from gantrymq.remoting.bodies.pop import encode_bits
from gantrymq.remoting.codes import RequestCode

from .java_cluster import JavaCluster
from .our_broker import OurBroker
from .raw_pops import Fields, Handle, RawBroker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BROKERS: dict[str, Any] = {"java": JavaCluster, "ours": OurBroker}
SETTINGS: Fields = {
    "brokerName": "broker-a", "brokerClusterName": "DefaultCluster", "timerWheelEnable": True,
    "flushConsumerOffsetInterval": 500,
}  # fmt: skip
QUEUES, MESSAGES = 4, 15
INVISIBLE_MS, CHANGED_MS, BUFFERED_S, WAIT_S = 25_000, 45_000, 13, 120

One = tuple[StoredMessage, Handle]


def address_of(broker: Any) -> str:
    return broker.broker if isinstance(broker, JavaCluster) else broker.address  # type: ignore[no-any-return]


def now_ms() -> int:
    return int(time.time() * 1000)


class Consumer:
    """A consumer of the group G. ``due_ms`` is when each message is visible again, ``acked`` what it acknowledged."""

    def __init__(self) -> None:
        self.due_ms: dict[str, int] = {}
        self.acked: set[str] = set()
        self.in_order: list[One] = []

    async def begin(self, broker: RawBroker) -> None:
        """Pop everything; acknowledge, change or keep a part of each queue. The last ones only just before the kill."""
        for topic, queues in (("P", QUEUES), ("O", 2)):
            await broker.create(topic, queues)
            for queue_id in range(queues):
                for number in range(MESSAGES):
                    await broker.send(topic, queue_id, f"{queue_id}-{number}", number)
        await asyncio.sleep(1)
        found = [(await self._pop(broker, queue_id)).copy() for queue_id in range(QUEUES)]
        self.in_order = (
            await broker.pop("O", topic="O", maxMsgNums=4, invisibleTime=INVISIBLE_MS, order="true")
        ).messages
        for queue in found:
            await self.settle(broker, queue[:5])
        await self.ack(broker, "O", self.in_order[1], group="O")
        await self.change(broker, "O", self.in_order[2], group="O")
        # With enablePopBufferMerge the checkpoints are in memory until then. The real broker saves
        # consumerOrderInfo.json every ten seconds.
        await asyncio.sleep(BUFFERED_S)
        for queue in found:
            await self.settle(broker, queue[5:10])
        await asyncio.sleep(2)

    async def _pop(self, broker: RawBroker, queue_id: int) -> list[One]:
        found = (await broker.pop("G", queueId=queue_id, maxMsgNums=32, invisibleTime=INVISIBLE_MS)).messages
        assert len(found) == MESSAGES
        for message, handle in found:
            self.due_ms[message.body.decode()] = int(handle.pop_time) + int(handle.invisible)
        return found

    async def settle(self, broker: RawBroker, some: list[One]) -> None:
        """Acknowledge one message by a request of its own and two by a batch, and change one."""
        await self.ack(broker, "P", some[0])
        message, handle = some[1]
        first = message.queue_offset - int(handle.start)
        entry = {
            "c": "G", "t": "P", "r": "0", "so": int(handle.start), "q": message.queue_id, "rq": int(handle.revive),
            "pt": int(handle.pop_time), "it": int(handle.invisible), "b": encode_bits([first, first + 1]),
        }  # fmt: skip
        body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
        answer = await broker.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        assert answer.code == 0, answer.remark
        self.acked |= {message.body.decode() for message, _ in some[:3]}
        await self.change(broker, "P", some[3])

    async def ack(self, broker: RawBroker, topic: str, one: One, group: str = "G") -> None:
        message, handle = one
        fields: Fields = {
            "consumerGroup": group, "topic": topic, "queueId": message.queue_id, "offset": message.queue_offset,
            "extraInfo": str(handle),
        }  # fmt: skip
        answer = await broker.ask(RequestCode.ACK_MESSAGE, fields)
        assert answer.code == 0, answer.remark

    async def change(self, broker: RawBroker, topic: str, one: One, group: str = "G") -> None:
        message, handle = one
        fields: Fields = {
            "consumerGroup": group, "topic": topic, "queueId": message.queue_id, "offset": message.queue_offset,
            "extraInfo": str(handle), "invisibleTime": CHANGED_MS,
        }  # fmt: skip
        answer = await broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert answer.code == 0, answer.remark
        due_ms = int(answer.ext_fields["popTime"]) + int(answer.ext_fields["invisibleTime"])
        self.due_ms[f"{topic * (topic != 'P')}{message.body.decode()}"] = due_ms

    async def end(self, broker: RawBroker) -> None:
        """What was not acknowledged comes back, and nothing before its time."""
        deadline, back = time.monotonic() + WAIT_S, dict[str, int]()
        wanted = {name for name in self.due_ms if not name.startswith("O")} - self.acked
        while not wanted <= set(back):
            assert time.monotonic() < deadline, f"lost: {sorted(wanted - set(back))}"
            for message, _ in (await broker.pop("G", queueId=-1, maxMsgNums=32, invisibleTime=600_000)).messages:
                back.setdefault(message.body.decode(), now_ms())
            await asyncio.sleep(0.2)
        assert {name: at - self.due_ms[name] for name, at in back.items() if at < self.due_ms[name]} == {}
        assert set(back) <= wanted

    async def end_in_order(self, broker: RawBroker) -> None:
        """The queue is blocked until the first message is visible; the second is acknowledged, the third changed."""
        deadline, order = time.monotonic() + WAIT_S, list[str]()
        while len(order) < MESSAGES - 1:
            assert time.monotonic() < deadline, order
            found = (await broker.pop("O", topic="O", maxMsgNums=4, invisibleTime=60_000, order="true")).messages
            for one in found:
                if not order:
                    assert now_ms() >= self.due_ms["O0-2"]
                order.append(one[0].body.decode())
                await self.ack(broker, "O", one, group="O")
            await asyncio.sleep(0.2)
        assert [one for one in order if one != "0-1"] == [f"0-{number}" for number in range(MESSAGES) if number != 1]


async def at(broker: Any, *work: Callable[[RawBroker], Awaitable[None]]) -> None:
    raw = RawBroker(address_of(broker))
    try:
        await asyncio.gather(*(one(raw) for one in work))
    finally:
        await raw.client.close()


@pytest.mark.parametrize(
    ("first", "second", "merges"),
    [("java", "ours", False), ("java", "ours", True), ("ours", "java", True), ("ours", "ours", True)],
)
def test_broker_continues_with_pops_of_other_one(tmp_path: Path, first: str, second: str, merges: bool) -> None:
    consumer = Consumer()
    settings = {**SETTINGS, "enablePopBufferMerge": merges, "enablePopBatchAck": merges}
    with JavaCluster(None, broker=False) as cluster:
        with BROKERS[first](tmp_path / "store", settings, namesrv=cluster.namesrv) as broker:
            asyncio.run(at(broker, consumer.begin))
            broker.kill()
        with BROKERS[second](tmp_path / "store", settings, namesrv=cluster.namesrv) as broker:
            asyncio.run(at(broker, consumer.end, consumer.end_in_order))
