"""Timer messages: on time and never early, through long delays, recalls, jumps of the clock, and starts."""

import random
from dataclasses import replace

import pytest

from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import MAX_PROPERTIES_LENGTH
from gantrymq.format.timer import SLOT_SIZE, SLOTS, WHEEL_SIZE, decode_timer_checkpoint
from gantrymq.fs.reads import data_end
from gantrymq.model.flags import is_consumable
from gantrymq.model.message import TIMER_TOPIC, Message
from gantrymq.store.timer import timer_service
from jumping_clock import JumpingClock
from memory_file_system import MemoryFileSystem
from store_cases import NOON_MS, ROOT, content, files_of, odd_message
from timer_cases import DAY_MS, HOUR_MS, SECOND_MS, TIMED, TimerCase


def test_timer_message_is_delivered_at_its_time_and_never_before() -> None:
    case = TimerCase()
    case.send(b"exact", deliver_ms=NOON_MS + 5 * SECOND_MS)
    case.send(b"between", deliver_ms=NOON_MS + 5 * SECOND_MS + 1)
    case.wait(5 * SECOND_MS - 100, step_ms=100)
    assert case.bodies() == []
    case.wait(100, step_ms=100)
    assert case.bodies() == [b"exact"]
    case.wait(900, step_ms=100)
    assert case.bodies() == [b"exact"]
    case.wait(100, step_ms=100)
    assert case.bodies() == [b"exact", b"between"]
    case.close()


def test_delivered_timer_message_has_sent_fields() -> None:
    case = TimerCase()
    case.send(b"body", deliver_ms=NOON_MS + SECOND_MS, KEYS="k", UNIQ_KEY="U")
    case.step()
    waiting = case.delivered(TIMER_TOPIC)[0]
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("orders", "0")
    assert waiting.properties["TIMER_OUT_MS"] == str(NOON_MS)
    case.wait(2 * SECOND_MS)
    found = case.delivered()[0]
    assert (found.body, found.born_timestamp_ms) == (b"body", waiting.born_timestamp_ms)
    assert found.properties == {
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "TIMER_DELIVER_MS": str(NOON_MS + SECOND_MS),
        "TIMER_OUT_MS": str(NOON_MS),
        "TIMER_ENQUEUE_MS": str(NOON_MS),
        "TIMER_DEQUEUE_MS": str(NOON_MS + SECOND_MS),
        "REAL_TOPIC": "orders",
        "REAL_QID": "0",
    }
    case.close()


def test_accepted_timer_message_can_be_delivered() -> None:
    """The longest properties that may wait, and one byte more, which would never be delivered."""
    case = TimerCase()
    due_ms = NOON_MS + 3 * SECOND_MS
    fixed = len("REAL_TOPIC_orders_REAL_QID_0_") + sum(
        len(f"{name}_{due_ms}_") for name in ("TIMER_OUT_MS", "TIMER_DELIVER_MS")
    )
    added = sum(map(len, ("TIMER_ENQUEUE_MS__", "TIMER_DEQUEUE_MS__", "TIMER_ROLL_TIMES__"))) + 19 + 19 + 10
    longest = MAX_PROPERTIES_LENGTH - CRC_PROPERTY_SIZE - fixed - added - len("x__")
    case.send(b"whole", deliver_ms=due_ms, x="y" * longest)
    case.send(deliver_ms=due_ms, x="y" * (longest + 1), status="PROPERTIES_SIZE_EXCEEDED")
    case.step()
    case.wait(4 * SECOND_MS)
    assert case.bodies() == [b"whole"]
    case.close()


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({"TIMER_DELIVER_MS": "x"}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELAY_SEC": "259201"}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELAY_MS": "9223372036854775808"}, "WHEEL_TIMER_MSG_ILLEGAL"),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "U"}, "WHEEL_TIMER_MSG_ILLEGAL"),
    ],
)
def test_impossible_delivery_time_is_refused(properties: dict[str, str], status: str) -> None:
    case = TimerCase()
    case.send(deliver_ms=0, status=status, **properties)
    case.close()


def test_past_delivery_time_delivers_at_once() -> None:
    case = TimerCase()
    case.send(b"late", deliver_ms=NOON_MS)
    assert case.bodies() == [b"late"]
    assert not any(path.name.startswith("timer") for path in files_of(case.fs))
    case.close()


def test_flow_control_refuses_above_twice_limit() -> None:
    case = TimerCase(config=replace(TIMED, timer_congest_num_each_slot=3))
    for _ in range(4):
        case.send(deliver_ms=NOON_MS + 9 * SECOND_MS)
    case.step()
    case.timers.config = replace(case.config, timer_congest_num_each_slot=2)
    case.send(deliver_ms=NOON_MS + 9 * SECOND_MS, status="WHEEL_TIMER_FLOW_CONTROL")
    case.send(deliver_ms=NOON_MS + 19 * SECOND_MS)
    assert case.timers.congestion == 4
    case.close()


def test_long_delay_rolls_in_order_of_time() -> None:
    case = TimerCase(config=replace(TIMED, timer_roll_window_slots=10))
    case.send(b"far", deliver_ms=NOON_MS + 47 * SECOND_MS)
    case.step()
    case.wait(46 * SECOND_MS)
    assert case.bodies() == []
    case.wait(SECOND_MS)
    assert case.bodies() == [b"far"]
    rolled = case.delivered(TIMER_TOPIC)
    assert [one.properties.get("TIMER_ROLL_TIMES") for one in rolled] == [None, *map(str, range(1, len(rolled)))]
    assert len(rolled) > 4
    case.close()


@pytest.mark.parametrize("with_topic", [False, True])
def test_recalled_message_is_not_delivered(with_topic: bool) -> None:
    case = TimerCase(config=replace(TIMED, append_topic_for_timer_delete_key=with_topic, timer_roll_window_slots=10))
    due_ms = NOON_MS + 25 * SECOND_MS
    case.send(b"kept", deliver_ms=due_ms, UNIQ_KEY="A")
    case.send(b"recalled", deliver_ms=due_ms, UNIQ_KEY="B")
    case.wait(SECOND_MS)
    case.send(b"0", deliver_ms=due_ms, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="orders+B" if with_topic else "B")
    case.wait(30 * SECOND_MS)
    assert case.bodies() == [b"kept"]
    assert case.timers.metrics.count("orders") == 0
    case.close()


def test_store_without_timers_gets_no_files() -> None:
    case = TimerCase()
    case.store.put(Message("orders", b"plain"))
    case.wait(3 * SECOND_MS)
    case.close()
    assert not any("timer" in path.name for path in files_of(case.fs))


def test_wheel_takes_no_more_space_than_its_slots() -> None:
    case = TimerCase(slots=SLOTS)
    case.send(deliver_ms=NOON_MS + 5 * SECOND_MS)
    case.step()
    file = case.fs.open(ROOT / "timerwheel")
    assert file.size() == WHEEL_SIZE
    first = file.data_from(0)
    assert data_end(file, 0, WHEEL_SIZE) - first <= 8192
    case.close()


@pytest.mark.parametrize("ends", ["close", "kill"])
def test_next_start_delivers_waiting_timer_messages_once(ends: str) -> None:
    case = TimerCase()
    for number in range(40):
        case.send(b"%d" % number, deliver_ms=NOON_MS + (number % 8 + 2) * SECOND_MS)
    case.wait(4 * SECOND_MS)
    before = sorted(case.bodies())
    assert len(before) == 15
    case.wait(1, step_ms=1)  # the checkpoint is written
    getattr(case, {"close": "reopen", "kill": "kill"}[ends])()
    case.wait(10 * SECOND_MS)
    assert sorted(case.bodies()) == sorted(b"%d" % number for number in range(40))
    case.close()


def test_start_after_weeks_delivers_due_and_then_new_messages() -> None:
    case = TimerCase(slots=SLOTS)
    for days in range(1, 3):
        case.send(b"%d" % days, deliver_ms=NOON_MS + days * DAY_MS)
    case.step()
    case.close()
    case.clock.advance(15 * DAY_MS)
    case.open()
    case.send(b"new", deliver_ms=case.clock.now_ms() + 2 * DAY_MS - 5000)
    case.step()
    assert case.bodies() == [b"1", b"2"]
    case.clock.advance(2 * DAY_MS)
    case.step()
    assert case.bodies() == [b"1", b"2", b"new"]
    case.close()


def test_clock_jump_delivers_each_message_once_and_not_early() -> None:
    clock = JumpingClock()
    case = TimerCase(clock=clock)
    case.send(b"a", deliver_ms=clock.now_ms() + HOUR_MS)
    case.step()
    clock.jump(2 * HOUR_MS)
    case.step()
    assert case.bodies() == [b"a"]
    clock.jump(-2 * HOUR_MS)
    case.send(b"b", deliver_ms=clock.now_ms() + HOUR_MS)
    case.send(b"c", deliver_ms=clock.now_ms() + 90 * 60_000)
    case.step()
    assert case.bodies() == [b"a"]
    clock.jump(HOUR_MS)
    case.step()
    assert case.bodies() == [b"a", b"b"]
    clock.jump(HOUR_MS)
    case.step()
    assert case.bodies() == [b"a", b"b", b"c"]
    case.close()


def test_timer_checkpoint_waits_for_durable_log() -> None:
    case = TimerCase()
    case.is_durable = lambda end: False
    case.send(deliver_ms=NOON_MS + 2 * SECOND_MS)
    case.wait(5 * SECOND_MS)
    assert len(case.bodies()) == 1
    assert not case.fs.exists(ROOT / "config/timercheck")
    case.is_durable = lambda end: True
    case.wait(2 * SECOND_MS)
    page = decode_timer_checkpoint(case.fs.open(ROOT / "config/timercheck").read_at(0, 56))
    assert (page.timer_log_flush_pos, page.timer_queue_offset, page.master_timer_queue_offset) == (52, 1, 1)
    assert page.last_read_time_ms > NOON_MS
    case.close()


def damage(case: TimerCase, name: str, how: str) -> None:
    """Harm a file of the timers while the store is closed."""
    paths = [path for path in files_of(case.fs) if name in path.parts]
    assert paths
    for path in paths:
        file = case.fs.open(path, writable=True)
        if how == "missing":
            case.fs.remove(path)
        elif how == "zeroed":
            file.zero(0, file.size())
        elif how == "half zeroed":
            file.zero(file.size() // 2, file.size() - file.size() // 2)
        elif how == "truncated":
            file.resize(file.size() // 2)
        elif how == "empty":
            file.resize(0)
        elif how == "garbage":
            file.write_at(0, b"\xa5" * 60)


@pytest.mark.parametrize("how", ["missing", "zeroed", "half zeroed", "truncated", "empty", "garbage"])
@pytest.mark.parametrize("name", ["timerwheel", "timerlog", "timercheck", "timermetrics"])
def test_damaged_timer_files_lose_no_message(name: str, how: str) -> None:
    case = TimerCase()
    for number in range(20):
        case.send(b"%02d" % number, deliver_ms=NOON_MS + (number % 5 + 4) * SECOND_MS)
    case.wait(5 * SECOND_MS)
    assert len(case.bodies()) == 8
    case.close()
    damage(case, name, how)
    case.open()
    case.wait(10 * SECOND_MS)
    found = case.bodies()
    assert sorted(set(found)) == [b"%02d" % number for number in range(20)]
    if name != "timercheck":
        assert len(found) == 20
    case.close()


@pytest.mark.parametrize("is_wheel_old", [False, True], ids=["wheel as it was", "old wheel"])
def test_timer_units_after_checkpoint_are_delivered_once(is_wheel_old: bool) -> None:
    """A power cut may take the slots of the wheel that the timer log already has units for."""
    case = TimerCase()
    case.send(b"before", deliver_ms=NOON_MS + 9 * SECOND_MS)
    case.wait(2 * SECOND_MS)
    (path,) = (path for path in files_of(case.fs) if path.name == "timerwheel")
    file = case.fs.open(path)
    old_wheel = file.read_at(0, file.size())
    assert case.timers.checkpoint.timer_queue_offset == 1
    case.is_durable = lambda end: False  # no checkpoint from here on
    case.send(b"same slot", deliver_ms=NOON_MS + 9 * SECOND_MS)
    case.send(b"new slot", deliver_ms=NOON_MS + 10 * SECOND_MS)
    case.step()
    assert isinstance(case.fs, MemoryFileSystem)
    case.fs = case.fs.crash_clone(1.0, 0)
    if is_wheel_old:
        case.fs.open(path, writable=True).write_at(0, old_wheel)
    case.is_durable = lambda end: True
    case.open()
    assert case.timers.checkpoint.timer_queue_offset <= 1
    case.wait(12 * SECOND_MS)
    assert case.bodies() == [b"before", b"same slot", b"new slot"]
    case.close()


def test_timer_wheel_of_rocketmq_snapshots_is_rebuilt_once() -> None:
    """With timerWheelSnapshotFlush the file itself may be of any time."""
    case = TimerCase()
    for number in range(40):
        case.send(b"%02d" % number, deliver_ms=NOON_MS + (number + 4) * SECOND_MS)
    case.step()
    case.close()
    first = (NOON_MS // SECOND_MS + 3) % (2 * case.slots)  # slots whose units are not in the newest files of the log
    case.fs.open(ROOT / "timerwheel", writable=True).zero(first * SLOT_SIZE, 10 * SLOT_SIZE)
    snapshot = ROOT / "timerwheel.520"
    case.fs.open(snapshot, writable=True, create=True).close()
    case.open()
    case.wait(50 * SECOND_MS)
    assert case.bodies() == [b"%02d" % number for number in range(40)]
    assert not case.fs.exists(snapshot)  # RocketMQ would read it, and not the wheel
    case.close()


def test_timer_wheel_damaged_in_use_is_rebuilt() -> None:
    case = TimerCase()
    for number in range(20):
        case.send(b"%02d" % number, deliver_ms=NOON_MS + (number % 5 + 4) * SECOND_MS)
    case.wait(5 * SECOND_MS)
    for path in [path for path in files_of(case.fs) if "timerlog" in path.parts]:
        case.fs.open(path, writable=True).zero(0, 100)
    case.wait(10 * SECOND_MS)
    assert sorted(set(case.bodies())) == [b"%02d" % number for number in range(20)]
    case.close()


def test_timer_of_deleted_topic_is_not_delivered() -> None:
    case = TimerCase()
    case.send(b"gone", deliver_ms=NOON_MS + 3 * SECOND_MS)
    case.step()
    case.store.delete_topic("orders")
    case.wait(5 * SECOND_MS)
    assert case.bodies() == []
    case.close()


def test_timer_messages_delivered_together_equal_those_delivered_singly(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """The quick way edits bytes; the plain way decodes and encodes."""
    seed, found = rng.random(), []
    for few in (1, 1 << 20):
        monkeypatch.setattr(timer_service, "_FEW", few)
        draw = random.Random(seed)
        case = TimerCase()
        for number in range(60):
            message = odd_message(draw)
            if not is_consumable(message.sys_flag):
                continue
            body, topic = b"%d" % number, draw.choice(("orders", "主题", "t" * 127))
            properties = {"TIMER_OUT_MS": str(NOON_MS + 5 * SECOND_MS), "REAL_TOPIC": topic, "REAL_QID": "0"}
            names = list(message.properties | properties)
            draw.shuffle(names)
            message.properties = {name: (message.properties | properties)[name] for name in names}
            message.topic, message.queue_id, message.body, message.delay_level = TIMER_TOPIC, 0, body, 0
            case.store.put(message)
        case.step()
        case.wait(7 * SECOND_MS)
        found.append({key: messages for key, messages in content(case.store).items() if key[0] != TIMER_TOPIC})
        case.close()
    assert sum(map(len, found[0].values())) > 30
    for queue, plain in found[1].items():
        for offset, stored in plain.items():
            quick = replace(found[0][queue][offset], phy_offset=stored.phy_offset, size_bytes=stored.size_bytes)
            assert quick == stored


@pytest.mark.parametrize("how", ["", "closed", "killed", "rebuilt", "rolls"])
def test_waiting_timers_of_deleted_topic_are_not_counted(how: str) -> None:
    """Neither those in the wheel nor one that is read from the timer topic after the deletion."""
    config = replace(TIMED, timer_roll_window_slots=10) if how == "rolls" else TIMED
    case = TimerCase(config=config)
    due_ms = NOON_MS + 25 * SECOND_MS
    case.store.put(Message("orders", b"at once"))
    for number in range(5):
        case.send(b"%d" % number, deliver_ms=due_ms, UNIQ_KEY=str(number))
    case.send(b"other", topic="bills", deliver_ms=due_ms)
    case.wait(SECOND_MS)
    case.send(b"recall", deliver_ms=due_ms, UNIQ_KEY="0", TIMER_DEL_UNIQKEY="0")
    case.send(b"late", deliver_ms=due_ms)
    case.store.delete_topic("orders")
    if how != "killed":  # the broker has not come to it
        case.timers.metrics.forget("orders")
    if how in ("closed", "rebuilt"):
        case.close()
        if how == "rebuilt":
            damage(case, "timerlog", "garbage")
        case.open()
    elif how == "killed":
        case.timers.metrics.save()
        case.kill()
    case.send(b"new", deliver_ms=due_ms + 2 * SECOND_MS)
    case.step()
    assert case.timers.metrics.counts() == {"orders": 1, "bills": 1}
    case.wait(40 * SECOND_MS)
    assert case.bodies() == [b"new"]
    assert case.bodies("bills") == [b"other"]
    assert case.timers.metrics.counts() == {"orders": 0, "bills": 0}
    case.close()


def test_negative_timer_count_in_file_is_read_as_0() -> None:
    case = TimerCase()
    case.send(b"later", deliver_ms=NOON_MS + 25 * SECOND_MS)
    case.step()
    case.timers.metrics.add("orders", -6, NOON_MS)
    assert case.timers.metrics.counts() == {"orders": 0}
    case.reopen()
    case.step()
    assert case.timers.metrics.table()["timingCount"]["orders"]["count"] == 0
    case.close()
