"""Large groups wait apart for their memory: others do not wait for them, and each sender's order is kept."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from broker_cases import BrokerCase, StartBroker, messages_of

from gantrymq.broker.appends import put_queue
from gantrymq.broker.appends.put_queue import _LARGE_BYTES
from gantrymq.config.settings import FlushDiskType
from gantrymq.errors import DiskFullError
from gantrymq.model.message import Message
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.topic import DeleteTopicRequestHeader
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

LARGE = bytes(_LARGE_BYTES)


class Gate:
    """Holds back what brings memory in, until it is opened."""

    def __init__(self, broker: BrokerCase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.entered = threading.Event(), asyncio.Event()
        store, loop = broker.server.store, asyncio.get_running_loop()
        prefault = store._log.prefault_ahead

        def gated(size: int) -> None:
            loop.call_soon_threadsafe(self.entered.set)
            self.opened.wait(60)
            prefault(size)

        monkeypatch.setattr(store._log, "prefault_ahead", gated)


def patient(broker: BrokerCase) -> None:
    """Refuse nothing that waits long, as on a machine that others load."""
    broker.server.config.broker = replace(broker.server.config.broker, broker_fast_failure_enable=False)


async def idle(broker: BrokerCase) -> None:
    while not broker.server.puts.is_idle:
        await asyncio.sleep(0.001)


def put(broker: BrokerCase, sender: int, body: bytes, told: list[tuple[int, int]]) -> None:
    def done(result: PutMessageResult | None, busy: str | None) -> None:
        told.append((sender, result.queue_offset if result is not None else -1))

    assert broker.server.puts.put(AppendableMessage(Message("T", body, sender)), sender, done)


@pytest.mark.asyncio
async def test_other_sends_are_stored_while_large_message_waits_for_memory(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(broker)
    gate, told = Gate(broker, monkeypatch), list[tuple[int, int]]()
    put(broker, 1, LARGE, told)
    await gate.entered.wait()
    put(broker, 1, b"behind it", told)
    put(broker, 2, b"of another", told)
    while len(told) < 1:
        await asyncio.sleep(0.001)
    assert (told, len(broker.server.puts)) == ([(2, 0)], 2)
    gate.opened.set()
    await idle(broker)
    assert told == [(2, 0), (1, 0), (1, 1)]


@pytest.mark.asyncio
async def test_sends_of_connection_are_stored_in_order(broker: BrokerCase, rng: random.Random) -> None:
    patient(broker)
    await broker.send(queue_id=3)  # which makes the topic
    told: list[tuple[int, int]] = []
    bodies: dict[int, list[bytes]] = {sender: [] for sender in range(3)}
    for number in range(200):
        sender = rng.randrange(3)
        body = number.to_bytes(4) + (LARGE if rng.random() < 0.1 else b"")
        bodies[sender].append(body)
        put(broker, sender, body, told)
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    await idle(broker)
    for sender, sent in bodies.items():
        assert [offset for one, offset in told if one == sender] == list(range(len(sent)))
        await broker.dispatched(len(sent), queue_id=sender)
        stored: list[bytes] = []
        while len(stored) < len(sent):
            answer = await broker.pull(queue_id=sender, offset=len(stored))
            stored += [message.body for message in messages_of(answer.body)]
        assert stored == sent


@pytest.mark.asyncio
async def test_large_message_is_stored_after_earlier_sends_of_its_sender(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_queue, "_GROUPS_AN_APPEND", 1)
    monkeypatch.setattr(broker.server.store._log, "prefault_ahead", lambda size: None)
    patient(broker)
    told: list[tuple[int, int]] = []
    for _ in range(200):
        put(broker, 0, b"small", told)
    put(broker, 0, LARGE, told)
    await idle(broker)
    assert told == [(0, offset) for offset in range(201)]
    await broker.send()  # which makes the topic
    await broker.dispatched(202)
    assert len(messages_of((await broker.pull(offset=200)).body)[0].body) == len(LARGE)


@pytest.mark.asyncio
async def test_large_batch_among_other_sends_is_stored_contiguously(broker: BrokerCase) -> None:
    raw = encode_batch([BatchedMessage(0, b"x", b"")] * 20_000)
    assert len(raw) >= _LARGE_BYTES
    patient(broker)

    async def batch() -> list[int]:
        answer = await broker.send(body=raw, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
        return [int(one[-16:], 16) for one in answer.ext_fields["msgId"].split(",")]

    places, *others = await asyncio.gather(batch(), *(broker.send(body=b"y", queue_id=1) for _ in range(50)), batch())
    other_places = others.pop()
    assert {answer.code for answer in others if isinstance(answer, RemotingCommand)} == {ResponseCode.SUCCESS}
    for found in (places, other_places):
        assert isinstance(found, list)
        steps = {after - before for before, after in pairwise(found)}
        assert (len(found), len(steps)) == (20_000, 1)
    await broker.dispatched(40_000)


@pytest.fixture
def full(broker: BrokerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(size: int) -> None:
        raise DiskFullError("disk", 1)

    monkeypatch.setattr(broker.server.store._log, "prefault_ahead", fails)


@pytest.mark.asyncio
@pytest.mark.usefixtures("full")
async def test_failed_prefault_leaves_result_to_append(broker: BrokerCase) -> None:
    assert (await broker.send(body=LARGE)).code == ResponseCode.SUCCESS
    assert (await broker.send(body=b"small")).code == ResponseCode.SUCCESS


@pytest.mark.asyncio
async def test_send_waiting_too_long_for_memory_is_refused(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(wait_time_in_send_queue_ms=200)
    gate, told = Gate(broker, monkeypatch), list[tuple[int, int]]()
    put(broker, 1, LARGE, told)
    put(broker, 1, b"behind it", told)
    await gate.entered.wait()
    await asyncio.sleep(broker.server.config.broker.wait_time_in_send_queue_ms / 1000 + 0.01)
    assert broker.server.puts.head_wait_ms >= broker.server.config.broker.wait_time_in_send_queue_ms
    gate.opened.set()
    await idle(broker)
    assert told == [(1, -1), (1, -1)]
    put(broker, 1, b"after it", told)
    await idle(broker)
    assert told[2:] == [(1, 0)]


@pytest.mark.asyncio
async def test_deletion_of_topic_drops_sends_waiting_for_memory(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(broker)
    await broker.send()
    gate, told = Gate(broker, monkeypatch), list[tuple[int, int]]()
    put(broker, 0, LARGE, told)
    await gate.entered.wait()
    deletion = asyncio.create_task(broker.ask(DeleteTopicRequestHeader(topic="T")))
    while "T" not in broker.server.tables.topics.going:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert not told
    gate.opened.set()
    assert (await deletion).code == ResponseCode.SUCCESS
    assert told == [(0, 1)]
    assert broker.server.store.max_offset_in_queue("T", 0) == 0
    assert (await broker.send()).ext_fields["queueOffset"] == "0"


@pytest.mark.asyncio
async def test_large_message_is_acknowledged_once_durable(tmp_path: Path) -> None:
    async with BrokerCase(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        answer = await broker.send(body=LARGE)
        assert answer.code == ResponseCode.SUCCESS
        assert broker.server.store.flushed_offset >= int(answer.ext_fields["msgId"][-16:], 16) + len(LARGE)


@pytest.mark.asyncio
async def test_gathered_puts_are_in_next_append_even_if_another_gather_fails(
    broker: BrokerCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(broker)
    told: list[tuple[int, int]] = []
    appends: list[int] = []
    append = broker.server.store.append

    def counted(appendables: list[AppendableMessage]) -> list[PutMessageResult]:
        appends.append(len(appendables))
        return append(appendables)

    monkeypatch.setattr(broker.server.store, "append", counted)
    puts = broker.server.puts
    puts.before_append(lambda: put(broker, 1, b"gathered", told))
    puts.before_append(lambda: 1 / 0)
    put(broker, 0, b"before", told)
    await idle(broker)
    while len(told) < 2:
        await asyncio.sleep(0.001)
    puts.before_append(lambda: put(broker, 2, b"alone", told))
    while len(told) < 3:
        await asyncio.sleep(0.001)
    assert appends == [2, 1]
    assert sorted(sender for sender, _ in told) == [0, 1, 2]
