"""A store in which messages of every kind wait: each tool keeps them, and the broker delivers them afterwards."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broker_cases import STORE, BrokerCase
from test_transactions import HALF, NEVER_MS, Transactions

from gantrymq.clock import ManualClock
from gantrymq.format.pop_checkpoint import (
    PopAck,
    PopCheckpoint,
    PopKey,
    encode_pop_ack,
    encode_pop_checkpoint,
)
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.store.timer.timed_message import set_timer
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.pending.pending import PendingMessages
from gantrymq.tools.pending.waiting import PendingKind
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store

BEGIN_MS, HOUR_MS, SECOND_MS = 1_700_000_000_000, 3_600_000, 1_000
REVIVE, RETRY = "rmq_sys_REVIVE_LOG_DefaultCluster", "%RETRY%G_plain"
CONFIG = replace(STORE, mapped_file_size_commit_log=16_384, mapped_file_size_timer_log=68 + 8 * 52)
GIVEN = frozenset({"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"})
Tool = Callable[[Path], Path]


def settings() -> dict[str, object]:
    return {
        "transaction_check_interval_ms": NEVER_MS,
        "mapped_file_size_commit_log": CONFIG.mapped_file_size_commit_log,
        "mapped_file_size_timer_log": CONFIG.mapped_file_size_timer_log,
        "timer_flush_interval_ms": 1,
        "flush_delay_offset_interval_ms": 1,
    }


def timed(store: MessageStore, clock: ManualClock, topic: str, body: bytes, after_ms: int, **properties: str) -> None:
    message = Message(topic, body, properties={"TIMER_DELIVER_MS": str(clock.now_ms() + after_ms), **properties})
    assert set_timer(message, CONFIG, clock.now_ms(), lambda slot_ms: False).value == "PUT_OK"
    assert store.put(message).is_stored


async def settled(case: BrokerCase) -> None:
    """Wait until nothing is left to do at the time of the clock."""
    store = case.server.store
    timers, before, same = store.timers, -1, 0
    assert timers is not None
    while same < 5:
        progress = timers.progress
        is_busy = store.dispatch_behind_bytes or progress is None or progress.behind_messages
        same = 0 if is_busy or store.max_phy_offset != before else same + 1
        before = store.max_phy_offset
        await asyncio.sleep(0.05)


async def make(path: Path) -> None:
    clock = ManualClock(BEGIN_MS)
    async with BrokerCase(path, clock=clock, **settings()) as case:
        tx, store = Transactions(case, clock), case.server.store
        await tx.connect()
        for number in range(6):
            await case.send("plain", b"%d" % number * 900)
            await case.send("delayed", b"d%d" % number, properties={"DELAY": "5" if number < 2 else "17"})
            timed(store, clock, "timed", b"t%d" % number, 60_000 if number < 2 else HOUR_MS + number * SECOND_MS)
        timed(store, clock, "timed", b"recalled", HOUR_MS, UNIQ_KEY="U")
        timed(store, clock, "timed", b"", HOUR_MS, TIMER_DEL_UNIQKEY="U")
        for body, end in ((b"commit", TRANSACTION_COMMIT), (b"rollback", TRANSACTION_ROLLBACK), (b"open", None)) * 2:
            half = await tx.prepare(body)
            if end is not None:
                await tx.end(half, end)
        for start in (0, 10):
            point = PopCheckpoint(PopKey("plain", "G", 0, start, BEGIN_MS, "broker-a"), HOUR_MS, [0, 1, 2])
            timed(store, clock, REVIVE, encode_pop_checkpoint(point), HOUR_MS - SECOND_MS, TAGS="ck")
            timed(store, clock, REVIVE, encode_pop_ack(PopAck(point.key, (start + 1,))), HOUR_MS, TAGS="ack")
        await tx.write_ops()
        await tx.check(70 * SECOND_MS)  # it puts the open half messages back
        await tx.write_ops()
        await settled(case)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("waiting") / "store"
    asyncio.run(make(path))
    return path


def pending(path: Path) -> Counter[tuple[str, str, int, int]]:
    clock = ManualClock(BEGIN_MS + 70 * SECOND_MS)
    with StoreReader.open(path, CONFIG, given=GIVEN, clock=clock, trusts_writer=True) as reader:
        found = PendingMessages(reader, clock.now_ms())
        return Counter((one.kind, one.topic, one.due_ms, one.queue_offset) for one in found)


async def deliver(path: Path) -> dict[str, Counter[bytes]]:
    """Let two hours pass at a broker on the store, and answer the checks; the bodies of each topic."""
    clock = ManualClock(BEGIN_MS + 70 * SECOND_MS)
    async with BrokerCase(path, clock=clock, **settings()) as case:
        tx = Transactions(case, clock)
        await tx.connect()
        for _ in range(2):
            clock.advance(HOUR_MS)
            await settled(case)
        await tx.check()
        for which in range(len(tx.asked)):
            await tx.answer(TRANSACTION_COMMIT, which)
        await settled(case)
        bodies: dict[str, Counter[bytes]] = {}
        for topic, queue_id, _, _ in case.server.store.queues():
            if topic in ("delayed", "timed", "T", REVIVE, RETRY):
                for message in await tx.stored(topic, queue_id):
                    bodies.setdefault(topic, Counter())[message.body] += 1
        return bodies


DELIVERED = {
    "delayed": Counter(b"d%d" % number for number in range(6)),
    "timed": Counter(b"t%d" % number for number in range(6)),
    "T": Counter([b"commit", b"open"] * 2),
    RETRY: Counter([b"0" * 900, b"2" * 900]),
}


def findings(path: Path) -> list[str]:
    return [one.kind.value for one in verify_store(path, CONFIG, given=GIVEN, now_ms=BEGIN_MS + 70 * SECOND_MS)]


def recover(path: Path) -> Path:
    (path / "abort").touch()
    with MessageStore.open(path, CONFIG, given=GIVEN, housekeeping=False):
        return path


def rebuild(path: Path) -> Path:
    shutil.rmtree(path / "consumequeue")
    report = rebuild_store(path, CONFIG, given=GIVEN)
    assert (report.lost, report.account.messages) == ([], [])
    return path


def salvage(path: Path) -> Path:
    assert salvage_store(path, path.with_name("salvaged"), CONFIG, given=GIVEN).is_whole
    return path.with_name("salvaged")


SLOW = pytest.mark.slow


@pytest.mark.parametrize("tool", [pytest.param(recover, marks=SLOW), rebuild, pytest.param(salvage, marks=SLOW)])
def test_tool_keeps_pending_messages(original: Path, tmp_path: Path, tool: Tool) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    before = pending(path)
    assert Counter(kind for kind, _, _, _ in before.elements()) == {
        PendingKind.DELAY: 4, PendingKind.TIMER: 4, PendingKind.HALF: 2, PendingKind.POP: 4,
    }  # fmt: skip
    assert findings(path) == []
    after = tool(path)
    assert findings(after) == []
    assert pending(after) == before
    delivered = asyncio.run(deliver(after))
    assert delivered.pop(REVIVE).total() == 4
    assert delivered == DELIVERED


@SLOW
def test_export_has_every_pending_record(original: Path, tmp_path: Path) -> None:
    report = export_store(original, tmp_path / "out", ExportFormat.JSONL, config=CONFIG, given=GIVEN)
    assert (report.lost, report.account.messages) == ([], [])
    files = list((tmp_path / "out").rglob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    count = Counter(line["topic"] for line in lines)
    assert (count["SCHEDULE_TOPIC_XXXX"], count["rmq_sys_wheel_timer"], count[HALF]) == (6, 12, 8)


TIMER_FILES = {  # with the finding about them
    "timer-log": ["timerlog"],
    "timer-wheel": ["timerwheel"],
    "timer-checkpoint": ["timerlog", "timerwheel", "config/timercheck"],
}


@SLOW
@pytest.mark.parametrize("finding", TIMER_FILES)
def test_missing_timer_files_lose_no_message(original: Path, tmp_path: Path, finding: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    for name in TIMER_FILES[finding]:
        shutil.rmtree(path / name) if name == "timerlog" else (path / name).unlink()
    assert findings(path) == [finding]
    delivered = asyncio.run(deliver(path))
    assert delivered.pop(REVIVE).total() == 4
    if finding == "timer-checkpoint":  # nothing says which were delivered: those whose record is in the log come again
        assert delivered["timed"] == DELIVERED["timed"] + Counter([b"t0", b"t1"])
        del delivered["timed"]
    assert delivered == {topic: DELIVERED[topic] for topic in delivered}


@SLOW
@pytest.mark.parametrize("table", ["delayOffset.json", "consumerOffset.json", "topics.json", "subscriptionGroup.json"])
def test_missing_tables_lose_no_message(original: Path, tmp_path: Path, table: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    for file in (path / "config").glob(f"{table}*"):
        file.unlink()
    assert findings(path) == (["topics-without-route"] if table == "topics.json" else [])
    before = pending(path)
    delivered = asyncio.run(deliver(path))
    assert delivered.pop(REVIVE).total() == 4
    if table == "delayOffset.json":  # what was delivered counts as owed, and comes again
        assert Counter(kind for kind, _, _, _ in before.elements())[PendingKind.DELAY] == 6
        assert delivered.pop("delayed") == DELIVERED["delayed"] + Counter([b"d0", b"d1"])
    if table == "topics.json":  # a transaction waits until its topic is there again, as the finding says
        assert delivered.pop("T") == Counter([b"commit", b"commit"])
        assert Counter(kind for kind, _, _, _ in pending(path).elements()) == {PendingKind.HALF: 2}
    assert delivered == {topic: DELIVERED[topic] for topic in delivered}


@SLOW
def test_salvage_names_lost_pending_messages_and_keeps_others(original: Path, tmp_path: Path) -> None:
    """Three records with broken bytes: a delayed message, a timer message and an open half message."""
    path = tmp_path / "store"
    shutil.copytree(original, path)
    with StoreReader.open(path, CONFIG, given=GIVEN, trusts_writer=True) as reader:
        lost = [
            reader.get(topic, queue_id, offset).messages[0]
            for topic, queue_id, offset in (
                *(("SCHEDULE_TOPIC_XXXX", 16, 1), ("rmq_sys_wheel_timer", 0, 3)),
                (HALF, 0, 6),
            )
        ]
        size = reader.config.mapped_file_size_commit_log
    for message in lost:
        with (path / "commitlog" / f"{message.phy_offset // size * size:020d}").open("r+b") as file:
            file.seek(message.phy_offset % size)
            file.write(bytes(8))
    report = salvage_store(path, tmp_path / "salvaged", CONFIG, given=GIVEN)
    named = {(one.topic, one.queue_id, one.begin) for one in report.account.messages}
    assert named == {(one.topic, one.queue_id, one.queue_offset) for one in lost}
    delivered = asyncio.run(deliver(tmp_path / "salvaged"))
    assert delivered.pop(REVIVE).total() == 4
    assert {topic: DELIVERED[topic] - bodies for topic, bodies in delivered.items()} == {
        "delayed": Counter([b"d3"]), "timed": Counter([b"t3"]), "T": Counter([b"open"]), RETRY: Counter(),
    }  # fmt: skip
    assert all(bodies <= DELIVERED[topic] for topic, bodies in delivered.items())
