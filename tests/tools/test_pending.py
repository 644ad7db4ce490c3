"""What a store owes: each kind, by hand-made records whose services have come half of the way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantrymq.broker.transactions.half_messages import half_message, immune_message, op_message
from gantrymq.format.op_message import op_body
from gantrymq.format.pop_checkpoint import (
    PopAck,
    PopCheckpoint,
    PopKey,
    encode_pop_ack,
    encode_pop_checkpoint,
)
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import LOOPBACK, TRANS_HALF_TOPIC, Message
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.pending import PendingMessages, Totals, first_due
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage
from store_cases import GEOMETRY_KEYS, NOON_MS
from timer_cases import DAY_MS, HOUR_MS, SECOND_MS, TIMED, TimerCase

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
ROLLING = replace(TIMED, timer_roll_window_slots=600)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[TimerCase]:
    case = TimerCase(RealFileSystem(), tmp_path / "store", config=ROLLING)
    yield case
    case.store.close()


class Owed:
    """What is pending in the closed or open store of a case, now."""

    def __init__(self, case: TimerCase, **options: Any) -> None:
        with StoreReader.open(case.path, ROLLING, given=GEOMETRY_KEYS, clock=case.clock, skips_lost=True) as reader:
            self.found = PendingMessages(reader, case.clock.now_ms(), **options)
            self.messages: list[PendingMessage] = list(self.found)

    @property
    def due(self) -> list[tuple[str, str, int]]:
        """(kind, topic, seconds from now) of each message, sorted."""
        return sorted((one.kind, one.topic, round((one.due_ms - NOON_MS) / SECOND_MS)) for one in self.messages)


def write_config(case: TimerCase, name: str, **table: Any) -> None:
    case.path.joinpath("config").mkdir(exist_ok=True)
    case.path.joinpath("config", name).write_text(json.dumps(table))


# Delays


def test_messages_after_offset_of_delay_level_are_pending(case: TimerCase) -> None:
    for number in range(5):
        case.store.put(Message("orders", b"%d" % number, queue_id=number % 2, delay_level=5))
    case.store.put(Message("payments", b"p", delay_level=18))
    case.close()
    write_config(case, "delayOffset.json", offsetTable={5: 3})
    owed = Owed(case)
    assert owed.due == [("delay", "orders", 60)] * 2 + [("delay", "payments", 7200)]
    assert [one.queue_id for one in owed.messages] == [1, 0, 0]
    case.path.joinpath("config", "delayOffset.json").unlink()
    assert Counter(topic for _, topic, _ in Owed(case).due) == {"orders": 5, "payments": 1}
    case.open()


def test_delayed_message_of_deleted_topic_is_not_pending(case: TimerCase) -> None:
    case.store.put(Message("orders", b"now"))
    case.store.put(Message("orders", b"later", delay_level=5))
    case.store.delete_topic("orders")
    case.store.put(Message("orders", b"new", delay_level=6))
    case.close()
    owed = Owed(case)
    assert owed.due == [("delay", "orders", 120)]
    assert owed.found.passed_over == 1
    case.open()


# Timers


def test_timer_messages_in_and_before_wheel_are_pending(case: TimerCase) -> None:
    for number in range(10):
        case.send(deliver_ms=NOON_MS + (number + 1) * SECOND_MS)
    case.wait(4 * SECOND_MS)
    case.close()
    assert Owed(case).due == [("timer", "orders", second) for second in range(5, 11)]
    case.open()
    case.send(topic="payments", deliver_ms=NOON_MS + 60 * SECOND_MS)  # it stays in front of the wheel
    case.store.close()
    assert Owed(case).due == [*[("timer", "orders", second) for second in range(5, 11)], ("timer", "payments", 60)]
    case.timers.close()
    case.open()
    case.wait(60 * SECOND_MS)
    assert (len(case.bodies()), len(case.bodies("payments"))) == (10, 1)
    case.close()
    assert Owed(case).due == []
    case.open()


def test_rolled_timer_message_is_pending_once_at_its_due_time(case: TimerCase) -> None:
    case.send(deliver_ms=NOON_MS + HOUR_MS)
    for minutes in (1, 15, 30):
        case.wait(minutes * 60 * SECOND_MS, step_ms=60 * SECOND_MS)
        case.close()
        assert Owed(case).due == [("timer", "orders", 3600)]
        case.open()
    case.wait(15 * 60 * SECOND_MS, step_ms=60 * SECOND_MS)
    case.close()
    assert Owed(case).due == []
    case.open()


@pytest.mark.parametrize("is_read", [True, False])
def test_recalled_timer_message_is_not_pending(case: TimerCase, is_read: bool) -> None:
    for number in range(3):
        case.send(b"%d" % number, deliver_ms=NOON_MS + 60 * SECOND_MS, UNIQ_KEY=f"U{number}")
    case.send(b"another slot", deliver_ms=NOON_MS + 61 * SECOND_MS, UNIQ_KEY="U1")
    case.send(b"", deliver_ms=NOON_MS + 60 * SECOND_MS, TIMER_DEL_UNIQKEY="U1")
    if is_read:
        case.wait(SECOND_MS)
    case.close() if is_read else case.store.close()
    assert Owed(case).due == [("timer", "orders", second) for second in (60, 60, 61)]
    case.clock.advance(0 if is_read else 60 * SECOND_MS)
    if not is_read:  # a recall that is read after its time has no effect
        assert len(Owed(case).due) == 4
        case.timers.close()
    case.open()
    case.wait(62 * SECOND_MS)
    assert len(case.bodies()) == (3 if is_read else 4)


@pytest.mark.parametrize("damage", ["gone", "short", "zeros", "wrong sizes", "wheel"])
def test_damaged_timer_files_are_named_and_cost_nothing(case: TimerCase, damage: str) -> None:
    for number in range(10):
        case.send(deliver_ms=NOON_MS + (number + 1) * SECOND_MS)
    case.wait(4 * SECOND_MS)
    case.close()
    first, *others = sorted((case.path / "timerlog").iterdir())
    match damage:
        case "gone":
            for file in (first, *others):
                file.unlink()
        case "short":
            others[-1].unlink()
        case "zeros":
            first.write_bytes(bytes(first.stat().st_size))
        case "wrong sizes":
            first.write_bytes(b"x")
        case "wheel":
            (case.path / "timerwheel").unlink()
    owed = Owed(case)
    assert owed.due == [("timer", "orders", second) for second in range(5, 11)]
    assert [str(case.path / "timerlog") in text for text in owed.found.problems] == [True] * (damage != "wheel")
    case.open()
    case.wait(10 * SECOND_MS)
    assert len(case.bodies()) == 10


# Half messages


def put_half(case: TimerCase, *, topic: str = "orders", queue_id: int = 1, **properties: str) -> Message:
    more = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U", **properties}
    half = half_message(Message(topic, b"half", queue_id, properties=more, born_timestamp_ms=case.clock.now_ms()))
    case.store.put(half)
    return half


def put_op(case: TimerCase, body: bytes) -> None:
    case.store.put(op_message(0, body, NOON_MS, LOOPBACK))


def test_half_message_without_op_message_is_pending(case: TimerCase) -> None:
    for _ in range(6):
        put_half(case)
    put_half(case, topic="payments", CHECK_IMMUNITY_TIME_IN_SECONDS="120")
    put_op(case, op_body([0, 1]))
    put_op(case, b"3")  # as 4.9.8 writes it
    put_op(case, b"5,junk,99,-1,")
    case.close()
    owed = Owed(case)
    assert owed.due == [("half", "orders", 6), ("half", "orders", 6), ("half", "payments", 120)]
    assert {(one.queue_id, one.group, one.waits_in) for one in owed.messages} == {(1, "P", TRANS_HALF_TOPIC)}
    offsets = {f"{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS": {0: 3}, "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 1}}
    write_config(case, "consumerOffset.json", offsetTable=offsets)
    assert Owed(case).due == [("half", "orders", 6), ("half", "payments", 120)]  # 2 is in front of the offset
    case.open()


def test_requeued_immune_half_message_is_decided_by_offset_of_first_record(case: TimerCase) -> None:
    for _ in range(2):
        put_half(case, CHECK_IMMUNITY_TIME_IN_SECONDS="120")
    for half in case.delivered(TRANS_HALF_TOPIC):
        case.store.put(immune_message(half))
    put_op(case, b"1,")
    case.close()
    half, op = f"{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS"
    write_config(case, "consumerOffset.json", offsetTable={half: {0: 2}, op: {0: 0}})
    assert Owed(case).due == [("half", "orders", 120)]
    case.open()


# POP


def key(start_offset: int, topic: str = "orders") -> PopKey:
    return PopKey(topic, "G", 2, start_offset, NOON_MS, "broker-a")


def pop(case: TimerCase, start_offset: int, count: int, invisible_ms: int = 60_000, topic: str = "orders") -> None:
    point = PopCheckpoint(key(start_offset, topic), invisible_ms, list(range(count)))
    case.send(encode_pop_checkpoint(point), topic=REVIVE_TOPIC, deliver_ms=point.revive_time_ms - SECOND_MS, TAGS="ck")


def ack(case: TimerCase, start_offset: int, *offsets: int, is_batch: bool = False, due_ms: int = 60_000) -> None:
    one = PopAck(key(start_offset)._replace(broker_name="" if is_batch else "broker-a"), offsets, is_batch)
    body, tag = encode_pop_ack(one), one.tag
    case.send(body, topic=REVIVE_TOPIC, deliver_ms=NOON_MS + due_ms, TAGS=tag)


def test_unacknowledged_popped_message_is_pending(case: TimerCase) -> None:
    pop(case, 0, 3)
    pop(case, 10, 4)
    pop(case, 20, 1, 120_000, topic="payments")
    ack(case, 0, 1)
    ack(case, 10, 10, 13, is_batch=True)
    case.wait(SECOND_MS)
    case.close()
    owed = Owed(case)
    assert owed.due == [("pop", "orders", 60)] * 4 + [("pop", "payments", 120)]
    assert sorted(one.queue_offset for one in owed.messages) == [0, 2, 11, 12, 20]
    assert {(one.group, one.queue_id, one.waits_in) for one in owed.messages} == {("G", 2, "rmq_sys_wheel_timer")}
    case.open()
    case.wait(70 * SECOND_MS)  # both checkpoints are in the revive topic, with the acknowledgements
    ack(case, 10, 11, due_ms=200_000)
    case.close()
    owed = Owed(case)
    assert sorted(one.queue_offset for one in owed.messages) == [0, 2, 12, 20]
    assert {one.waits_in for one in owed.messages if one.topic == "orders"} == {REVIVE_TOPIC}
    write_config(case, "consumerOffset.json", offsetTable={f"{REVIVE_TOPIC}@CID_RMQ_SYS_REVIVE_GROUP": {0: 0}})
    assert sorted(one.queue_offset for one in Owed(case).messages) == [
        12,
        20,
    ]  # the offset is that of the last one done
    case.open()


def test_unreadable_pop_record_is_counted(case: TimerCase) -> None:
    pop(case, 0, 1)
    case.send(b"0-17", topic=REVIVE_TOPIC, deliver_ms=NOON_MS + 60_000, TAGS="ck")
    case.close()
    owed = Owed(case)
    assert (len(owed.messages), owed.found.passed_over) == (1, 1)
    case.open()


# All


def test_unreadable_record_is_counted_once(case: TimerCase) -> None:
    for number in range(3):
        case.send(b"%d" % number, deliver_ms=NOON_MS + 60 * SECOND_MS)
    case.wait(SECOND_MS)
    case.close()
    with StoreReader.open(case.path, ROLLING, given=GEOMETRY_KEYS) as reader:
        entry = reader.lookup.unit_at("rmq_sys_wheel_timer", 0, 1)
    assert entry is not None
    log = case.path / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[entry[0]] ^= 0xFF
    log.write_bytes(raw)
    with StoreReader.open(case.path, ROLLING, given=GEOMETRY_KEYS, trusts_writer=True) as reader:
        found = PendingMessages(reader, NOON_MS)
        assert len(list(found)) == 2
    assert (found.unreadable, found.passed_over) == (1, 0)
    case.open()


def test_kinds_topics_and_times_are_chosen_and_counted(case: TimerCase) -> None:
    case.store.put(Message("orders", b"", delay_level=18))
    for delay_ms in (30 * SECOND_MS, 30 * 60 * SECOND_MS, 2 * HOUR_MS, 2 * DAY_MS):
        case.send(deliver_ms=NOON_MS + delay_ms)
    put_half(case)
    put_half(case, topic="payments")
    case.close()
    assert {one.kind for one in Owed(case, kinds=[PendingKind.TIMER, PendingKind.DELAY]).messages} == {
        PendingKind.TIMER,
        PendingKind.DELAY,
    }
    assert Owed(case, topic="payments").due == [("half", "payments", 6)]
    assert Owed(case, due_before_ms=NOON_MS + 30 * SECOND_MS).due == [("half", "orders", 6), ("half", "payments", 6)]
    case.clock.advance(6 * SECOND_MS)
    with StoreReader.open(case.path, ROLLING, given=GEOMETRY_KEYS) as reader:
        now_ms = case.clock.now_ms()
        totals = Totals(now_ms)
        first = first_due(totals.counted(PendingMessages(reader, now_ms)), 3)
    assert [one.kind for one in first] == [PendingKind.HALF, PendingKind.HALF, PendingKind.TIMER]
    assert [(one.kind, one.topic, one.within) for one in totals] == [
        ("delay", "orders", [0, 0, 0, 1, 0]),
        ("half", "orders", [1, 0, 0, 0, 0]),
        ("half", "payments", [1, 0, 0, 0, 0]),
        ("timer", "orders", [0, 1, 1, 1, 1]),
    ]
    case.open()
