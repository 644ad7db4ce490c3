"""Acknowledgements of one read that are taken together have the same effect as one by one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import cast

import pytest
from broker_cases import BrokerCase
from send_frames import ONEWAY, frame, header_of

from gantrymq.broker.pop.ack_runs import AckRun, FindAckRun
from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.clock import ManualClock
from gantrymq.format.pop_checkpoint import MAX_MESSAGES, decode_pop_ack
from gantrymq.model.receipt_handle import ORDER_REVIVE_QUEUE, ReceiptHandle
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.connection import Connection, split_run
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.tls import TlsServer

NOW_MS, MESSAGES = 1_800_000_000_000, 40
HANDLE = ReceiptHandle(0, NOW_MS, 30_000, 1, "0", "broker-a", 0, 3)


def ack_frame(number: int, handle: str = str(HANDLE), *, flag: int = 0, body: bytes = b"", **more: str) -> bytes:
    """An acknowledgement as the Java client writes it."""
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "extraInfo": handle, "offset": "3"}
    head = header_of(fields | {"bname": "broker-a"} | more, number, code=int(RequestCode.ACK_MESSAGE), flag=flag)
    return frame(head, body)


def find(data: bytes, begin: int = 0) -> AckRun | None:
    return FindAckRun()(data, begin)


def test_run_has_requests_of_its_frames() -> None:
    data = b"x" * 7 + b"".join(ack_frame(n, offset=str(n)) for n in range(100))
    run = find(data, 7)
    assert run is not None
    assert [ack.opaque for ack in run.acks] == [one.opaque for one in split_run(run)] == list(range(64))
    assert data[run.end :] == b"".join(ack_frame(n, offset=str(n)) for n in range(64, 100))
    parts = run.by_pop()
    assert parts is not None
    assert [part.offsets for part in parts] == [list(range(MAX_MESSAGES)), list(range(MAX_MESSAGES, 64))]


@pytest.mark.parametrize(
    "third",
    [
        ack_frame(2, flag=ONEWAY),
        ack_frame(2, body=b"body"),
        ack_frame(2, offset="x"),
        ack_frame(2, offset="9" * 19),
        ack_frame(2, topic="T" * 1024),
        frame(header_of({"topic": "T"}, 2, code=int(RequestCode.ACK_MESSAGE)), b""),
        frame(header_of({}, 2, code=105), b""),
        frame(b"{" * 900, b""),
        ack_frame(2)[:-1],
    ],
)
def test_frame_that_is_not_plain_ends_run(third: bytes) -> None:
    run = find(ack_frame(0) + ack_frame(1) + third + ack_frame(3))
    assert run is not None
    assert (len(run), run.end) == (2, len(ack_frame(0) + ack_frame(1)))
    assert find(ack_frame(0) + third + ack_frame(3)) is None


@pytest.mark.parametrize("handle", ["", "0 1 2 3 0 b 0", "0 1 2 3 0 b 0 ", "0 1 2 3 0 b 0 3 4", "0 1 2 3 0 b 0 -3"])
def test_unusual_receipt_handle_leaves_requests_to_be_answered_one_by_one(handle: str) -> None:
    run = find(ack_frame(0) + ack_frame(1, handle))
    assert run is not None
    assert run.by_pop() is None


class Made:
    """What a broker made of some reads: its answers, and what is acknowledged in its log."""

    def __init__(self, case: BrokerCase, out: bytes) -> None:
        self.answers = sorted((one.opaque, one.code, one.remark, one.fields()) for one in Connection().receive(out))
        records = case.server.store.get("rmq_sys_wheel_timer", 0, 0, max_msgs=1000).messages
        acks = [decode_pop_ack(one.body, is_batch=one.properties["TAGS"] == "bAck") for one in records]
        self.acked = {(ack.key, offset) for ack in acks for offset in ack.offsets}
        self.inflight = case.server.pop.inflight.count(PoppedQueue("T", "G", 0))
        self.failed = case.server.measures.store.put_failed


class Wire(asyncio.Transport):
    """The broker's end of a connection whose other end reads everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 45678)})
        self.out = b""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False


async def feed(path: Path, reads: list[bytes], *, together: bool, has_no_timers: bool = False) -> Made:
    """Let a broker at a fixed moment, with some messages in the queue 0 of T, have the reads, one a turn."""
    async with BrokerCase(path, clock=ManualClock(NOW_MS)) as case:
        server, wire = case.server, Wire()
        await asyncio.gather(*(case.send() for _ in range(MESSAGES)))
        while server.store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)
        server.pop.inflight.add(PoppedQueue("T", "G", 0), 10_000)
        if has_no_timers:
            server.pop.revive_log._timers = None
        finds = server.dispatcher.find_runs if together else None
        channel = Channel(server.dispatcher, server=TlsServer(), find_runs=finds)
        channel.connection_made(cast(asyncio.Transport, wire))
        for read in reads:
            channel.data_received(read)
            await asyncio.sleep(0)
        answered = [one for one in Connection().receive(b"".join(reads)) if not one.is_oneway]
        while len(Connection().receive(wire.out)) < len(answered) or not server.puts.is_idle:
            await asyncio.sleep(0.001)
        while server.store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)
        return Made(case, wire.out)


async def assert_same(path: Path, reads: list[bytes], *, has_no_timers: bool = False) -> Made:
    """Together and one by one the broker makes the same of them."""
    alone = await feed(path / "alone", reads, together=False, has_no_timers=has_no_timers)
    together = await feed(path / "together", reads, together=True, has_no_timers=has_no_timers)
    assert vars(together) == vars(alone)
    return together


def any_ack(rng: random.Random, number: int) -> bytes:
    """An acknowledgement of one of some pops, or an odd one."""
    offset = rng.randrange(MESSAGES)
    start = offset // 10 * 10
    handle = f"{start} {NOW_MS + start} 30000 {start % 8} 0 broker-a 0 {offset}"
    more: dict[str, str] = {}
    if not rng.randrange(12):
        odd = {"queueId": "9", "offset": "77", "topic": "U", "extraInfo": "x", "liteTopic": "lite"}
        name = rng.choice(list(odd))
        more = {name: odd[name]}
    if not rng.randrange(30):
        handle = str(ReceiptHandle(0, NOW_MS, 30_000, rng.choice([8, ORDER_REVIVE_QUEUE]), "0", "broker-a", 0, 3))
    more = {"offset": str(offset), "extraInfo": handle} | more
    return ack_frame(number, flag=ONEWAY if not rng.randrange(20) else 0, **more)


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(2))
async def test_run_has_effects_and_answers_of_its_requests(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    frames = [any_ack(rng, number) for number in range(400)]
    reads = [b"".join(frames[at : at + 20]) for at in range(0, len(frames), 20)]
    made = await assert_same(tmp_path, reads)
    assert len(made.acked) > 20
    assert len({code for _, code, _, _ in made.answers}) > 2


@pytest.mark.asyncio
async def test_run_that_cannot_be_stored_is_refused_request_by_request(tmp_path: Path) -> None:
    reads = [ack_frame(0), b"".join(ack_frame(n, offset=str(n)) for n in range(1, 11))]
    made = await assert_same(tmp_path, reads, has_no_timers=True)
    assert [code for _, code, _, _ in made.answers] == [ResponseCode.SYSTEM_ERROR] * 11
    assert made.inflight == 10_000
    assert not made.acked
