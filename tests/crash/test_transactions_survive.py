"""A broker with open transactions is killed, or the power fails: commits are delivered, and rollbacks are not.

A kill keeps all that was acknowledged, with SYNC_FLUSH a power cut does, too. The moments are drawn from a seed, so
some lie between the final message of a commit and its op message, and in the middle of a check.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crash_cases import SHARES, TIMES

from gantrymq.broker.names import TRANS_HALF_TOPIC
from gantrymq.broker.server import BrokerServer
from gantrymq.clock import ManualClock
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import FlushDiskType
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import HeartbeatRequestHeader
from gantrymq.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, SMALL

CountUp = Callable[[str, int], None]
STORE = replace(SMALL, mapped_file_size_commit_log=1 << 20)
NEVER_MS = 1 << 40
BROKER = BrokerConfig(
    listen_port=0,
    transaction_check_interval_ms=NEVER_MS,
    wait_time_in_send_queue_ms=NEVER_MS,
    os_page_cache_busy_timeout_ms=NEVER_MS,
    default_topic_queue_nums=1,
    flush_consumer_offset_interval_ms=2,  # what a check commits is soon in its file
)
OP_INTERVALS_MS = (1, 20, 1_000)
LIVES, TIMEOUT_MS = 3, 30_000


class Life:
    """One life of a broker, and a producer that knows of each message whether its transaction took place."""

    def __init__(
        self, fs: MemoryFileSystem, clock: ManualClock, flush: FlushDiskType, number: int, rng: random.Random
    ) -> None:
        self.clock, self.number = clock, number
        broker = replace(BROKER, transaction_op_batch_interval_ms=rng.choice(OP_INTERVALS_MS))
        live = LiveConfig(broker, replace(STORE, flush_disk_type=flush))
        self.server = BrokerServer(Path("/store"), live, fs=fs, clock=clock)
        self.client = RemotingClient(
            handler=RequestDispatcher({RequestCode.CHECK_TRANSACTION_STATE: self._answer}),
            connect_timeout_ms=TIMEOUT_MS,
        )
        self.acknowledged: set[str] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.asked = 0
        self._one_check = asyncio.Lock()
        self._answers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.server.start()
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")])
        await self._ask(RemotingCommand.request(HeartbeatRequestHeader(), data.encode()))

    async def end(self) -> None:
        for answer in self._answers:
            answer.cancel()
        await self.client.close()
        await self.server.abandon()

    async def transact(self, rng: random.Random, name: str) -> None:
        """A transaction, decided at once or left to a check."""
        properties = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": name}
        header = SendMessageRequestHeaderV2(
            producer_group="P", topic="T", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
            sys_flag=TRANSACTION_PREPARED, born_timestamp=self.clock.now_ms(), flag=0,
            properties="".join(f"{one}\x01{value}\x02" for one, value in properties.items()),
        )  # fmt: skip
        sent = await self._ask(RemotingCommand.request(header, b"x" * rng.randrange(1, 300)))
        if sent.code != ResponseCode.SUCCESS:
            return
        self.acknowledged.add(name)
        half = sent.read(SendMessageResponseHeader)
        if rng.random() < 0.6:
            await self._decide(name, half.queue_offset, int(half.msg_id[-16:], 16))

    async def check(self) -> None:
        async with self._one_check:
            self.clock.advance(30_000)
            await self.server._transaction_check.check()

    def _answer(self, channel: Channel, request: RemotingCommand) -> None:
        asked = request.read(CheckTransactionStateRequestHeader)
        self.asked += 1
        task = asyncio.ensure_future(
            self._decide(asked.msg_id or "", asked.tran_state_table_offset, asked.commit_log_offset, is_check=True)
        )
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _decide(self, name: str, offset: int, phy_offset: int, *, is_check: bool = False) -> None:
        header = EndTransactionRequestHeader(
            topic="T", producer_group="P", tran_state_table_offset=offset, commit_log_offset=phy_offset,
            commit_or_rollback=TRANSACTION_COMMIT if took_place(name) else TRANSACTION_ROLLBACK,
            from_transaction_check=is_check, msg_id=name,
        )  # fmt: skip
        await self._ask(RemotingCommand.request(header))

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        return await self.client.invoke(self.server.address, request, TIMEOUT_MS)

    def delivered(self) -> Counter[str]:
        store = self.server.store
        messages = store.get("T", 0, 0, max_msgs=10_000).messages
        return Counter(message.properties["UNIQ_KEY"] for message in messages)


def took_place(name: str) -> bool:
    return name.endswith("yes")


async def work(life: Life, rng: random.Random, turns: int) -> None:
    """Transactions at once and one after the other, checks in between, until that many turns of the loop are over."""
    for turn in range(turns):
        if rng.random() < 0.2:
            name = f"{life.number}-{turn}-{rng.choice(('yes', 'no'))}"
            life.tasks.add(asyncio.ensure_future(life.transact(rng, name)))
        if rng.random() < 0.02:
            life.tasks.add(asyncio.ensure_future(life.check()))
        await asyncio.sleep(0 if rng.random() < 0.9 else 0.002)


async def settle(life: Life) -> None:
    """Check until nothing is asked any more."""
    quiet = 0
    while quiet < 2:
        before, store = life.asked, life.server.store
        await life.check()
        await asyncio.sleep(0.01)
        while life._answers or store.dispatch_behind_bytes or not life.server.puts.is_idle:
            await asyncio.sleep(0.001)
        quiet = quiet + 1 if life.asked == before else 0


async def lives(rng: random.Random, flush: FlushDiskType, end: str, count_up: CountUp) -> None:
    clock = ManualClock(NOON_MS)
    disk, acknowledged = MemoryFileSystem(clock=clock), set[str]()
    for number in range(LIVES):
        life = Life(disk, clock, flush, number, rng)
        await life.start()
        await work(life, rng, rng.randrange(20, 400))
        acknowledged |= life.acknowledged
        if end == "kill":
            disk = disk.kill_clone()
        else:
            disk = disk.crash_clone(rng.choice(SHARES), rng.randrange(1 << 30), unit_bytes=rng.choice((4096, 512)))
        for task in life.tasks:
            task.cancel()
        await life.end()
    life = Life(disk, clock, flush, LIVES, rng)
    await life.start()
    try:
        await settle(life)
        delivered = life.delivered()
        lost = {name for name in acknowledged if took_place(name) and not delivered[name]}
        assert lost == set()
        assert [name for name in delivered if not took_place(name)] == []
        count_up("transactions that survived their brokers", len(acknowledged))
        count_up("of these delivered twice or more", sum(count > 1 for count in delivered.values()))
        assert life.server.store.max_offset_in_queue(TRANS_HALF_TOPIC, 0) >= len(acknowledged)
    finally:
        await life.end()


@pytest.mark.parametrize("run", range(2 * TIMES))
@pytest.mark.parametrize(
    ("flush", "end"), [("ASYNC_FLUSH", "kill"), ("SYNC_FLUSH", "kill"), ("SYNC_FLUSH", "power cut")]
)
def test_transactions_survive_kills_and_power_cuts(
    flush: str, end: str, run: int, rng: random.Random, count_up: CountUp
) -> None:
    asyncio.run(lives(rng, FlushDiskType[flush], end, count_up))
