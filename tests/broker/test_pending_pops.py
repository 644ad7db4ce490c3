"""The popped messages that ``tools/pending`` counts are those that our broker delivers again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from broker_cases import STORE, StartBroker
from test_pops import INVISIBLE_MS, NOW_MS, RETRY, Pops, batch, bodies

from gantrymq.clock import ManualClock
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.pending import PendingMessages
from gantrymq.tools.pending.waiting import PendingKind

pytestmark = pytest.mark.asyncio

CONFIG = replace(STORE, timer_precision_ms=100)
GIVEN = frozenset(
    {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "timerPrecisionMs"}
)
LONG_MS = 120_000


def owed(path: Path, clock: ManualClock, *, passed_over: int = 0) -> Counter[tuple[str, int, int]]:
    """(topic, queue offset, time until it is visible) of each message that the store of a broker owes."""
    with StoreReader.open(path, CONFIG, given=GIVEN, clock=clock) as reader:
        found = PendingMessages(reader, clock.now_ms())
        messages = list(found)
        assert (found.unreadable, found.passed_over, list(found.problems)) == (0, passed_over, [])
    assert {(one.kind, one.group, one.queue_id) for one in messages} <= {(PendingKind.POP, "G", 0)}
    return Counter((one.topic, one.queue_offset, one.due_ms - clock.now_ms()) for one in messages)


async def all_popped(pops: Pops) -> list[bytes]:
    found = list[bytes]()
    while some := bodies(await pops.pop()):
        found += some
    return sorted(found)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_pending_pops_equal_messages_revived_later(
    start_broker: StartBroker, tmp_path: Path, is_killed: bool
) -> None:
    """One pop is acknowledged in part, one not at all, one in full, one in order; one message is hidden for longer."""
    clock, disk, path = ManualClock(NOW_MS), KillableFileSystem(RealFileSystem()), tmp_path / "store"

    async def start() -> Pops:
        settings = {
            "revive_interval_ms": 1 << 30, "timer_precision_ms": 100, "wait_time_in_send_queue_ms": 60_000,
            "flush_consumer_offset_interval_ms": 1 << 30,
        }  # fmt: skip
        return Pops(await start_broker(path, clock=clock, fs=disk, **settings), clock)

    async def stop(pops: Pops) -> None:
        nonlocal disk
        await pops.caught_up()
        if is_killed:
            disk.kill()
            await pops.case.server.abandon()
            disk = KillableFileSystem(RealFileSystem())
        else:
            await pops.case.stop()

    pops = await start()
    await pops.send(*(b"%d" % one for one in range(8)))
    await pops.send(b"in order", topic="U")
    in_part = await pops.pop(max_msg_nums=3)
    assert (await pops.ack(*in_part[1])).code == ResponseCode.SUCCESS
    assert (await pops.change(*in_part[2], LONG_MS)).code == ResponseCode.SUCCESS
    assert bodies(await pops.pop(max_msg_nums=2)) == [b"3", b"4"]
    in_full = await pops.pop(max_msg_nums=2)
    answer = await pops.case.ask(RequestCode.BATCH_ACK_MESSAGE, batch((in_full[0][1], [5, 6])))
    assert answer.code == ResponseCode.SUCCESS
    assert bodies(await pops.pop(topic="U", order=True)) == [b"in order"]
    await stop(pops)
    waiting = {("T", 0, INVISIBLE_MS), ("T", 3, INVISIBLE_MS), ("T", 4, INVISIBLE_MS), ("T", 2, LONG_MS + 1)}
    assert owed(path, clock) == Counter(waiting)

    pops = await start()
    await pops.revived()
    assert await all_popped(pops) == [b"0", b"3", b"4", b"7"]
    assert bodies(await pops.pop(topic="U", order=True)) == [b"in order"]  # its queue still has it
    await pops.commit()
    await stop(pops)
    left_ms = LONG_MS + 1 - INVISIBLE_MS - 3_000
    waiting = {("T", 2, left_ms), ("T", 7, INVISIBLE_MS), *((RETRY, one, INVISIBLE_MS) for one in range(3))}
    twice = [0, 3, 4] if is_killed else []
    waiting |= {("T", one, -3_000) for one in twice}
    assert owed(path, clock) == Counter(waiting)

    pops = await start()
    await pops.revived(LONG_MS)
    assert await all_popped(pops) == sorted([b"0", b"2", b"3", b"4", b"7", *(b"%d" % one for one in twice)])
