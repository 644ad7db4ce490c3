"""Every option of a read at three places that hold the same messages: a live Java broker, ours, and Java's directory.

The messages are what a Java broker wrote (a golden store with retries, transactions, timers and all compressions), odd
ones behind these, and some that the real client sends to the running broker. Of its log the first file is gone.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import DataFrame

from gantrymq import Message, MessageStore, Producer
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.settings import ClientConfig
from gantrymq.clock import ManualClock
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.errors import GantrymqError
from gantrymq.store.reader import StoreReader
from golden_stores import NAMES, unpack
from spark_session import spark
from store_cases import await_dispatch, fill, numbered

from .java import Setting
from .java_cluster import JavaCluster
from .spark_reads import Row, Stream, in_order, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
BEGAN_MS = 1_795_260_000_000  # behind all that the golden store holds
# Nothing may be delivered, checked or deleted while it is read: three places are to hold the same.
STILL: dict[str, Setting] = {
    "transactionCheckInterval": 10_000_000,
    "timerWheelEnable": False,
    "fileReservedTime": 1_000_000,
}
SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")


class Places(NamedTuple):
    """Where to read: options that say so, by name."""

    java: dict[str, str]
    ours: dict[str, str]
    directory: dict[str, str]


def prepare(name: str, into: Path) -> tuple[Path, dict[str, Setting]]:
    """A golden store, ready for a broker: every topic has as many queues as hold messages, and is a real one."""
    folder = unpack(name, into)
    config: dict[str, Setting] = json.loads((folder / "about.json").read_text())["config"]
    return folder / "store", STILL | {key: config[key] for key in SIZES}


def declare_topics(store: Path, **more: int) -> None:
    """Write config/topics.json so that a broker serves all that is there; ``more`` topics have so many queues."""
    with StoreReader.open(store) as reader:
        queues = [(queue.topic, queue.queue_id, queue.max_offset) for queue in reader.consume_queues]
    file = store / "config" / "topics.json"
    file.parent.mkdir(exist_ok=True)
    table = json.loads(file.read_text())["topicConfigTable"] if file.exists() else {}
    for topic, count in [*((topic, queue_id + 1) for topic, queue_id, _ in queues), *more.items()]:
        count = max(count, table.get(topic, {}).get("readQueueNums", 0))
        table[topic] = {"topicName": topic, "perm": 6, "readQueueNums": count, "writeQueueNums": count}
    file.write_text(json.dumps({"topicConfigTable": table}))
    # What waits for its time counts as delivered.
    delivered = {queue_id + 1: high for topic, queue_id, high in queues if topic == "SCHEDULE_TOPIC_XXXX"}
    (file.parent / "delayOffset.json").write_text(json.dumps({"offsetTable": delivered}))


def put_odd_messages(store: Path) -> None:
    clock = ManualClock(BEGAN_MS)
    with MessageStore.open(store, clock=clock, housekeeping=False) as opened:
        fill(opened, 60, random.Random(1))
        for number in range(30):
            for topic, count in (("one", 1), ("two", 2), ("nine", 9)):
                opened.put_batch(numbered(1, first=number, topic=topic, queue_id=number % count))
            clock.advance(1000)
        for queue_id in (0, 2):
            opened.put(Message("sparse", b"", queue_id=queue_id, tags="gone", keys=["k", "ключ"]))
        for topic in ("ns%inside", "%RETRY%ns%group"):
            opened.put(Message(topic, topic.encode()))
        await_dispatch(opened)


@pytest.fixture(scope="module")
def places(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("places")
    store, settings = prepare("broker-features", folder)
    put_odd_messages(store)
    (store / "commitlog" / f"{0:020d}").unlink()
    declare_topics(store, empty=4, sparse=4, sent=2, paced=1)
    with JavaCluster(store, settings) as running:
        bodies = [{"topic": "sent", "body": text * 900, "tags": "tag", "keys": "a b", "properties": {"имя": "="}}
                  for text in ("packed", "主题", "x")]  # fmt: skip
        running.send([*bodies, [{"topic": "sent", "body": f"of a batch {number}"} for number in range(5)]],
                     compression="LZ4", compress_over=2000)  # fmt: skip
        shutil.copytree(store, folder / "copy")
        with EmbeddedBroker(folder / "copy", settings=settings | {"brokerName": "broker-a"}) as ours:
            yield Places(
                {"nameserver": running.namesrv}, {"nameserver": ours.namesrv},
                {"path": str(store), "brokerName": "broker-a"},
            )  # fmt: skip


def outcome(options: dict[str, str]) -> list[Row] | str:
    """The rows, or what is said in their place."""
    try:
        return rows(options)
    except GantrymqError as error:
        return f"{type(error).__name__}: {error}"


def queues(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(queue_id): number for queue_id, number in enumerate(numbers)}})


LATER, LATEST = BEGAN_MS + 10_000, {"startingOffsetsByTimestampStrategy": "latest"}
# What is given, and how many rows there are, or what is said in their place.
CASES: list[tuple[dict[str, object], int | str]] = [
    ({}, 464),
    ({"subscribe": "one"}, 30),
    ({"SUBSCRIBE": "one", "STARTINGoffsets": "Earliest", "endingOFFSETS": " LATEST "}, 30),
    ({"subscribe": "ONE"}, 0),
    ({"subscribe": "one , two,nine,empty,nowhere"}, 90),
    ({"subscribePattern": "one|two"}, 60),
    ({"subscribePattern": "(?i)ONE"}, 30),
    ({"subscribePattern": "on"}, 0),
    ({"subscribe": "SCHEDULE_TOPIC_XXXX"}, 30),
    ({"subscribe": "%RETRY%cg-push-Vis,%DLQ%cg-dlq-Vis"}, 17),
    ({"subscribe": "RMQ_SYS_TRANS_HALF_TOPIC,TxVis"}, 40),
    ({"subscribe": "CompressedVis"}, 12),
    ({"subscribe": "CompressedVis", "decompress": "false"}, 12),
    ({"subscribe": "sent"}, 8),
    ({"subscribe": "sent", "decompress": "False", "verifyCRC": "TRUE"}, 8),
    ({"subscribe": "sent", "keys": "b", "tags": "x || tag"}, 3),
    ({"subscribe": "sparse"}, 2),
    ({"subscribe": "empty"}, 0),
    ({"assign": '{"one":[0],"two":{"broker-a":[1]}}'}, 45),
    ({"assign": '{"sparse":[0,1]}'}, 1),
    ({"assign": '{"empty":[0,3]}'}, 0),
    ({"assign": '{"empty":[4]}'}, "assign='empty: 4' is not allowed: a queue that is there"),
    ({"assign": '{"nowhere":[0]}'}, "assign='nowhere: 0' is not allowed: a queue that is there"),
    ({"subscribePattern": ".*", "tags": "TagA||TagB"}, 115),
    ({"subscribe": "one", "tags": "*"}, 30),
    ({"keys": "k,tx0,level1"}, 10),
    ({"subscribePattern": ".*Vis", "keys": "none"}, 0),
    ({"namespace": "ns"}, 2),
    ({"namespace": "ns", "subscribe": "inside"}, 1),
    ({"namespace": "nobody"}, 0),
    ({"minPartitions": 17, "maxRecordsPerPartition": 23}, 464),
    ({"subscribe": "one", "minPartitions": 1000}, 30),
    # Offsets
    ({"subscribe": "one", "startingOffsets": queues("one", 5)}, 25),
    ({"subscribe": "one", "startingOffsets": queues("one", 30)}, 0),
    ({"subscribe": "one", "startingOffsets": queues("one", 20), "endingOffsets": queues("one", 10)}, 0),
    ({"subscribe": "two", "startingOffsets": queues("two", 5, -2), "endingOffsets": queues("two", -1, 7)}, 17),
    ({"subscribe": "one", "startingOffsets": '{"one":{"broker-a":{"0":29}}}'}, 1),
    ({"subscribe": "one", "startingOffsets": '{"one":{"broker-b":{"0":29}}}'}, "broker broker-b, queue 0 is not there"),
    ({"subscribe": "one", "startingOffsets": queues("one", 3, 0)}, "queue 1 is not there or not chosen"),
    ({"subscribe": "one", "startingOffsets": queues("two", 3)}, "a topic that is read; two is not there or not chosen"),
    ({"subscribe": "two", "startingOffsets": queues("two", 3)}, "1 are missing"),
    ({"subscribe": "one", "startingOffsets": queues("one", -1)}, "not latest (-1) in a batch"),
    ({"subscribe": "one", "endingOffsets": "earliest"}, "not earliest (-2) in a batch"),
    ({"subscribe": "sparse", "startingOffsets": queues("sparse", 0, 0, 0, 0)}, 2),
    ({"subscribe": "sparse", "startingOffsets": queues("sparse", 1, -2, -2, 0)}, 1),
    ({"subscribe": "sparse", "endingOffsets": queues("sparse", 0, -1, 1)}, 1),
    ({"subscribe": "empty", "startingOffsets": queues("empty", 0, 0)}, 0),
    ({"subscribe": "empty", "startingOffsets": queues("empty", 1)}, "offset 1 was expected, but the queue ends at 0"),
    ({"subscribe": "one", "startingOffsets": queues("one", 99)}, "the messages at offsets 30 to 98 are missing"),
    ({"subscribe": "one", "startingOffsets": queues("one", 99), "failOnDataLoss": "false"}, 0),
    ({"subscribe": "one", "endingOffsets": queues("one", 99)}, "offset 99 was expected, but the queue ends at 30"),
    ({"subscribe": "one", "endingOffsets": queues("one", 99), "failOnDataLoss": "false"}, 30),
    ({"subscribe": "NormalVis"}, 106),
    ({"subscribe": "NormalVis", "startingOffsets": queues("NormalVis", 0, 0, 0, 0)}, "offsets 0 to"),
    ({"subscribe": "NormalVis", "startingOffsets": queues("NormalVis", 0, 0, 0, 0), "failOnDataLoss": "false"}, 106),
    # Times
    ({"subscribe": "one", "startingTimestamp": 0}, 30),
    ({"subscribe": "one", "startingTimestamp": LATER}, 20),
    ({"subscribe": "one", "startingTimestamp": LATER + 1}, 19),
    ({"subscribe": "one", "endingTimestamp": LATER}, 10),
    ({"subscribe": "one", "endingTimestamp": LATER - 1}, 10),
    ({"subscribe": "one", "endingTimestamp": 0}, 0),
    ({"subscribe": "one", "endingTimestamp": (1 << 63) - 1}, 30),
    ({"subscribe": "one", "endingTimestamp": 1 << 63}, "milliseconds since 1970"),
    ({"subscribe": "one", "startingTimestamp": BEGAN_MS * 2}, "a time at or before the last message of topic one"),
    ({"subscribe": "one", "startingTimestamp": BEGAN_MS * 2, **LATEST}, 0),
    ({"subscribe": "one,empty", "startingTimestamp": LATER}, 20),
    ({"subscribe": "two", "startingOffsetsByTimestamp": queues("two", 0, BEGAN_MS * 2)}, "topic two, broker broker-a"),
    ({"subscribe": "two", "startingOffsetsByTimestamp": queues("two", 0, BEGAN_MS * 2), **LATEST}, 15),
    ({"subscribe": "two", "startingOffsetsByTimestamp": queues("two", LATER)}, "1 are missing"),
    ({"subscribe": "two", "endingOffsetsByTimestamp": queues("two", 0, BEGAN_MS * 2)}, 15),
    ({"subscribe": "sparse", "startingOffsetsByTimestamp": queues("sparse", 0, 0, 0, 0)}, 2),
    ({"subscribe": "one", "startingTimestamp": LATER, "startingOffsets": "nonsense"}, "earliest, latest, or JSON"),
    ({"subscribe": "one", "startingTimestamp": LATER, "startingOffsets": queues("two", 3)}, 20),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), CASES, ids=str)
def test_directory_cluster_and_remote_reads_return_equal_rows(
    places: Places, options: dict[str, object], expected: int | str
) -> None:
    given = {name: str(value) for name, value in options.items()}
    found = {name: outcome(place | given) for name, place in places._asdict().items()}
    assert found["java"] == found["directory"]
    assert found["ours"] == found["directory"]
    if isinstance(expected, int):
        assert len(found["directory"]) == expected
    else:
        assert expected in str(found["directory"])


STREAMS: list[dict[str, object]] = [
    {"subscribe": "one,two,nine,empty", "maxOffsetsPerTrigger": 7},
    {"subscribePattern": ".*Vis", "maxRecordsPerPartition": 20, "maxOffsetsPerTrigger": 100},
    {"subscribe": "two", "startingOffsets": queues("two", 5, -1), "minPartitions": 3},
    {"subscribe": "sparse,nowhere", "tags": "gone", "keys": "ключ"},
    {"subscribe": "one", "startingTimestamp": LATER, "maxOffsetsPerTrigger": 1},
    {"subscribe": "two", "startingOffsetsByTimestamp": queues("two", LATER, BEGAN_MS * 2), **LATEST},
    {"subscribe": "one", "minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h"},
    {"subscribe": "NormalVis", "startingOffsets": queues("NormalVis", 0, 0, 0, 0), "failOnDataLoss": "false"},
]


@pytest.mark.parametrize("options", STREAMS, ids=str)
def test_streams_of_all_sources_end_at_equal_offsets(places: Places, options: dict[str, object]) -> None:
    """Batches are cut in other ways, but hold the same; and a checkpoint of one place goes on at the others."""
    ends, found = {}, {}
    for name, place in places._asdict().items():
        given = {"startingOffsets": "earliest"} | {key: str(value) for key, value in options.items()}
        with Stream(place | given) as stream:
            batches = list(iter(stream.batch, []))
            ends[name], found[name] = stream.checkpoint, in_order(row for batch in batches for row in batch)
            there = {(row["topic"], row["queue_id"]) for batch in batches for row in batch}
        # Of a cluster each queue gives one at least, as with Kafka's connector.
        most = int(str(options.get("maxOffsetsPerTrigger", 1 << 62))) + (name != "directory") * len(there)
        assert all(len(batch) <= most for batch in batches)
    assert found["java"] == found["directory"]
    assert found["ours"] == found["directory"]
    for name, place in places._asdict().items():
        with Stream(place | given, checkpoint=ends["java"]) as stream:
            assert stream.batch() == [], name


def await_dispatched(namesrv: str, topic: str, count: int) -> None:
    """Return when the real broker's queues know so many messages, which may be a while after it acknowledged them."""
    deadline = time.monotonic() + 30
    with PullClient(ClientConfig(namesrv)) as client:
        while sum(client.max_offset(queue) for queue in client.queues(topic)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_minOffsetsPerTrigger_delays_batch(places: Places) -> None:
    """New messages at the running broker, seen by itself and in its directory."""
    sent = 0
    given = {"subscribe": "paced", "startingOffsets": "earliest", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "1h"}
    with (
        Producer(places.java["nameserver"]) as producer,
        Stream(places.java | given) as live,
        Stream(places.directory | given) as stored,
    ):
        # The first batch waits for nothing, as with Kafka's connector.
        for count, wanted in ((0, 0), (1, 1), (2, 0), (1, 3), (5, 5), (1, 0)):
            for _ in range(count):
                producer.send(Message("paced", b"x"))
                sent += 1
            if sent:
                await_dispatched(places.java["nameserver"], "paced", sent)
            assert (len(live.batch()), len(stored.batch())) == (wanted, wanted)
        with Stream(places.java | given, checkpoint=stored.checkpoint) as last:
            last.reader.prepareForTriggerAvailableNow()
            producer.send(Message("paced", b"too late"))
            assert [row["queue_offset"] for row in last.batch()] == [9]
            assert last.batch() == []


SLOW = pytest.mark.slow
CONDITIONS = {
    "topic = 'two' and queue_id = 1 and queue_offset >= 10": 5,
    "topic = 'sent' and tags = 'tag' and keys = array('a', 'b')": 3,
    f"topic = 'one' and store_timestamp >= timestamp_millis({LATER})": 20,
    "topic = 'sparse' and length(body) = 0": 2,
}


@pytest.mark.parametrize("name", ["java", pytest.param("ours", marks=SLOW), pytest.param("directory", marks=SLOW)])
def test_pushed_filters_return_expected_counts(spark: SparkSession, places: Places, name: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert counts(spark, getattr(places, name) | {"filterPushdown": "true"}) == list(CONDITIONS.values())
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def counts(spark: SparkSession, place: dict[str, str]) -> list[int]:
    """How many rows of a place meet each condition, in one job; each is a load of its own."""
    source = spark.read.format("rocketmq").options(**place, subscribePattern="one|two|sparse|sent", columns="all")
    parts = [source.load().where(one).selectExpr(f"{number} AS number") for number, one in enumerate(CONDITIONS)]
    found = {row.number: row["count"] for row in reduce(DataFrame.unionAll, parts).groupBy("number").count().collect()}
    return [found.get(number, 0) for number in range(len(CONDITIONS))]


def test_spark_reads_few_columns_at_all_places(spark: SparkSession, places: Places) -> None:
    found = []
    for place in places:
        source = spark.read.format("rocketmq").options(**place, SubScribe="sent")
        few = source.schema("body binary, queue_offset bigint").load()
        found.append(few.orderBy("queue_offset", "body").collect())
        all_but_one = spark.read.format("rocketmq").options(**place, columns="all", includeProperties="false").load()
        assert "properties" not in all_but_one.columns
        assert len(all_but_one.columns) == 18
    assert found[0] == found[1] == found[2]
    assert max(len(row.body) for row in found[0]) == 5400


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_golden_store_behind_real_broker_reads_as_its_directory(tmp_path: Path, java: None, name: str) -> None:
    """What a live broker gives of a store, damaged or not, is what its directory has."""
    store, settings = prepare(name, tmp_path)
    shutil.copytree(store, tmp_path / "copy")
    declare_topics(tmp_path / "copy")
    careless = {"failOnDataLoss": "false"}
    with JavaCluster(tmp_path / "copy", settings) as running:
        found = rows({"nameserver": running.namesrv, **careless})
    expected = rows({"path": str(store), "brokerName": "broker-a", **careless})
    if name == "lost-queues-many-files":  # Java makes the queues anew of the last ten files alone
        expected = [row for row in expected if row["phy_offset"] >= min(one["phy_offset"] for one in found)]
    assert found == expected
