"""A broker is killed, or the power fails, between pops and acknowledgements: what is not acknowledged comes back.

A message may be delivered again after it was acknowledged. It is lost if it was sent, was not acknowledged, and no
later pop returns it. The moments are drawn from a seed, so some lie between a checkpoint and the commit of its offset,
and between a message of the retry topic and the decision on its checkpoint.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crash_cases import SHARES, TIMES

from gantrymq.broker.server import BrokerServer
from gantrymq.clock import ManualClock
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import FlushDiskType
from gantrymq.format import record
from gantrymq.format.record import Layout
from gantrymq.model.message import StoredMessage
from gantrymq.model.receipt_handle import ReceiptHandle, parse_receipt_handle, parse_start_offsets, real_topic
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.client import RemotingClient
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, SMALL

CountUp = Callable[[str, int], None]
STORE = replace(SMALL, mapped_file_size_commit_log=1 << 20, timer_precision_ms=100)
NEVER_MS, TIMEOUT_MS = 1 << 30, 30_000
BROKER = BrokerConfig(
    listen_port=0,
    default_topic_queue_nums=1,
    revive_interval_ms=NEVER_MS,
    wait_time_in_send_queue_ms=TIMEOUT_MS,
    os_page_cache_busy_timeout_ms=TIMEOUT_MS,
    flush_consumer_offset_interval_ms=2,  # what is committed is soon in its file
)
INVISIBLE_MS, LIVES = 20_000, 3
Popped = tuple[str, StoredMessage, str]


class Life:
    """One life of a broker, and a consumer that knows what it has acknowledged."""

    def __init__(self, fs: MemoryFileSystem, clock: ManualClock, flush: FlushDiskType, rng: random.Random) -> None:
        self.clock, self.rng = clock, rng
        broker = replace(
            BROKER, enable_pop_buffer_merge=rng.random() < 0.3, enable_pop_batch_ack=rng.random() < 0.5,
            enable_retry_topic_v2=rng.random() < 0.3,
        )  # fmt: skip
        live = LiveConfig(broker, replace(STORE, flush_disk_type=flush))
        self.server = BrokerServer(Path("/store"), live, fs=fs, clock=clock)
        self.client = RemotingClient(connect_timeout_ms=TIMEOUT_MS)
        self.sent: set[str] = set()
        self.asked: set[str] = set()  # acknowledged, perhaps without an answer
        self.acked: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._one_run = asyncio.Lock()

    async def end(self) -> None:
        await self.client.close()
        await self.server.abandon()

    async def send(self, name: str) -> None:
        header = SendMessageRequestHeaderV2(
            producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
            born_timestamp=self.clock.now_ms(), flag=0, properties="",
        )  # fmt: skip
        if (await self._ask(RemotingCommand.request(header, name.encode()))).code == ResponseCode.SUCCESS:
            self.sent.add(name)

    async def pop(self) -> list[Popped]:
        header = PopMessageRequestHeader(
            consumer_group="G", topic="T", queue_id=-1, max_msg_nums=self.rng.randrange(1, 9),
            invisible_time=INVISIBLE_MS,
        )  # fmt: skip
        answer = await self._ask(RemotingCommand.request(header))
        return popped(answer) if answer.code == ResponseCode.SUCCESS else []

    async def ack(self, one: Popped) -> None:
        name, message, handle = one
        topic = real_topic(parse_receipt_handle(handle).mark, "T", "G")
        header = AckMessageRequestHeader(
            consumer_group="G", topic=topic, queue_id=message.queue_id, extra_info=handle, offset=message.queue_offset
        )
        self.asked.add(name)
        if (await self._ask(RemotingCommand.request(header))).code == ResponseCode.SUCCESS:
            self.acked.add(name)

    async def consume(self) -> None:
        """A pop, of which some messages are acknowledged and others are to stay invisible for longer."""
        for one in await self.pop():
            if (chance := self.rng.random()) < 0.5:
                await self.ack(one)
            elif chance < 0.6:
                _, message, handle = one
                topic = real_topic(parse_receipt_handle(handle).mark, "T", "G")
                header = ChangeInvisibleTimeRequestHeader(
                    consumer_group="G", topic=topic, queue_id=message.queue_id, extra_info=handle,
                    offset=message.queue_offset, invisible_time=INVISIBLE_MS,
                )  # fmt: skip
                await self._ask(RemotingCommand.request(header))

    async def later(self, *, is_patient: bool = False) -> None:
        """Move the clock, and decide the checkpoints that are due."""
        async with self._one_run:
            self.clock.advance(INVISIBLE_MS // 2)
            server, store = self.server, self.server.store
            timers, target_ms = store.timers, self.clock.now_ms() // 100 * 100
            assert timers is not None
            while is_patient and store.max_offset_in_queue("rmq_sys_wheel_timer", 0):
                progress = timers.progress
                if progress is not None and not progress.behind_messages and progress.read_ms >= target_ms:
                    break
                await asyncio.sleep(0.002)
            await server.pop.buffer.scan()
            await server.pop.revive.run()

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        return await self.client.invoke(self.server.address, request, TIMEOUT_MS)


def popped(answer: RemotingCommand) -> list[Popped]:
    """The bodies, messages and receipt handles of the answer to a pop."""
    header = answer.read(PopMessageResponseHeader)
    starts, found, position, body = parse_start_offsets(header.start_offset_info), [], 0, memoryview(answer.body)
    start = {queue.queue_id: offset for queue, offset in starts.items() if queue.mark == "0"}
    while position < len(body):
        layout = record.read_layout(body, position, len(body))
        assert isinstance(layout, Layout)
        message = record.decode_record(body, position, layout)
        handle = message.properties.get("POP_CK") or str(
            ReceiptHandle(
                start[message.queue_id], header.pop_time, header.invisible_time, header.revive_qid, "0", "broker-a",
                message.queue_id, message.queue_offset,
            )
        )  # fmt: skip
        found.append((message.body.decode(), message, handle))
        position += layout.size
    return found


async def work(life: Life, rng: random.Random, number: int, turns: int) -> None:
    """Sends, pops, and the passing of time, until that many turns of the loop are over."""
    for turn in range(turns):
        if rng.random() < 0.25:
            life.tasks.add(asyncio.ensure_future(life.send(f"{number}-{turn}")))
        if rng.random() < 0.1:
            life.tasks.add(asyncio.ensure_future(life.consume()))
        if rng.random() < 0.02:
            life.tasks.add(asyncio.ensure_future(life.later()))
        await asyncio.sleep(0 if rng.random() < 0.9 else 0.002)


async def settle(life: Life) -> set[str]:
    """Pop and acknowledge until nothing comes any more; the names of all that came."""
    came, quiet = set[str](), 0
    while quiet < 10:
        while life.server.store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)
        found = await life.pop()
        for one in found:
            came.add(one[0])
            await life.ack(one)
        if not found:
            quiet += 1
            await life.later(is_patient=True)
        else:
            quiet = 0
    return came


async def lives(rng: random.Random, flush: FlushDiskType, end: str, count_up: CountUp) -> None:
    clock = ManualClock(NOON_MS)
    disk, sent, asked, acked = MemoryFileSystem(clock=clock), set[str](), set[str](), set[str]()
    for number in range(LIVES):
        life = Life(disk, clock, flush, rng)
        await life.server.start()
        await work(life, rng, number, rng.randrange(20, 400))
        sent |= life.sent
        asked |= life.asked
        acked |= life.acked
        if end == "kill":
            disk = disk.kill_clone()
        else:
            disk = disk.crash_clone(rng.choice(SHARES), rng.randrange(1 << 30), unit_bytes=rng.choice((4096, 512)))
        for task in life.tasks:
            task.cancel()
        await life.end()
    life = Life(disk, clock, flush, rng)
    await life.server.start()
    try:
        came = await settle(life)
        assert sent - asked - came == set()
        count_up("popped messages that survived their brokers", len(sent))
        count_up("of these acknowledged, and delivered again", len(acked & came))
    finally:
        await life.end()


@pytest.mark.slow
@pytest.mark.parametrize("run", range(TIMES))
@pytest.mark.parametrize(
    ("flush", "end"), [("ASYNC_FLUSH", "kill"), ("SYNC_FLUSH", "kill"), ("SYNC_FLUSH", "power cut")]
)
def test_pops_survive_kills_and_power_cuts(
    flush: str, end: str, run: int, rng: random.Random, count_up: CountUp
) -> None:
    asyncio.run(lives(rng, FlushDiskType[flush], end, count_up))
