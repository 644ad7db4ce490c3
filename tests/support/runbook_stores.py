"""The stores of docs/runbook.md: one healthy store, and what each section does to a copy of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.checkpoint import decode_checkpoint, encode_checkpoint
from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey, encode_pop_ack, encode_pop_checkpoint
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import REVIVE_TOPIC_PREFIX, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, Message
from gantrymq.store.message_store import MessageStore
from store_cases import await_dispatch
from timer_cases import TimerCase

BEGIN_MS = 1_763_712_000_000  # 2025-11-21 08:00 UTC
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=65_536,
    mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=500,
    max_index_num=2_000,
    broker_ip1="10.0.0.1",
)
SIZES = frozenset(
    {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "brokerIP1"}
)
MESSAGES = 1_000
CHECKPOINT_S = 600
MISSING_FROM = 40  # of the newest file of queue 0, which has 50 entries
TOPIC = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "order": False}
RECORD_IN_THE_MIDDLE = 400


def make(path: Path, config: MessageStoreConfig = CONFIG) -> None:
    """A thousand orders in four queues, one a second, and the store closed."""
    clock = ManualClock(BEGIN_MS)
    with MessageStore.open(path, config, given=SIZES, clock=clock, housekeeping=False) as store:
        for number in range(MESSAGES):
            body = b'{"order":%d,"amount":%d,"currency":"EUR"}' % (number, number * 37 % 1000)
            tags = "paid" if number % 3 else "refunded"
            store.put(Message("orders", body, queue_id=number % 4, tags=tags, keys=[f"order-{number}"]))
            if number == 0 or number > MESSAGES - 10:
                await_dispatch(store)  # an index file has its name from when it is begun
            clock.advance(1_000)
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"orders": TOPIC}}))


def kill(store: Path) -> None:
    """What a kill leaves: the mark of a writer, a checkpoint that is behind, a queue that lacks its newest entries."""
    (store / "abort").touch()
    checkpoint = decode_checkpoint((store / "checkpoint").read_bytes())
    for name in ("physic", "logics", "index"):
        setattr(checkpoint, f"{name}_msg_timestamp_ms", BEGIN_MS + CHECKPOINT_S * 1_000)
    (store / "checkpoint").write_bytes(encode_checkpoint(checkpoint))
    newest = sorted((store / "consumequeue" / "orders" / "0").iterdir())[-1]
    with newest.open("rb+") as file:
        file.seek(MISSING_FROM * UNIT_SIZE)
        file.write(bytes(newest.stat().st_size - MISSING_FROM * UNIT_SIZE))


def flip_body(store: Path) -> None:
    """One bit of the body of a message in the middle of the log."""
    log = sorted((store / "commitlog").iterdir())
    raw = b"".join(file.read_bytes() for file in log)
    place = raw.index(b'"order":%d,' % RECORD_IN_THE_MIDDLE)
    size = log[0].stat().st_size
    file = bytearray(log[place // size].read_bytes())
    file[place % size] ^= 1
    log[place // size].write_bytes(file)


def remove_queue(store: Path) -> None:
    """The directory of queue 2."""
    shutil.rmtree(store / "consumequeue" / "orders" / "2")


def remove_middle_file(store: Path) -> None:
    """The second file of the log."""
    sorted((store / "commitlog").iterdir())[1].unlink()


def remove_newest_file(store: Path) -> None:
    """The last file of the log that holds messages."""
    files = [file for file in sorted((store / "commitlog").iterdir()) if file.read_bytes().strip(b"\0")]
    for file in sorted((store / "commitlog").iterdir()):
        if file >= files[-1]:
            file.unlink()


def remove_log(store: Path) -> None:
    """What a disk leaves that is not mounted."""
    for file in (store / "commitlog").iterdir():
        file.unlink()


def remove_topics(store: Path) -> None:
    """The tables of the broker: a store that was copied without its config directory."""
    (store / "config" / "topics.json").unlink()


def swap_queues(store: Path) -> None:
    """The directories of queues 0 and 1."""
    queues = store / "consumequeue" / "orders"
    (queues / "0").rename(queues / "x")
    (queues / "1").rename(queues / "0")
    (queues / "x").rename(queues / "1")


def cut_index(store: Path) -> None:
    """Half of the index file."""
    file = next(iter(sorted((store / "index").iterdir())))
    with file.open("rb+") as opened:
        opened.truncate(file.stat().st_size // 2)


def tear_tail(store: Path) -> None:
    """A power cut in the middle of a write: the newest record lacks its second half."""
    kill(store)
    newest = next(
        file for file in sorted((store / "commitlog").iterdir(), reverse=True) if file.read_bytes().strip(b"\0")
    )
    raw = newest.read_bytes()
    end = len(raw.rstrip(b"\0"))
    newest.write_bytes(raw[: end - 80].ljust(len(raw), b"\0"))


def damage_checkpoint(store: Path) -> None:
    """The checkpoint, full of ones."""
    (store / "checkpoint").write_bytes(b"\xff" * (store / "checkpoint").stat().st_size)


def cut_queue(store: Path) -> None:
    """A file of queue 1, copied in part."""
    file = sorted((store / "consumequeue" / "orders" / "1").iterdir())[0]
    with file.open("rb+") as opened:
        opened.truncate(file.stat().st_size // 3)


def add_foreign_files(store: Path) -> None:
    """What backups and file systems leave in a store."""
    (store / "commitlog" / "00000000000000000000.bak").write_bytes(b"a copy")
    (store / "consumequeue" / "lost+found").mkdir()
    (store / "README.txt").write_text("do not delete")


def take_file_of_other_store(store: Path) -> None:
    """The second file of the log, replaced by that of another broker's store."""
    other = store.with_name("other")
    clock = ManualClock(BEGIN_MS + 86_400_000)
    with MessageStore.open(other, CONFIG, given=SIZES, clock=clock, housekeeping=False) as opened:
        for number in range(MESSAGES):
            opened.put(Message("invoices", b'{"invoice":%d}' % number, queue_id=number % 2, keys=[f"invoice-{number}"]))
            clock.advance(1_000)
    name = sorted((store / "commitlog").iterdir())[1].name
    shutil.copyfile(other / "commitlog" / name, store / "commitlog" / name)
    shutil.rmtree(other)


def run_ahead(store: Path) -> None:
    """A killed store that lost its newest file, and a group that had consumed from there."""
    remove_newest_file(store)
    offsets = {"offsetTable": {"orders@billing": {"0": 250, "1": 120, "2": 250, "3": 60}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))


def spread_log(store: Path) -> None:
    """A log in two directories, which only broker.conf names."""
    disks = [store.with_name("disk1"), store.with_name("disk2")]
    for disk in disks:
        disk.mkdir(exist_ok=True)
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        file.rename(disks[number % 2] / file.name)
    (store / "commitlog").rmdir()
    store.with_name("broker.conf").write_text(f"storePathCommitLog={disks[0]},{disks[1]}\n")


def write_json_lines(store: Path) -> None:
    """No store; a file of messages and a broker.conf with small files beside it."""
    shutil.rmtree(store)
    sizes = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=4000\nmaxHashSlotNum=500\nmaxIndexNum=2000\n"
    store.with_name("broker.conf").write_text(sizes)
    rows = [
        {"topic": "orders", "body": f"order {number}", "tags": "paid", "keys": [f"order-{number}"]}
        for number in range(3)
    ]
    store.with_name("orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def nothing(store: Path) -> None:
    """A healthy store."""


def leave_waiting(store: Path) -> None:
    """Delayed, timer, half and popped messages that a broker has not delivered; the timers are in the timer log."""
    clock = ManualClock(BEGIN_MS + MESSAGES * 1_000)
    case = TimerCase(RealFileSystem(), store, clock=clock, config=CONFIG)
    for number in range(3):
        case.store.put(Message("orders", b'{"retry":%d}' % number, queue_id=number, delay_level=5 + number))
        case.send(b'{"reminder":%d}' % number, topic="reminders", deliver_ms=clock.now_ms() + (number + 1) * 3_600_000)
        transaction = {"TRAN_MSG": "true", "PGROUP": "payment-service", "REAL_TOPIC": "payments", "REAL_QID": "0"}
        case.store.put(Message(TRANS_HALF_TOPIC, b"half", properties=transaction, born_timestamp_ms=clock.now_ms()))
    case.store.put(Message(TRANS_OP_HALF_TOPIC, b"1,", tags="d"))
    point = PopCheckpoint(PopKey("orders", "billing", 3, 40, clock.now_ms(), "broker-a"), 60_000, [0, 1, 2])
    ack = PopAck(point.key, (41,))
    for tag, body, due_ms in (("ck", encode_pop_checkpoint(point), 59_000), ("ack", encode_pop_ack(ack), 60_000)):
        topic = REVIVE_TOPIC_PREFIX + "DefaultCluster"
        case.send(body, topic=topic, deliver_ms=clock.now_ms() + due_ms, TAGS=tag)
    case.step()
    case.close()


def lose_timer_log(store: Path) -> None:
    """The timer log of a store with timer messages that wait."""
    leave_waiting(store)
    shutil.rmtree(store / "timerlog")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "healthy": nothing,
    "killed": kill,
    "flipped-body": flip_body,
    "lost-queue": remove_queue,
    "lost-middle-file": remove_middle_file,
    "lost-newest-file": remove_newest_file,
    "lost-log": remove_log,
    "lost-config": remove_topics,
    "swapped-queues": swap_queues,
    "cut-index": cut_index,
    "torn-tail": tear_tail,
    "damaged-checkpoint": damage_checkpoint,
    "cut-queue": cut_queue,
    "foreign-files": add_foreign_files,
    "file-of-other-store": take_file_of_other_store,
    "groups-ahead": run_ahead,
    "log-on-two-disks": spread_log,
    "json-lines": write_json_lines,
    "waiting": leave_waiting,
    "waiting-without-timer-log": lose_timer_log,
}
