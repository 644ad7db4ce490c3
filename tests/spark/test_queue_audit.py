"""Each message that a queue names is among the rows of a read, or an error or a line of the log names it."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from loss_cases import LOG_FILE, PHY_OFFSET_AT, QUEUE_ID_AT, KnownStore, Slot
from pyarrow import fs
from spark_cases import Row, damage_unit, fields, rows_of
from stream_cases import Stream

from gantrymq.errors import GantrymqError
from gantrymq.format.record import QUEUE_OFFSET_AT
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.read import queue_audit
from gantrymq.store.message_store import MessageStore
from gantrymq.tools import locations as places
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, numbered

COLUMNS = ("topic", "queue_id", "queue_offset", "body")
SCHEME = "elsewhere://"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "broker-a")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> KnownStore:
    return KnownStore(Path(shutil.copytree(whole.path, tmp_path / "broker-a")), whole.puts)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that only pyarrow reads."""
    known = places._opened
    monkeypatch.setattr(
        places,
        "_opened",
        lambda uri, path="/": (
            (fs.LocalFileSystem(), uri.removeprefix(SCHEME))
            if uri is not None and uri.startswith(SCHEME)
            else known(uri, path)
        ),
    )


def stream(path: Path | str, **options: object) -> list[Row]:
    rows: list[Row] = []
    with Stream(path, *COLUMNS, startingOffsets="earliest", **options) as reading:
        while (end := reading.latest()) != reading.checkpoint:
            rows += [row for part in reading.rows_between(reading.checkpoint, end) for row in part]
            reading.checkpoint = end
    return rows


def batch(path: Path | str, **options: object) -> list[Row]:
    return rows_of(path, *COLUMNS, **options)


READS: dict[str, Callable[..., list[Row]]] = {
    "a batch of everything": batch,
    "a batch of topics": lambda path, **options: batch(path, subscribe="orders,bills", **options),
    "a batch in many partitions": lambda path, **options: batch(path, minPartitions=7, **options),
    "a stream": stream,
    "a stream in many batches": lambda path, **options: stream(path, maxOffsetsPerTrigger=40, **options),
}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


def other_queue(store: KnownStore, at: int) -> None:
    store.flip(at + QUEUE_ID_AT + 3, 1)


def no_such_queue(store: KnownStore, at: int) -> None:
    store.flip(at + QUEUE_ID_AT + 3, 8)


def other_topic(store: KnownStore, at: int) -> None:
    topic = store.read(at, 400).index(b"bills" if b"bills" in store.read(at, 400) else b"orders")
    store.flip(at + topic, 1)


def later_offset(store: KnownStore, at: int) -> None:
    store.flip(at + QUEUE_OFFSET_AT + 3, 1)


def earlier_offset(store: KnownStore, at: int) -> None:
    (offset,) = store.read(at + QUEUE_OFFSET_AT + 7, 1)
    store.flip(at + QUEUE_OFFSET_AT + 7, offset & -offset or 1)


def other_place(store: KnownStore, at: int) -> None:
    store.flip(at + PHY_OFFSET_AT + 3, 1)


def body(store: KnownStore, at: int) -> None:
    store.flip(at + 92, 1)


LIES = [other_queue, no_such_queue, other_topic, later_offset, earlier_offset, other_place, body]


def slots(rows: list[Row]) -> list[Slot]:
    return [Slot(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]


def named(text: str, store: KnownStore) -> set[Slot]:
    """The messages that a log or an error names: by topic, queue and offsets, or by where they lie."""
    found: set[Slot] = set()
    for low, high in re.findall(r"physical offsets (\d+) to (\d+)", text):
        found |= store.victims(int(low), int(high) + 1)
    for first, last in re.findall(
        r"record at offset (\d+): [^\n]*?(?:more, up to offset (\d+))?(?=\n|, while|$)", text
    ):
        found |= store.victims(int(first), int(last or first) + 1)
    for topic, number, low, high in re.findall(
        r"topic (\w+), broker [\w-]+, queue (\d+): [^\n;]*?offsets (\d+) to (\d+)", text
    ):
        found |= {Slot(topic, int(number), offset) for offset in range(int(low), int(high) + 1)}
    for topic, number, end in re.findall(r"topic (\w+), broker [\w-]+, queue (\d+): [^\n]*ends at offset (\d+)", text):
        found |= {one for one in store.puts if one[:2] == (topic, int(number)) and one.queue_offset >= int(end)}
    for part in re.findall(r"has no such queue[^\n]*", text):
        for topic, number in re.findall(r"topic (\w+), queue (\d+)", part):
            found |= {one for one in store.puts if one[:2] == (topic, int(number))}
    return found


def assert_told(store: KnownStore, rows: list[Row], text: str) -> set[Slot]:
    """The invariant; returns what is lost."""
    there = {(slot, row["body"]) for slot, row in zip(slots(rows), rows, strict=True)}
    lost = {slot for slot, put in store.puts.items() if (slot, put.body) not in there}
    assert lost - named(text, store) == set(), f"lost and not named in {text!r}"
    return lost


@every_read
def test_read_of_healthy_store_reports_no_loss(
    store: KnownStore, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    assert sorted(slots(read(store.path))) == sorted(store.puts)
    assert caplog.text == ""


@every_read
@pytest.mark.parametrize(("lie", "share"), [*zip(LIES, (0, 0.4, 1) * 3, strict=False), (later_offset, 0)])
def test_record_whose_header_or_body_is_damaged_is_named(
    store: KnownStore,
    read: Callable[..., list[Row]],
    lie: Callable[[KnownStore, int], None],
    share: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slot, put = store.at(share)
    lie(store, put.phy_offset)
    rows = read(store.path, failOnDataLoss=False)
    assert assert_told(store, rows, caplog.text) == {slot}
    with pytest.raises(GantrymqError) as error:
        read(store.path)
    assert slot in named(str(error.value), store)


@every_read
@pytest.mark.parametrize(("source", "target"), [(0, 3), (3, 0)])
def test_messages_overwritten_by_copied_records_are_named(
    store: KnownStore,
    read: Callable[..., list[Row]],
    source: int,
    target: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    under = store.victims(target * LOG_FILE, (target + 1) * LOG_FILE)
    shutil.copy(store.log_files[source], store.log_files[target])
    rows = read(store.path, failOnDataLoss=False)
    assert assert_told(store, rows, caplog.text) == under
    assert sorted(slots(rows)) == sorted(store.puts.keys() - under)
    with pytest.raises(GantrymqError):
        read(store.path)


@pytest.mark.parametrize("lie", [other_queue, earlier_offset])
def test_queue_unit_decides_between_two_records_of_same_offset(
    store: KnownStore, lie: Callable[[KnownStore, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    slot, put = store.at(0.7)
    lie(store, put.phy_offset)
    found = slots(batch(store.path, failOnDataLoss=False))
    assert sorted(found) == sorted(store.puts.keys() - {slot})
    assert f"record at offset {put.phy_offset}: it names offset" in caplog.text


@pytest.mark.usefixtures("elsewhere")
def test_another_file_system_is_compared_too(store: KnownStore, caplog: pytest.LogCaptureFixture) -> None:
    slot, put = store.at(0.5)
    no_such_queue(store, put.phy_offset)
    rows = batch(f"{SCHEME}{store.path}", subscribe="orders,bills", failOnDataLoss=False)
    assert assert_told(store, rows, caplog.text) == {slot}


@every_read
def test_lost_queue_is_named(
    store: KnownStore, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(store.path / "consumequeue" / "orders" / "1")
    assert assert_told(store, read(store.path), caplog.text) in (
        set(),
        {slot for slot in store.puts if slot[:2] == ("orders", 1)},
    )


def test_stream_of_queue_ending_early_logs_warning(store: KnownStore, caplog: pytest.LogCaptureFixture) -> None:
    for offset in range(30, sum(slot[:2] == ("orders", 0) for slot in store.puts)):
        damage_unit(store.path, "orders", offset, None)
    lost = assert_told(store, stream(store.path), caplog.text)
    assert lost
    assert "`gantrymq store rebuild` restores the queue" in caplog.text


@every_read
def test_read_of_recreated_topic_reports_no_loss(
    tmp_path: Path, read: Callable[..., list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its old messages lie in the log with offsets that the new queue does not have."""
    path = tmp_path / "broker-a"
    with MessageStore.open(path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        store.put_batch(numbered(100) + numbered(49, topic="bills"))
        await_dispatch(store)
        store.delete_topic("orders")
        store.put_batch(numbered(30) + numbered(49, topic="bills"))
        await_dispatch(store)
    caplog.clear()
    assert sum(row["topic"] == "orders" for row in read(path)) == 30
    assert caplog.text == ""


def test_row_limit_does_not_wait_for_end_of_audit(store: KnownStore) -> None:
    """What is not read to its end is not compared."""
    no_such_queue(store, store.at(0.9)[1].phy_offset)
    reader = RocketMQDataSource({"path": str(store.path)}).reader(fields(*COLUMNS))
    first = next(iter(reader.read(reader.partitions()[0])))
    assert len(first) > 0


@pytest.mark.parametrize("number", range(6))
def test_random_damage_is_reported(store: KnownStore, seed: int, number: int, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(seed * 6 + number)
    for _ in range(rng.choice((1, 1, 2))):
        _, put = store.at(rng.random())
        kind = rng.randrange(4)
        if kind == 0:
            store.flip(put.phy_offset + rng.randrange(put.size_bytes), 1 << rng.randrange(8))
        elif kind == 1:
            rng.choice(LIES)(store, put.phy_offset)
        elif kind == 2:
            at = put.phy_offset - put.phy_offset % 512
            store.write(at, bytes(512))
        else:
            damage_unit(store.path, "orders", rng.randrange(30), rng.choice((None, rng.randrange(6 * LOG_FILE))))
    read = rng.choice(list(READS.values()))
    assert_told(store, read(store.path, failOnDataLoss=False), caplog.text)


def test_intact_stream_batch_reads_no_queue(store: KnownStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for each queue and batch would cost more than reading a small batch."""
    looked: list[object] = []
    monkeypatch.setattr(queue_audit, "RemoteUnits", lambda *opened: looked.append(opened))
    assert len(stream(store.path, maxOffsetsPerTrigger=40)) == len(store.puts)
    assert looked == []
