"""Delayed messages: they wait for their time, go where they were meant to, and survive a restart."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.model import fastjson
from gantrymq.model.message import SCHEDULE_TOPIC, Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.delay import ScheduleMessageService
from gantrymq.store.delivery import Delivery
from gantrymq.store.message_store import MessageStore
from gantrymq.store.put_result import PutMessageResult
from memory_file_system import MemoryFileSystem
from store_cases import HOST_V4, HOST_V6, NOON_MS, ROOT, SMALL, await_dispatch, bodies, killed, open_store

OFFSETS = ROOT / "config" / "delayOffset.json"


class Deliveries:
    """A store whose delayed messages are delivered step by step, by a clock that a test moves."""

    def __init__(self, fs: MemoryFileSystem | None = None, config: MessageStoreConfig = SMALL) -> None:
        self.clock = ManualClock(NOON_MS)
        self.fs = fs or MemoryFileSystem()
        self.store = open_store(self.fs, config=config, clock=self.clock)
        self.puts_work = self.is_flushed = True
        self.service = self.fresh_service()

    def fresh_service(self) -> ScheduleMessageService:
        store = self.store
        delivery = Delivery(put=self._put, append=store.append, is_durable=lambda offset: self.is_flushed)
        return ScheduleMessageService(store._parts, store.config, delivery)

    def _put(self, message: Message) -> PutMessageResult:
        return self.store.put(message) if self.puts_work else PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def delay(self, *messages: Message) -> None:
        for message in messages:
            assert self.store.put(message).is_stored
        await_dispatch(self.store)

    def step(self, after_ms: int = 0) -> list[bytes]:
        """Let time pass, deliver what is due, and say what the topic has."""
        self.clock.advance(after_ms)
        while self.service.step(self.clock.now_ms()):
            pass
        await_dispatch(self.store)
        return bodies(self.store)

    def waiting(self, level: int) -> list[StoredMessage]:
        return self.store.get(SCHEDULE_TOPIC, level - 1, 0).messages

    def saved_offsets(self) -> object:
        return ConfigFile(self.fs, OFFSETS).load().get("offsetTable")


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


# Waiting


def test_delayed_message_waits_in_queue_of_its_level(deliveries: Deliveries) -> None:
    result = deliveries.store.put(Message("orders", b"x", queue_id=7, delay_level=3, tags="paid"))
    assert (result.topic, result.queue_id, result.queue_offset) == (SCHEDULE_TOPIC, 2, 0)
    await_dispatch(deliveries.store)
    (waiting,) = deliveries.waiting(3)
    assert waiting.properties == {"TAGS": "paid", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "7"}


def test_delay_level_above_highest_becomes_highest(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"x", delay_level=19), Message("orders", b"y", delay_level=1000))
    assert [message.properties["DELAY"] for message in deliveries.waiting(18)] == ["18", "18"]
    assert deliveries.step(7_199_999) == []
    assert deliveries.step(1) == [b"x", b"y"]


def test_configured_delay_levels_decide_delivery_times() -> None:
    deliveries = Deliveries(config=replace(SMALL, message_delay_level="2s 1d"))
    deliveries.delay(Message("orders", b"later", delay_level=2), Message("orders", b"soon", delay_level=1))
    assert deliveries.step(1_999) == []
    assert deliveries.step(1) == [b"soon"]
    assert deliveries.step(86_398_000) == [b"soon", b"later"]


# Delivery


def test_message_is_delivered_at_its_time_and_not_before(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"x", delay_level=2))
    assert deliveries.step() == []
    assert deliveries.step(4_999) == []
    assert deliveries.step(1) == [b"x"]
    assert deliveries.step(3_600_000) == [b"x"], "and once only"


def test_delay_levels_are_independent_and_ordered(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"slow", delay_level=4), Message("orders", b"a", delay_level=1))
    deliveries.clock.advance(500)
    deliveries.delay(Message("orders", b"b", delay_level=1))
    assert deliveries.step(500) == [b"a"]
    assert deliveries.step(499) == [b"a"]
    assert deliveries.step(1) == [b"a", b"b"]
    assert deliveries.step(28_500) == [b"a", b"b", b"slow"]


def test_many_messages_are_delivered_in_bounded_steps(deliveries: Deliveries) -> None:
    deliveries.delay(*(Message("orders", b"%d" % number, delay_level=1) for number in range(300)))
    deliveries.clock.advance(1_000)
    assert deliveries.service.step(deliveries.clock.now_ms()), "more waits"
    await_dispatch(deliveries.store)
    assert 0 < len(bodies(deliveries.store)) < 300
    assert deliveries.step() == [b"%d" % number for number in range(300)]


def test_delivered_message_equals_put_message(deliveries: Deliveries) -> None:
    message = Message(
        "orders",
        b"body",
        queue_id=7,
        tags="paid",
        keys=["a", "b"],
        properties={"region": "数量"},
        delay_level=1,
        flag=-5,
        born_timestamp_ms=NOON_MS - 9,
        born_host=HOST_V6,
        store_host=HOST_V4,
        reconsume_times=3,
    )
    deliveries.delay(message)
    deliveries.step(1_000)
    (found,) = deliveries.store.get("orders", 7, 0).messages
    assert (found.body, found.tags, found.keys) == (b"body", "paid", ["a", "b"])
    assert found.properties["region"] == "数量"
    assert (found.properties["REAL_TOPIC"], found.properties["REAL_QID"]) == ("orders", "7")
    assert (found.flag, found.reconsume_times) == (-5, 3)
    assert (found.born_timestamp_ms, found.born_host, found.store_host) == (NOON_MS - 9, HOST_V6, HOST_V4)
    assert found.store_timestamp_ms == NOON_MS + 1_000
    assert deliveries.store.get("orders", 7, 0, tags="paid").messages == [found]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "orders"},
        {"REAL_QID": "0"},
        {"REAL_TOPIC": "orders", "REAL_QID": "-1"},
        {"REAL_TOPIC": "orders", "REAL_QID": "²"},
        {"REAL_TOPIC": "orders", "REAL_QID": str(1 << 31)},
        pytest.param({"REAL_TOPIC": "orders", "REAL_QID": "1" * 5000}, id="more digits than Python reads"),
        {"REAL_TOPIC": "..", "REAL_QID": "0"},
    ],
)
def test_delayed_message_without_real_topic_does_not_block_others(
    deliveries: Deliveries, properties: dict[str, str]
) -> None:
    deliveries.delay(
        Message(SCHEDULE_TOPIC, b"lost", properties={"DELAY": "1", **properties}),
        Message("orders", b"x", delay_level=1),
    )
    assert deliveries.step(1_000) == [b"x"]


def test_delayed_message_without_extended_unit_waits() -> None:
    """Its deliver time stood there, and enableConsumeQueueExt is off again."""
    before = Deliveries(config=replace(SMALL, enable_consume_queue_ext=True))
    before.delay(Message("orders", b"x", delay_level=2))
    before.store.close()
    deliveries = Deliveries(before.fs)
    assert deliveries.step(4_999) == []
    assert deliveries.step(1) == [b"x"]


def test_deliver_time_beyond_its_level_is_ignored(deliveries: Deliveries) -> None:
    """The clock was set back by an hour after the put."""
    deliveries.delay(Message("orders", b"x", delay_level=1))
    assert deliveries.step(-3_600_000) == [b"x"]


def test_failed_delivery_is_retried(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"x", delay_level=1), Message("orders", b"y", delay_level=1))
    deliveries.puts_work = False
    assert deliveries.step(1_000) == []
    assert deliveries.service.offsets == {}
    deliveries.puts_work = True
    assert deliveries.step() == [b"x", b"y"]


def test_undeliverable_destination_topic_is_refused_at_put() -> None:
    with open_store(MemoryFileSystem(), config=replace(SMALL, auto_message_version_on_topic_len=False)) as store:
        long = Message("t" * 200, b"x")
        for message in (long, replace(long, delay_level=1)):
            assert store.put(message).status is PutMessageStatus.MESSAGE_ILLEGAL


def test_permanently_refused_message_does_not_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    """The broker was started again with another maxMessageSize, and does not take so large a body any more."""
    before = Deliveries()
    before.delay(Message("orders", b"x" * 101, delay_level=1), Message("orders", b"y", delay_level=1))
    before.store.close()
    deliveries = Deliveries(before.fs, replace(SMALL, max_message_size_bytes=100))
    assert deliveries.step(1_000) == [b"y"]
    assert [message.body for message in deliveries.waiting(1)] == [b"x" * 101, b"y"], "it is still there"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "the delayed message at offset 0 is not delivered to orders, and stays where it is: MESSAGE_ILLEGAL"
    )


# Offsets


def test_delay_offsets_are_saved_every_ten_seconds_and_at_close(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"x", delay_level=1))
    deliveries.step(1_000)
    assert deliveries.saved_offsets() == {"1": 1}, "the first at once"
    deliveries.delay(*(Message("orders", b"x", delay_level=level) for level in (1, 2)))
    deliveries.step(5_000)
    assert deliveries.saved_offsets() == {"1": 1}
    deliveries.step(5_000)
    assert deliveries.saved_offsets() == {"1": 2, "2": 1}
    deliveries.delay(Message("orders", b"x", delay_level=1))
    deliveries.step(1_000)
    assert deliveries.saved_offsets() == {"1": 2, "2": 1}
    deliveries.service.drain()
    assert deliveries.saved_offsets() == {"1": 3, "2": 1}


def test_delay_offsets_are_saved_after_messages_are_durable(deliveries: Deliveries) -> None:
    deliveries.is_flushed = False
    deliveries.delay(Message("orders", b"x", delay_level=1))
    deliveries.step(1_000)
    deliveries.step(60_000)
    assert deliveries.saved_offsets() is None
    deliveries.delay(Message("orders", b"y", delay_level=1))
    deliveries.step(1_000)
    deliveries.is_flushed = True
    deliveries.step()
    assert deliveries.saved_offsets() == {"1": 1}, "those that had to wait"
    deliveries.service.drain()
    assert deliveries.saved_offsets() == {"1": 2}


def test_restart_resumes_delivery_at_saved_offsets(deliveries: Deliveries) -> None:
    deliveries.delay(Message("orders", b"x", delay_level=1))
    deliveries.step(1_000)
    deliveries.delay(Message("orders", b"y", delay_level=1))
    deliveries.service.drain()
    deliveries.service = deliveries.fresh_service()
    assert deliveries.service.offsets == {1: 1}
    assert deliveries.step(1_000) == [b"x", b"y"]


@pytest.mark.parametrize(
    ("table", "offsets"),
    [
        ('{"1":99}', {1: 2}),  # its queue has two units
        ('{"1":-5}', {1: 0}),
        ("{1:1}", {1: 1}),  # as fastjson writes it
        ('{"1":"1"}', {}),
        ('{"x":1,"²":1,"-1":1}', {}),
        pytest.param(f'{{"{"1" * 5000}":1}}', {}, id="more digits than Python reads"),
        ("[1,2]", {}),
        ("null", {}),
    ],
)
def test_offsets_are_corrected_to_what_their_queue_has(
    deliveries: Deliveries, table: str, offsets: dict[int, int]
) -> None:
    deliveries.delay(*(Message("orders", b"x", delay_level=1) for _ in range(2)))
    deliveries.fs.make_directory(OFFSETS.parent)
    file = deliveries.fs.open(OFFSETS, writable=True, create=True)
    file.write_at(0, f'{{"offsetTable":{table}}}'.encode())
    assert deliveries.fresh_service().offsets == offsets


# The whole store


def eventually(clock: ManualClock, is_so: Callable[[], bool], store: MessageStore) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, store.failures
        clock.advance(50)
        time.sleep(0.001)


def test_store_delivers_while_open_and_after_reopening() -> None:
    clock, fs = ManualClock(NOON_MS), MemoryFileSystem()
    with open_store(fs, clock=clock, housekeeping=True) as store:
        store.put(Message("orders", b"soon", delay_level=1))
        store.put(Message("orders", b"later", delay_level=18))
        eventually(clock, lambda: bodies(store) == [b"soon"], store)
    data = fs.open(Path(OFFSETS)).read_at(0, 1000)
    assert fastjson.loads(data.decode())["offsetTable"]["1"] == 1
    clock.advance(7_200_000)
    with open_store(fs, clock=clock, housekeeping=True) as store:
        eventually(clock, lambda: bodies(store) == [b"soon", b"later"], store)
        assert not store.failures


def test_message_after_kill_is_delivered_at_least_once() -> None:
    deliveries = Deliveries()
    deliveries.delay(*(Message("orders", b"%d" % number, delay_level=1) for number in range(3)))
    deliveries.step(1_000)
    deliveries.fs.remove(OFFSETS)
    left = killed(deliveries.fs)
    deliveries.store.close()
    again = Deliveries(left)
    assert again.step(1_000) == [b"0", b"1", b"2"] * 2
    again.store.close()
