"""Spark's sink into a live broker, the real one: the real consumer gets every row as it was written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import _parse_datatype_json_string

from gantrymq.client.producer.async_producer import AsyncProducer
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.records import decode_records
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError, MQClientError, RemotingConnectError
from gantrymq.model.message import StoredMessage
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.write import cluster as cluster_sink
from gantrymq.spark.write import cluster as outgoing_messages
from gantrymq.spark.write.cluster import Sent
from spark_session import spark

from .java_cluster import JavaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["spark"]
TYPES: dict[str, tuple[str, pa.DataType]] = {
    "topic": ('"string"', pa.string()),
    "body": ('"binary"', pa.binary()),
    "tags": ('"string"', pa.string()),
    "keys": ('{"type":"array","elementType":"string","containsNull":true}', pa.list_(pa.string())),
    "properties": (
        '{"type":"map","keyType":"string","valueType":"string","valueContainsNull":true}',
        pa.map_(pa.string(), pa.string()),
    ),
    "queue_id": ('"integer"', pa.int32()),
    "sharding_key": ('"string"', pa.string()),
    "delay_level": ('"integer"', pa.int32()),
    "deliver_timestamp": ('"timestamp"', pa.timestamp("us", "UTC")),
}


def schema_of(names: list[str]) -> StructType:
    fields = [f'{{"name":"{name}","type":{TYPES[name][0]},"nullable":true,"metadata":{{}}}}' for name in names]
    return _parse_datatype_json_string(f'{{"type":"struct","fields":[{",".join(fields)}]}}')


def write(cluster: JavaCluster, rows: list[dict[str, Any]], batch_rows: int = 1000, **options: object) -> Any:
    """One task's write, in this process, with ``batch_rows`` rows in each of Spark's batches."""
    names = [name for name in TYPES if name in rows[0]]
    given = {"nameserver": cluster.namesrv, **{name: str(value) for name, value in options.items()}}
    writer = RocketMQDataSource(given).writer(schema_of(names), overwrite=False)
    batches = [
        pa.record_batch([pa.array([row[name] for row in part], TYPES[name][1]) for name in names], names)
        for part in (rows[start : start + batch_rows] for start in range(0, len(rows), batch_rows))
    ]
    sent = writer.write(iter(batches))
    writer.commit([sent])
    return sent


def stored(cluster: JavaCluster, topic: str, count: int = 1) -> list[StoredMessage]:
    """All messages of a topic, once there are ``count``: a broker acknowledges before its queues have a message."""
    deadline = time.monotonic() + 60
    with PullClient(ClientConfig(cluster.namesrv)) as client:
        while sum(map(client.max_offset, client.queues(topic))) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return [
            message
            for queue in client.queues(topic)
            for pulled in client.read(queue, 0, client.max_offset(queue))
            for message in decode_records(pulled.records)
        ]


def test_real_consumer_receives_every_column(cluster: JavaCluster) -> None:
    topic = "SparkWrites-columns"
    empty = dict.fromkeys(TYPES)
    rows = [
        empty | {"topic": topic, "body": b"plain"},
        empty | {"topic": topic, "body": "主题".encode(), "tags": "t", "keys": ["k", "l"], "queue_id": 3,
                 "properties": {"ключ": "値"}},
        empty | {"topic": topic, "body": b"sharded", "sharding_key": "Aa"},
        empty | {"topic": topic, "body": b"z" * 9000, "queue_id": 1},
        empty | {"topic": topic, "body": b"delayed", "delay_level": 1},
    ]  # fmt: skip
    assert write(cluster, rows) == Sent(5)
    lines = cluster.pull(topic, 5)
    assert sorted(line["bodyLength"] for line in lines) == [5, 6, 7, 7, 9000]
    by_body = {message.body: message for message in stored(cluster, topic, 5)}
    assert set(by_body) == {b"plain", "主题".encode(), b"sharded", b"z" * 9000, b"delayed"}
    named = by_body["主题".encode()]
    assert (named.tags, named.keys, named.queue_id, named.properties["ключ"]) == ("t", ["k", "l"], 3, "値")
    assert by_body[b"sharded"].queue_id == 2112 % 4  # Java's hash of "Aa"
    assert by_body[b"sharded"].properties["__SHARDINGKEY"] == "Aa"
    assert by_body[b"z" * 9000].size_bytes < 1000  # compressed, as producers do
    assert by_body[b"delayed"].properties["DELAY"] == "1"


def test_delivery_time_column_reaches_broker(cluster: JavaCluster) -> None:
    """The broker of these tests has no timers, and says so."""
    rows = [{"body": b"timed", "deliver_timestamp": datetime.now(UTC) + timedelta(hours=1)}]
    with pytest.raises(MQClientError, match="timerWheelEnable is false"):
        write(cluster, rows, topic="SparkWrites-timed", retryTimesWhenSendFailed=0)


@pytest.mark.slow
def test_delivery_time_delays_row(tmp_path: Path) -> None:
    soon = datetime.now(UTC).replace(microsecond=1999) + timedelta(seconds=8)
    with JavaCluster(tmp_path / "store", {"timerWheelEnable": True}) as own:
        write(own, [{"body": b"timed", "deliver_timestamp": soon}], topic="Timed")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                found = stored(own, "Timed")
            except MQClientError:  # the topic is made when the message comes out
                found = []
            if found:
                break
            time.sleep(0.2)
        (message,) = found
        assert message.body == b"timed"
        assert message.properties["TIMER_DELIVER_MS"] == str(int(soon.timestamp() * 1000))
        assert message.store_timestamp_ms >= soon.timestamp() * 1000 - 1000


def test_rows_of_queue_keep_their_order(cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one sharding key stay in order, through parcels and Spark's batches."""
    monkeypatch.setattr(outgoing_messages, "PARCEL_ROWS", 7)
    rows = [{"topic": "SparkWrites-order", "body": b"%d" % number, "sharding_key": "xyz"[number % 3]}
            for number in range(300)]  # fmt: skip
    write(cluster, rows, batch_rows=50)
    for shard in "xyz":
        numbers = [int(one.body) for one in stored(cluster, "SparkWrites-order", 300)
                   if one.properties["__SHARDINGKEY"] == shard]  # fmt: skip
        assert numbers == list(range("xyz".index(shard), 300, 3))


def test_rows_without_queue_spread_over_all_queues(cluster: JavaCluster) -> None:
    rows = [{"body": b"%d" % number} for number in range(5000)]
    assert write(cluster, rows, topic="SparkWrites-all", queueNum=3) == Sent(5000)
    messages = stored(cluster, "SparkWrites-all", 5000)
    assert sorted(int(one.body) for one in messages) == list(range(5000))
    assert {one.queue_id for one in messages} == {0, 1, 2}


def test_namespace_is_prefixed_to_topic_of_rows(cluster: JavaCluster) -> None:
    write(cluster, [{"body": b"x", "sharding_key": "k"}, {"body": b"y", "sharding_key": None}],
          topic="SparkWrites-in", namespace="ns")  # fmt: skip
    assert sorted(one.body for one in stored(cluster, "ns%SparkWrites-in", 2)) == [b"x", b"y"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"topic": None, "body": b"x"}, "column topic=None is not allowed: never null; row 1"),
        ({"topic": "a", "body": None}, "column body=None is not allowed: never null; row 1"),
        ({"topic": "a", "body": b""}, "column body='0 bytes' is not allowed: 1 to 4194304 bytes; row 1"),
        ({"topic": "a", "body": b"x" * 4_194_305}, "column body='4194305 bytes' is not allowed: 1 to 4194304 bytes"),
        ({"topic": "a/b", "body": b"x"}, "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$; row 1"),
        ({"topic": "SCHEDULE_TOPIC_XXXX", "body": b"x"}, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden"),
        ({"topic": "a", "body": b"x", "tags": "\x02"}, "row 1"),
        ({"topic": "a", "body": b"x", "properties": {"p": "x" * 33_000}}, "32767 are allowed; row 1"),
        ({"topic": "TBW102", "body": b"x", "queue_id": 77}, "a queue of topic TBW102, which has 0 to 7; row 1"),
    ],
)  # fmt: skip
def test_unsendable_rows_are_refused(cluster: JavaCluster, row: dict[str, Any], says: str) -> None:
    """Nothing of the batch is sent."""
    first = {"topic": "SparkWrites-none", "body": b"never sent"}
    columns = dict.fromkeys(row) | first
    with pytest.raises(ConfigError) as raised:
        write(cluster, [columns, dict.fromkeys(columns) | row])
    assert says in str(raised.value)
    with pytest.raises(MQClientError, match="no route of topic SparkWrites-none"):
        stored(cluster, "SparkWrites-none")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"txnAppId": "a", "txnVersion": 1}, "txnAppId='a' is not allowed: only with path, and here is nameserver"),
        ({"store.flushDiskType": "SYNC_FLUSH"}, "only with path: brokers have their own"),
        ({"accessKey": "a"}, "together or not at all"),
        ({"producerGroup": "a b"}, "producerGroup='a b' is not allowed"),
        ({"nameserver": "here"}, "nameserver='here' is not allowed: host:port"),
    ],
)
def test_wrong_sink_options_are_refused(options: dict[str, object], says: str) -> None:
    given = {"nameserver": "127.0.0.1:1", "topic": "a", **{name: str(value) for name, value in options.items()}}
    for overwrite, expected in ((False, says), (True, "append: messages are only ever added")):
        with pytest.raises(ConfigError) as raised:
            RocketMQDataSource(given if not overwrite else {"nameserver": "h:1", "topic": "a"}).streamWriter(
                schema=schema_of(["body"]), overwrite=overwrite
            )
        assert expected in str(raised.value)


def test_failed_send_is_retried(
    cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An acknowledgement that is lost, and a broker that is away for a moment: at least once, nothing is lost."""
    monkeypatch.setattr(cluster_sink, "FIRST_PAUSE_S", 0.01)
    real, failures = AsyncProducer.send_batch, iter(["before", "after", "before"])

    async def unsure(self: AsyncProducer, *given: Any, **options: Any) -> Any:
        when = next(failures, None)
        if when != "before":
            result = await real(self, *given, **options)
        if when is not None:
            raise RemotingConnectError("127.0.0.1:1", when)
        return result

    monkeypatch.setattr(AsyncProducer, "send_batch", unsure)
    rows = [{"body": b"%d" % number, "sharding_key": "k"} for number in range(20)]
    with caplog.at_level(logging.WARNING):
        assert write(cluster, rows, topic="SparkWrites-again") == Sent(20)
    numbers = [int(one.body) for one in stored(cluster, "SparkWrites-again", 40)]
    assert numbers == list(range(20)) * 2
    assert "topic SparkWrites-again, 10 attempts left" in caplog.text


def test_send_attempts_are_limited(cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_sink, "FIRST_PAUSE_S", 0.01)

    async def never(*_: Any, **__: Any) -> Any:
        raise RemotingConnectError("127.0.0.1:1", "away")

    monkeypatch.setattr(AsyncProducer, "send", never)
    with pytest.raises(RemotingConnectError, match="away"):
        write(cluster, [{"body": b"x"}], topic="SparkWrites-never", retryTimesWhenSendFailed=2)


@pytest.mark.slow
def test_broker_killed_during_write_loses_no_row(tmp_path: Path) -> None:
    """The real broker dies in the middle and comes back: every row is there, some perhaps twice."""
    with JavaCluster(tmp_path / "store", {"flushDiskType": "SYNC_FLUSH"}) as own:

        def restart() -> None:
            time.sleep(0.3)
            own.kill()
            own.start()

        restarting = threading.Thread(target=restart)

        def rows() -> Iterator[pa.RecordBatch]:
            for start in range(0, 4000, 100):
                if start == 500:
                    restarting.start()
                yield pa.record_batch({"body": [b"%d" % number for number in range(start, start + 100)]})

        options = {"nameserver": own.namesrv, "topic": "Killed", "retryTimesWhenSendFailed": "30"}
        writer = RocketMQDataSource(options).writer(schema_of(["body"]), overwrite=False)
        assert writer.write(rows()) == Sent(4000)
        restarting.join()
        assert {int(one.body) for one in stored(own, "Killed", 4000)} == set(range(4000))


def test_spark_writes_batch_and_stream_to_cluster(spark: SparkSession, cluster: JavaCluster, tmp_path: Path) -> None:
    """Spark itself: a batch, and a stream from a store directory into the cluster."""
    frame = spark.range(2000).selectExpr("'SparkWrites-batch' topic", "cast(id as string) body", "'t' tags")
    frame.write.format("rocketmq").option("nameserver", cluster.namesrv).mode("append").save()
    assert sorted(int(one.body) for one in stored(cluster, "SparkWrites-batch", 2000)) == list(range(2000))
    frame.write.format("rocketmq").mode("append").save(str(tmp_path / "source"))
    stream = spark.readStream.format("rocketmq").schema("body binary, tags string")
    stream = stream.option("startingOffsets", "earliest")
    writing = stream.load(str(tmp_path / "source")).writeStream.format("rocketmq")
    writing = writing.option("nameserver", cluster.namesrv).option("topic", "SparkWrites-stream")
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writing.start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert sorted(int(one.body) for one in stored(cluster, "SparkWrites-stream", 2000)) == list(range(2000))
