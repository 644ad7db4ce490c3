"""The option ``pending``: the records that a store owes, with the columns that say to whom and when."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gantrymq.errors import ConfigError
from gantrymq.format.pop_checkpoint import PopCheckpoint, PopKey, encode_pop_checkpoint
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import REVIVE_TOPIC_PREFIX, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, Message
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.pipelines import rebuild_on_spark, salvage_on_spark
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.pending import PendingMessages
from store_cases import GEOMETRY_KEYS, NOON_MS
from timer_cases import HOUR_MS, SECOND_MS, TIMED, TimerCase

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONFIG = replace(TIMED, mapped_file_size_commit_log=16_384)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain messages between ones that wait, over several log files."""
    case = TimerCase(RealFileSystem(), tmp_path_factory.mktemp("pending") / "store", config=CONFIG)
    for number in range(40):
        case.store.put(Message("orders", b"x" * 1_000))
        if number % 4 == 0:
            case.store.put(Message("delayed", b"d%d" % number, queue_id=2, delay_level=5))
            case.send(b"t%d" % number, topic="timed", deliver_ms=NOON_MS + HOUR_MS + number * 60_000)
        if number % 10 == 0:
            more = {"TRAN_MSG": "true", "PGROUP": "P", "REAL_TOPIC": "paid", "REAL_QID": "1"}
            case.store.put(Message(TRANS_HALF_TOPIC, b"h", properties=more, born_timestamp_ms=NOON_MS))
    case.store.put(Message(TRANS_OP_HALF_TOPIC, b"1,2,", tags="d"))
    point = PopCheckpoint(PopKey("orders", "G", 0, 7, NOON_MS), 60_000, [0, 1, 2], 0b10)
    topic = f"{REVIVE_TOPIC_PREFIX}DefaultCluster"
    case.send(encode_pop_checkpoint(point), topic=topic, deliver_ms=point.revive_time_ms - SECOND_MS, TAGS="ck")
    case.step()
    case.wait(HOUR_MS, step_ms=HOUR_MS)  # the first timer message and the checkpoint are delivered
    case.close()
    return case.path


def expected() -> list[tuple[Any, ...]]:
    """(kind, topic, queue id, due, count), sorted."""

    def due(ms: int) -> datetime:
        return EPOCH + timedelta(milliseconds=ms)

    return sorted(
        [
            *[("delay", "delayed", 2, due(NOON_MS + 60_000), 1)] * 10,
            *(("timer", "timed", 0, due(NOON_MS + HOUR_MS + number * 60_000), 1) for number in range(4, 40, 4)),
            *[("half", "paid", 1, due(NOON_MS + 6_000), 1)] * 2,
            ("pop", "orders", 0, due(NOON_MS + 60_000), 2),
        ]
    )


COLUMNS = ("pending_kind", "pending_topic", "pending_queue_id", "pending_due", "pending_count")


@pytest.mark.parametrize("options", [{}, {"minPartitions": "7"}, {"columns": "all"}])
def test_pending_rows_equal_pending_records(store: Path, options: dict[str, str]) -> None:
    source = RocketMQDataSource({"path": str(store), "pending": "true", **options})
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
    assert sorted(tuple(row[name] for name in COLUMNS) for row in rows) == expected()
    assert {row["topic"] for row in rows} == {
        "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", TRANS_HALF_TOPIC, f"{REVIVE_TOPIC_PREFIX}DefaultCluster",
    }  # fmt: skip
    assert {row["body"] for row in rows if row["pending_kind"] == "half"} == {b"h"}
    assert len(reader.partitions()) >= (3 if "minPartitions" in options else 1)


@pytest.mark.slow
def test_pending_option_counts_pending_messages(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("rocketmq").option("path", str(store)).option("pending", "true").load()
    found = frame.groupBy("pending_kind").sum("pending_count").collect()
    assert dict(map(tuple, found)) == {"delay": 10, "timer": 9, "half": 2, "pop": 2}


def test_pending_option_without_pending_messages_has_no_rows(tmp_path: Path) -> None:
    case = TimerCase(RealFileSystem(), tmp_path / "store", config=CONFIG)
    case.store.put(Message("orders", b"now"))
    case.close()
    source = RocketMQDataSource({"path": str(case.path), "pending": "true"})
    assert source.reader(source.schema()).partitions() == []


@pytest.mark.parametrize(
    "options",
    [
        {"pending": "true", "subscribe": "orders"},
        {"pending": "true", "assign": '{"orders":[0]}'},
        {"pending": "true", "namespace": "n"},
        {"columns": "topic,pending_due"},
    ],
)
def test_contradicting_options_are_refused(store: Path, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="pending"):
        RocketMQDataSource({"path": str(store), **options}).schema()


def test_stream_with_pending_option_is_refused(store: Path) -> None:
    source = RocketMQDataSource({"path": str(store), "pending": "true"})
    with pytest.raises(ConfigError, match="pending"):
        source.streamReader(source.schema())


def test_damage_with_pending_option_is_data_loss(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    unit = copy / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "4" / f"{0:020d}"
    with unit.open("r+b") as file:
        file.write((17).to_bytes(8, "big"))
    given = {"path": str(copy), "pending": "true"}
    source = RocketMQDataSource(given)
    with pytest.raises(Exception, match="no readable record"):
        source.reader(source.schema()).partitions()
    lax = RocketMQDataSource({**given, "failOnDataLoss": "false"})
    assert len(lax.reader(lax.schema()).partitions()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("job", ["rebuild", "salvage"])
def test_spark_jobs_keep_pending_messages(spark: SparkSession, store: Path, tmp_path: Path, job: str) -> None:
    copy, out = tmp_path / "store", tmp_path / "out"
    shutil.copytree(store, copy)
    before = pending(copy)
    if job == "rebuild":
        shutil.rmtree(copy / "consumequeue")
        rebuild_on_spark(spark, copy, CONFIG, given=GEOMETRY_KEYS)
    else:
        salvage_on_spark(spark, copy, out, CONFIG, given=GEOMETRY_KEYS)
    assert pending(copy if job == "rebuild" else out) == before


def pending(path: Path) -> Counter[tuple[str, str, int, int]]:
    with StoreReader.open(path, CONFIG, given=GEOMETRY_KEYS, trusts_writer=True) as reader:
        messages = PendingMessages(reader, NOON_MS + HOUR_MS)
        return Counter((one.kind, one.topic, one.due_ms, one.queue_offset) for one in messages)
