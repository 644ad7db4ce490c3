"""Streams through a real Spark: triggers, progress, restarts, a sink, and drivers killed with SIGKILL."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from gantrymq import StoreReader
from store_cases import await_dispatch, numbered, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "topic string, body binary, queue_id int"


def run(spark: SparkSession, source: Path, sink: Path, checkpoint: Path, **options: object) -> list[dict[str, Any]]:
    """One AvailableNow query from store to store; returns its progress."""
    stream = spark.readStream.format("rocketmq").schema(SCHEMA).option("startingOffsets", "earliest")
    for name, value in options.items():
        stream = stream.option(name, str(value))
    query = (
        stream.load(str(source))
        .writeStream.format("rocketmq")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(sink))
    )
    query.awaitTermination(120)
    assert not query.isActive
    return [json.loads(one.json) if hasattr(one, "json") else one for one in query.recentProgress]


def bodies(path: Path, topic: str = "orders") -> list[str]:
    with StoreReader.open(path) as reader:
        return sorted(message.body.decode() for message in reader.messages(topic))


def expected(count: int) -> list[str]:
    return [f"{number:08d}" for number in range(count)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "source") as store:
        store.put_batch(numbered(100))
    return tmp_path / "source"


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    with open_store(path=tmp_path / "sink"):
        pass
    return tmp_path / "sink"


def test_availableNow_stream_continues_after_restart(
    spark: SparkSession, source: Path, sink: Path, tmp_path: Path
) -> None:
    progress = run(spark, source, sink, tmp_path / "c", maxOffsetsPerTrigger=40)
    assert bodies(sink) == expected(100)
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [40, 40, 20]
    assert progress[0]["sources"][0]["endOffset"]["orders"] == {"source": {"0": 40}}
    assert progress[0]["sources"][0]["latestOffset"] == {"orders": {"source": {"0": 100}}}
    with open_store(path=source) as store:
        store.put_batch(numbered(50, first=100) + numbered(10, topic="new", queue_id=2))
        await_dispatch(store)
        run(spark, source, sink, tmp_path / "c")
    assert bodies(sink) == expected(150)
    assert len(bodies(sink, "new")) == 10
    run(spark, source, sink, tmp_path / "c")
    assert bodies(sink) == expected(150)


def test_rerun_of_committed_batch_adds_no_row(spark: SparkSession, source: Path, sink: Path, tmp_path: Path) -> None:
    run(spark, source, sink, tmp_path / "c", maxOffsetsPerTrigger=60)
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    for crc in (tmp_path / "c" / "commits").glob(f".{last.name}.crc"):
        crc.unlink()
    run(spark, source, sink, tmp_path / "c", maxOffsetsPerTrigger=60)
    assert bodies(sink) == expected(100)


def test_batch_write_stores_rows(spark: SparkSession, sink: Path) -> None:
    rows = spark.createDataFrame([("orders", f"{number:08d}") for number in range(100)], "topic string, body string")
    for _ in range(2):
        rows.write.format("rocketmq").option("txnAppId", "job").option("txnVersion", 7).mode("append").save(str(sink))
    assert bodies(sink) == expected(100)
    rows.write.format("rocketmq").mode("append").save(str(sink))
    assert Counter(bodies(sink)) == Counter(expected(100) * 2)
    assert [file.name for file in sink.glob("spark/*/*")] == ["job.json"]
    with pytest.raises(Exception, match="column topic='a/b' is not allowed: a name of a topic"):
        spark.createDataFrame([("a/b", "x")], "topic string, body string").write.format("rocketmq").mode("append").save(
            str(sink)
        )
    assert not list(sink.glob("spark/**/*.arrow"))


def test_data_loss_ends_query_with_named_error(spark: SparkSession, source: Path, sink: Path, tmp_path: Path) -> None:
    run(spark, source, sink, tmp_path / "c")
    with open_store(path=source) as store:
        store.put_batch(numbered(600, first=100))
    for file in sorted((source / "commitlog").iterdir())[:2]:
        file.unlink()
    with pytest.raises(
        StreamingQueryException, match="topic orders, broker source, queue 0: the messages at offsets 100"
    ):
        run(spark, source, sink, tmp_path / "c")
    run(spark, source, sink, tmp_path / "c", failOnDataLoss="false")
    there = bodies(sink)
    assert there[-1] == "00000699"
    assert len(there) == len(set(there)) < 700


def test_pushed_filters_keep_rows(spark: SparkSession, source: Path) -> None:
    with open_store(path=source) as store:
        store.put_batch(numbered(50, topic="invoices", queue_id=3))
    conditions = {
        "topic = 'invoices'": 50,
        "topic in ('invoices', 'none') and queue_id = 3 and queue_offset >= 10 and queue_offset < 20": 10,
        "queue_offset = 49": 2,
        "queue_offset > 97": 2,
        "tags = 'paid'": 150,
        "tags = 'due'": 0,
        "tags <> 'paid'": 0,
        "phy_offset < 1000 and phy_offset >= 0": None,
        "store_timestamp > timestamp '2001-01-01'": 150,
        "store_timestamp < timestamp '2001-01-01'": 0,
        "keys = array('x')": 0,
        "topic = 'orders' or queue_id = 3": 150,
        "topic = 'invoices' and topic = 'orders'": 0,
    }
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        loaded = spark.read.format("rocketmq").option("columns", "all").load(str(source))
        everything = loaded.collect()
        for condition, count in conditions.items():
            pushed = spark.read.format("rocketmq").options(filterPushdown="true", columns="all").load(str(source))
            found = pushed.where(condition).count()
            assert found == (sum(row.phy_offset < 1000 for row in everything) if count is None else count), condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filter_on_frame_does_not_affect_its_other_uses(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.3 keeps for a loaded frame what the last filters left, and gives other uses of it no more than that.

    So filters are taken only where they are asked for: what a session's setting says must not lose rows.
    """
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10) + numbered(20, topic="invoices"))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for option, wanted in (({}, [10, 30, 30]), ({"filterPushdown": "true"}, [10, 10, 10])):
            loaded = spark.read.format("rocketmq").options(**option).load(str(tmp_path))
            few = loaded.where("topic = 'orders'")
            counts = [few.count(), loaded.count(), few.union(loaded.where("topic = 'invoices'")).count()]
            assert counts[:2] == wanted[:2], option
            assert (counts[2] == 30) == (not option)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def batch_of(query: StreamingQuery) -> int:
    """The number of the newest batch that ended; -1 before the first."""
    return -1 if query.lastProgress is None else query.lastProgress["batchId"]


def test_stream_under_retention_reads_remaining_messages_once(spark: SparkSession, tmp_path: Path, sink: Path) -> None:
    """The log is written at its end and deleted from its front while a query reads it: what is there comes once."""
    source = tmp_path / "source"
    with open_store(path=source) as store:
        store.put_batch(numbered(1000))
    reading = spark.readStream.format("rocketmq").schema(SCHEMA).option("startingOffsets", "earliest")
    stream = reading.option("failOnDataLoss", "false").option("maxOffsetsPerTrigger", 300).load(str(source))
    writing = stream.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "c"))
    query = writing.start(str(sink))
    for first in range(1000, 3000, 200):
        with open_store(path=source) as store:
            store.put_batch(numbered(200, first=first))
            await_dispatch(store)
        # The store is closed: a writer stops where another program removes its files. The files that were newest when
        # the running batch was planned stay, as with real retention: without them the log counts as another one.
        for file in sorted((source / "commitlog").iterdir())[:-4]:
            file.unlink()
        seen = batch_of(query)
        while query.isActive and batch_of(query) == seen:
            time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None
    there, left = bodies(sink), bodies(source)
    assert len(there) == len(set(there))
    assert left[-1] == "00002999"
    assert set(left) <= set(there) <= set(expected(3000))


def killed_driver(source: Path, sink: Path, checkpoint: Path, after: int, delay_s: float) -> None:
    """Let a driver follow ``source`` into ``sink``; kill it and its JVM ``delay_s`` after so many batches are in."""
    script = Path(__file__).with_name("streaming_driver.py")
    command = [sys.executable, str(script), str(source), str(sink), str(checkpoint), "40", "1000000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    ) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            if line.strip().isdigit() and int(line) >= after - 1:
                break
        time.sleep(delay_s)
        os.killpg(driver.pid, signal.SIGKILL)


@contextmanager
def being_written(path: Path, first: int) -> Iterator[list[int]]:
    """A store that grows by 20 messages at a time; how many there are in the end."""
    done, counts = threading.Event(), [first]

    def write() -> None:
        with open_store(path=path) as store:
            while not done.wait(0.1):
                store.put_batch(numbered(20, first=counts[0]))
                counts[0] += 20

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield counts
    finally:
        done.set()
        writer.join()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 8])
def test_stream_of_killed_driver_continues(
    spark: SparkSession, tmp_path: Path, sink: Path, rng: random.Random, kills: int
) -> None:
    """Killed at any moment, with a source that goes on growing: after the last restart every row is there once."""
    source = tmp_path / "source"
    with open_store(path=source) as store:
        store.put_batch(numbered(4000))
    with being_written(source, 4000) as counts:
        for number in range(kills):
            killed_driver(source, sink, tmp_path / "c", after=2 + 3 * number, delay_s=rng.uniform(0, 0.8))
            there = bodies(sink)
            assert len(there) == len(set(there)) < 4000
        assert len(there) >= 40
    run(spark, source, sink, tmp_path / "c")
    assert bodies(sink) == expected(counts[0])
