"""The rows of stores of every kind and state, read in this process, against StoreReader and the reference codecs."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from spark_cases import Row, damage_unit, expected_rows, golden_messages, in_log_order, partitions_of, rows_of
from stream_cases import Stream

from gantrymq import Message, MessageStore
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from gantrymq.spark.read import log as run_reader
from gantrymq.spark.schema import COLUMNS
from golden_stores import NAMES
from store_cases import GEOMETRY_KEYS, SMALL, await_dispatch, fill, kill_while_putting, numbered, open_store


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decompress", [True, False])
def test_golden_rows_equal_reference(golden: Callable[[str], Path], name: str, decompress: bool) -> None:
    store = golden(name) / "store"
    assert rows_of(store, decompress=decompress) == expected_rows(store, decompress=decompress)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("min_partitions", [1, 2, 7, 40])
def test_more_partitions_give_the_same_rows(golden: Callable[[str], Path], name: str, min_partitions: int) -> None:
    store = golden(name) / "store"
    partitions = partitions_of(store, "phy_offset", "body", "topic", minPartitions=min_partitions)
    assert len(partitions) >= min_partitions * 0.9  # two cuts can come to stand at one large record
    assert [row["phy_offset"] for rows in partitions for row in rows] == [
        line["phyOffset"] for line in golden_messages(golden(name))
    ]


def test_system_topics_are_read_without_topic_selection(golden: Callable[[str], Path]) -> None:
    """Half messages, whatever became of them, and delayed ones; a topic's own queues have what was committed."""
    store = golden("broker-features") / "store"
    everything = Counter(row["topic"] for row in rows_of(store, "topic"))
    assert (everything["RMQ_SYS_TRANS_HALF_TOPIC"], everything["SCHEDULE_TOPIC_XXXX"]) == (35, 25)
    committed = rows_of(store, "sys_flag", subscribe="TxVis")
    assert [row["sys_flag"] & TRANSACTION_MASK for row in committed] == [TRANSACTION_COMMIT] * 5


@pytest.mark.parametrize(
    ("name", "chunk_bytes"),
    [
        *((name, size) for name in ("broker-4.9.8", "torn-tail") for size in (50, 300, 1000, 70_000)),
        ("direct-mixed", 1000),
        ("direct-mixed", 70_000),
        pytest.param("direct-mixed", 300, marks=pytest.mark.slow),
        pytest.param("direct-mixed", 50, marks=pytest.mark.slow),
    ],
)
def test_records_across_chunk_borders_are_read(
    golden: Callable[[str], Path], name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "CHUNK_BYTES", chunk_bytes)
    store = golden(name) / "store"
    assert rows_of(store, minPartitions=3) == expected_rows(store)


def test_one_file_splits_at_its_records(tmp_path: Path) -> None:
    with open_store(path=tmp_path, config=replace(SMALL, mapped_file_size_commit_log=1 << 20)) as store:
        fill(store, 1500, random.Random(5))
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    expected = expected_rows(tmp_path)
    for min_partitions in (1, 2, 3, 50, 400):
        partitions = partitions_of(tmp_path, minPartitions=min_partitions)
        assert len(partitions) >= min_partitions * 0.9
        assert [row for rows in partitions for row in rows] == expected
        if min_partitions <= 50:
            assert max(map(len, partitions)) < 3 * len(expected) / len(partitions)


@pytest.mark.parametrize("column", [column.name for column in COLUMNS])
def test_each_column_is_read_alone(golden: Callable[[str], Path], column: str) -> None:
    store = golden("direct-mixed") / "store"
    assert rows_of(store, column) == [{column: row[column]} for row in expected_rows(store)]


def test_unusual_messages_equal_reference(tmp_path: Path, rng: random.Random) -> None:
    with open_store(path=tmp_path) as store:
        fill(store, 800, rng)
    assert rows_of(tmp_path) == expected_rows(tmp_path)


def test_rows_of_killed_store_equal_reference(tmp_path: Path) -> None:
    kill_while_putting(tmp_path, 300, batch=10, seed=1)
    expected = expected_rows(tmp_path)
    assert len(expected) > 200
    assert rows_of(tmp_path, minPartitions=4) == expected
    assert (tmp_path / "abort").exists(), "reading recovered the store"


def test_rows_of_store_being_written_equal_reference(tmp_path: Path) -> None:
    done = threading.Event()
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(50))

        def write() -> None:
            first = 50
            while not done.is_set():
                store.put_batch(numbered(50, first=first))
                first += 50

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = [0]
            while counts[-1] < 3000:
                bodies = [row["body"] for row in rows_of(tmp_path, "body", minPartitions=3)]
                assert bodies == [b"%08d" % number for number in range(len(bodies))]
                counts.append(len(bodies))
        finally:
            done.set()
            writer.join()
        assert counts == sorted(counts)
        assert counts[-1] > 0
        await_dispatch(store)
        assert rows_of(tmp_path) == expected_rows(tmp_path)


def test_topics_select_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        for number in range(400):
            store.put(Message(f"topic-{number % 7}", b"%d" % number, queue_id=number % 3))
        store.put_batch(numbered(100, topic="late"))
        store.put(Message("主题", b"x"))
    everything = expected_rows(tmp_path)

    def those_of(*topics: str) -> list[object]:
        return [row for row in everything if row["topic"] in topics]

    assert rows_of(tmp_path, subscribe="topic-3") == those_of("topic-3")
    assert rows_of(tmp_path, topic="late, topic-1,", minPartitions=5) == those_of("late", "topic-1")
    assert rows_of(tmp_path, subscribe="主题") == those_of("主题")
    assert rows_of(tmp_path, subscribePattern="topic-[12]|late") == those_of("topic-1", "topic-2", "late")
    assert rows_of(tmp_path, subscribePattern="topic") == []
    assert rows_of(tmp_path, subscribe="nobody") == []
    assert rows_of(tmp_path, brokerName="broker-a", subscribe="主题") == [{**those_of("主题")[0], "broker": "broker-a"}]


def test_late_topic_reads_only_its_part_of_log(tmp_path: Path) -> None:
    from gantrymq.spark.options import ReadOptions
    from gantrymq.spark.plan.batch import plan_batch

    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(2000))
        first = store.put(Message("late", b"x")).phy_offset
        end = store.put(Message("late", b"x")).end_offset
        store.put_batch(numbered(2000))
    (run,) = plan_batch(ReadOptions.parse({"path": str(tmp_path), "subscribe": "late"}))
    assert (run.pieces[0].start, run.pieces[-1].stop) == (first, end)


@pytest.fixture
def made_again(tmp_path: Path) -> Path:
    """Of topics ``again`` and ``gone`` the first five messages were deleted with their queues, and stay in the log."""
    with MessageStore.open(tmp_path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        for number in range(5):
            for topic in ("keep", "again", "gone"):
                store.put(Message(topic, b"old %d" % number, keys=["4711"]))
        for topic in ("again", "gone"):
            assert store.delete_topic(topic).queues == 1
        for number in range(2):
            store.put(Message("again", b"new %d" % number, keys=["4711"]))
        store.put(Message("keep", b"old 5"))
    return tmp_path


def without_keep(rows: list[Row]) -> list[tuple[int, bytes]]:
    return [(row["queue_offset"], row["body"]) for row in rows if row["topic"] != "keep"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "again"},
        {"subscribe": "keep,again,gone"},
        {"endingOffsets": '{"keep":{"0":6},"again":{"0":2}}'},
        {"keys": "4711", "minPartitions": 3},
        {"maxRecordsPerPartition": 2},
    ],
    ids=str,
)
def test_recreated_topic_has_only_its_new_messages(made_again: Path, options: dict[str, object]) -> None:
    """Their offsets are those of the old ones once more, whatever else is read."""
    rows = rows_of(made_again, "topic", "queue_offset", "body", **options)
    assert without_keep(rows) == [(0, b"new 0"), (1, b"new 1")]


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 3}, {"subscribe": "keep,again"}], ids=str)
def test_stream_of_recreated_topic_reads_new_messages(made_again: Path, options: dict[str, object]) -> None:
    with Stream(made_again, startingOffsets="earliest", **options) as stream:
        rows = [row for batch in stream.batches() for row in batch]
    assert without_keep(rows) == [(0, b"new 0"), (1, b"new 1")]


@pytest.mark.parametrize("place", [-1, 7, 1 << 33])
def test_damaged_first_unit_hides_no_message_of_topic(made_again: Path, place: int) -> None:
    """Where the topic begins cannot be told then."""
    damage_unit(made_again, "again", 0, place)
    assert without_keep(rows_of(made_again))[-2:] == [(0, b"new 0"), (1, b"new 1")]


def test_empty_store_has_no_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "fresh"):
        pass
    assert rows_of(tmp_path / "fresh") == []
    (tmp_path / "bare" / "commitlog").mkdir(parents=True)
    assert rows_of(tmp_path / "bare") == []


def test_prepared_and_rolled_back_messages_are_no_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        for sys_flag in (0, 4, 8, 12, 0, 12):
            store.put(Message("orders", b"%d" % sys_flag, sys_flag=sys_flag))
    assert [row["body"] for row in rows_of(tmp_path, "body")] == [b"0", b"8", b"0"]


def test_bodies_of_every_size_are_read(tmp_path: Path) -> None:
    """More than one batch, by records and by bytes, and a record larger than a batch."""
    large = replace(SMALL, mapped_file_size_commit_log=32 << 20, max_message_size_bytes=16 << 20)
    with MessageStore.open(tmp_path, large, given=["mappedFileSizeCommitLog"], housekeeping=False) as store:
        store.put_batch(numbered(40_000))
        for size in (9 << 20, 0, 5 << 20, 1 << 20):
            store.put(Message("orders", random.Random(size).randbytes(size)))
    rows = rows_of(tmp_path, "body", "queue_offset", minPartitions=3)
    assert [row["queue_offset"] for row in rows] == list(range(40_004))
    assert [len(row["body"]) for row in rows[-5:]] == [8, 9 << 20, 0, 5 << 20, 1 << 20]
    assert in_log_order(expected_rows(tmp_path))[-1]["body"] == rows[-1]["body"]
