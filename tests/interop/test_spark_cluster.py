"""Spark's source over a live broker, the real one: every option gives the rows that a read of its directory gives."""

from __future__ import annotations

import json
import logging
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gantrymq import Message, Producer
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.calls import Call
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError, MQBrokerError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.data_loss import DataLossError
from spark_session import spark

from .java import Line
from .java_cluster import JavaCluster, await_dispatch, await_ends
from .spark_reads import Stream, bodies, fields, partitions, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
PREFIX = "SparkReads"
ORDERS, OTHERS, INSIDE = f"{PREFIX}-orders", f"{PREFIX}-others", f"{PREFIX}-inside"


@pytest.fixture(scope="module")
def topics(cluster: JavaCluster) -> JavaCluster:
    """The broker with messages of all kinds in it, the real producer's, compressed or not, and ours."""
    messages: list[Line | list[Line]] = [
        {"topic": ORDERS, "body": "主题" * (1 + number * 40), "tags": "abc"[number % 3], "keys": f"k{number % 5} all",
         "queueId": number % 4, "properties": {"number": str(number), "ключ": "値"}}
        for number in range(60)
    ]  # fmt: skip
    messages.append([{"topic": ORDERS, "body": f"batched {number}"} for number in range(40)])
    messages += [{"topic": OTHERS, "body": str(number)} for number in range(20)]
    cluster.send(messages, compression="ZSTD", compress_over=2000)
    with Producer(cluster.namesrv) as producer:
        for number in range(5):
            producer.send(Message(ORDERS, b"late %d" % number, delay_level=18, tags="a"))
    with Producer(cluster.namesrv, namespace="ns") as producer:
        results = [producer.send(Message(INSIDE, b"inside %d" % number)) for number in range(7)]
    await_ends(cluster.namesrv, [(spaced(one.queue), one.queue_offset + 1) for one in results])
    return cluster


def spaced(queue: MessageQueue) -> MessageQueue:
    """A queue of the namespace ``ns``, as the broker has it."""
    return MessageQueue(f"ns%{queue.topic.removeprefix('ns%')}", queue.broker_name, queue.queue_id)


def live(cluster: JavaCluster, **options: object) -> dict[str, str]:
    return {"nameserver": cluster.namesrv, **{name: str(value) for name, value in options.items()}}


def stored(cluster: JavaCluster, **options: object) -> dict[str, str]:
    given = {name: str(value) for name, value in options.items()}
    return {"path": str(cluster.store), "brokerName": "broker-a", **given}


def times(cluster: JavaCluster) -> list[int]:
    found = rows(live(cluster, subscribe=ORDERS), "store_timestamp")
    return sorted({int(row["store_timestamp"].timestamp() * 1000) for row in found})


OPTIONS: list[dict[str, object]] = [
    {"subscribe": ORDERS},
    {"subscribe": f"{ORDERS},{OTHERS}, nowhere"},
    {"subscribePattern": f"{PREFIX}-o.*"},
    {"subscribe": "SCHEDULE_TOPIC_XXXX", "tags": "a"},
    {"assign": json.dumps({ORDERS: [0, 2]})},
    {"assign": json.dumps({ORDERS: {"broker-a": [1]}})},
    {"subscribe": ORDERS, "tags": "a"},
    {"subscribe": ORDERS, "tags": "a || c", "failOnDataLoss": "false"},
    {"subscribe": ORDERS, "tags": "*"},
    {"subscribe": ORDERS, "tags": "Aa"},
    {"subscribe": ORDERS, "keys": "k1,k3"},
    {"subscribe": ORDERS, "decompress": "false"},
    {"subscribe": ORDERS, "verifyCRC": "true"},
    {"namespace": "ns", "subscribe": INSIDE},
    {"namespace": "ns", "assign": json.dumps({INSIDE: [0]})},
    {"namespace": "ns"},
    {"subscribe": ORDERS, "minPartitions": 7},
    {"subscribe": ORDERS, "maxRecordsPerPartition": 3},
    {"subscribe": ORDERS, "startingOffsets": json.dumps({ORDERS: {"0": 3, "1": -2, "2": 5, "3": 1}})},
    {"assign": json.dumps({ORDERS: [0]}), "startingOffsets": json.dumps({ORDERS: {"broker-a": {"0": 3}}}),
     "endingOffsets": json.dumps({ORDERS: {"0": 9}})},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_equal_those_of_directory(topics: JavaCluster, options: dict[str, object]) -> None:
    found = rows(live(topics, **options))
    assert found == rows(stored(topics, **options))
    assert bool(found) == (options.get("tags") != "Aa")


def test_rows_over_tls_equal_rows_without_it(topics: JavaCluster) -> None:
    """The real servers answer TLS with a certificate that they made themselves; who wants a better one goes away."""
    on = {"tls.enable": "true"}
    assert rows(live(topics, subscribe=ORDERS, **on)) == rows(live(topics, subscribe=ORDERS))
    writer = RocketMQDataSource(live(topics, topic=f"{PREFIX}-tls", **on)).writer(fields("body"), overwrite=False)
    writer.write(iter([pa.record_batch({"body": [b"x" * 5000, b"y"]})]))
    assert sorted(row["body"] for row in rows(live(topics, subscribe=f"{PREFIX}-tls"))) == [b"x" * 5000, b"y"]
    with pytest.raises(RemotingError, match="CERTIFICATE_VERIFY_FAILED"):
        rows(live(topics, subscribe=ORDERS, **on, **{"tls.client.authServer": "true"}))


def test_read_without_topics_returns_every_topic(topics: JavaCluster) -> None:
    found = rows(live(topics))
    assert {ORDERS, OTHERS, f"ns%{INSIDE}", "SCHEDULE_TOPIC_XXXX"} <= {row["topic"] for row in found}
    by_directory = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in rows(stored(topics))}
    for row in found:
        assert row == by_directory[row["topic"], row["queue_id"], row["queue_offset"]]


def test_partitions_are_limited_by_maxRecordsPerPartition(topics: JavaCluster) -> None:
    for most in (1, 3, 17):
        parts = partitions(live(topics, subscribe=ORDERS, maxRecordsPerPartition=most), "queue_offset")
        assert max(map(len, parts)) <= most
        assert sum(map(len, parts)) == 100
    assert len(partitions(live(topics, subscribe=ORDERS, minPartitions=9), "body")) >= 9
    assert len(partitions(live(topics, subscribe=ORDERS), "body")) == 1


def test_rows_by_time_equal_those_of_directory(topics: JavaCluster, rng: random.Random) -> None:
    known = times(topics)
    by_queue = {str(number): rng.choice(known) for number in range(4)}
    cases: list[dict[str, object]] = [
        {"startingTimestamp": rng.choice(known) + rng.choice([-1, 0, 1]),
         "startingOffsetsByTimestampStrategy": "latest"},
        {"endingTimestamp": rng.choice(known) + rng.choice([-1, 0, 1])},
        {"startingTimestamp": 0},
        {"endingTimestamp": 0},
        {"endingTimestamp": known[-1] + 1_000_000},
        {"startingOffsetsByTimestamp": json.dumps({ORDERS: by_queue}), "startingOffsetsByTimestampStrategy": "latest"},
        {"endingOffsetsByTimestamp": json.dumps({ORDERS: {"broker-a": by_queue}})},
    ]  # fmt: skip
    for case in cases:
        assert rows(live(topics, subscribe=ORDERS, **case)) == rows(stored(topics, subscribe=ORDERS, **case)), case
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy=latest"):
        rows(live(topics, subscribe=ORDERS, startingTimestamp=known[-1] + 1_000_000))


@pytest.mark.parametrize("answer", [-5, 0, 6, 11, 23, 24, 25, 99])
def test_answer_with_other_offset_raises(topics: JavaCluster, monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """RocketMQ 4.x answers with the nearest message, on either side."""
    one = {"subscribe": ORDERS, "endingTimestamp": times(topics)[20]}
    right = rows(stored(topics, **one))
    monkeypatch.setattr(PullClient, "search_offset", lambda *_: answer)
    assert rows(live(topics, **one)) == right


def send(cluster: JavaCluster, topic: str, *texts: str) -> None:
    with Producer(cluster.namesrv) as producer:
        await_dispatch(cluster.namesrv, [producer.send(Message(topic, text.encode())) for text in texts])


def test_queues_without_messages_need_no_word(cluster: JavaCluster) -> None:
    """A topic has as many queues as it was made with, and of most of them a store knows nothing."""
    topic = f"{PREFIX}-one-queue"
    with Producer(cluster.namesrv) as producer:
        results = [  # the first of them makes the topic
            producer.send(
                Message(topic, text.encode()), lambda queues: next(one for one in queues if one.queue_id == 2)
            )
            for text in "abcd"
        ]
    await_dispatch(cluster.namesrv, results)
    positions = json.dumps({topic: {"2": 1}})
    for options, wanted in (
        ({"startingOffsets": positions}, "bcd"),
        ({"endingOffsets": positions}, "a"),
        ({"startingTimestamp": "1"}, "abcd"),
        ({"startingOffsetsByTimestamp": positions}, "abcd"),
        ({"endingOffsetsByTimestamp": positions}, ""),
    ):
        assert bodies(rows(live(cluster, subscribe=topic, **options))) == list(wanted), options
        assert bodies(rows(stored(cluster, subscribe=topic, **options))) == list(wanted), options
    with pytest.raises(ConfigError, match="an offset for every queue that is read; 1 are missing"):
        rows(live(cluster, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}})))


def test_stream_with_limits_new_topics_and_restart_has_each_row_once(cluster: JavaCluster) -> None:
    first, later = f"{PREFIX}-stream-first", f"{PREFIX}-stream-later"
    options = live(cluster, subscribePattern=f"{PREFIX}-stream-.*", startingOffsets="earliest", maxOffsetsPerTrigger=4)
    send(cluster, first, *"abcdefghij")
    with Stream(options) as stream:
        batches = [stream.batch() for _ in range(4)]
        assert [len(batch) for batch in batches] == [4, 4, 2, 0]
        assert bodies(row for batch in batches for row in batch) == list("abcdefghij")
        send(cluster, later, "k", "l")
        send(cluster, first, "m")
        begin = stream.checkpoint
        assert bodies(stream.batch()) == ["k", "l", "m"]
    with Stream(options, checkpoint=begin) as again:  # Spark repeats a batch
        assert bodies(again.between(begin, stream.checkpoint)) == ["k", "l", "m"]
    send(cluster, later, "n")
    with Stream(options, checkpoint=stream.checkpoint) as restarted:
        assert bodies(restarted.batch()) == ["n"]
        assert restarted.batch() == []
        latest = restarted.reader.reportLatestOffset()
    assert sum(sum(queues.values()) for brokers in latest.values() for queues in brokers.values()) == 14


def test_available_now_ends_where_it_began(cluster: JavaCluster) -> None:
    topic = f"{PREFIX}-now"
    send(cluster, topic, *"abcde")
    with Stream(live(cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3)) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        send(cluster, topic, "too late")
        found = [stream.batch() for _ in range(3)]
    assert bodies(row for batch in found for row in batch) == list("abcde")
    assert found[2] == []
    with Stream(live(cluster, subscribe=topic)) as starts_late:
        assert starts_late.batch() == []
        send(cluster, topic, "new")
        assert bodies(starts_late.batch()) == ["new"]


def test_missing_offset_fails_read_or_is_logged(topics: JavaCluster, caplog: pytest.LogCaptureFixture) -> None:
    beyond = json.dumps({ORDERS: {"0": 1000, "1": 0, "2": 0, "3": 0}})
    with pytest.raises(DataLossError, match=f"topic {ORDERS}, broker broker-a, queue 0: offset 1000 was expected"):
        rows(live(topics, subscribe=ORDERS, startingOffsets=beyond))
    found = rows(live(topics, subscribe=ORDERS, startingOffsets=beyond, failOnDataLoss="false"))
    assert {row["queue_id"] for row in found} == {1, 2, 3}
    # The queue ends before the batch does: it was made anew.
    for tags in ({}, {"tags": "a"}):
        options = live(topics, assign=json.dumps({ORDERS: [0]}), **tags)
        reader = RocketMQDataSource(options).reader(fields("body"))
        (part,) = reader.partitions()
        (one,) = part.value.slices
        object.__setattr__(part.value, "slices", (one._replace(high=one.high + 5),))
        with pytest.raises(DataLossError, match=f"offsets {one.high} to {one.high + 4} are missing"):
            list(reader.read(part))
        reader._options = RocketMQDataSource(options | {"failOnDataLoss": "false"}).reader(reader._schema)._options
        with caplog.at_level(logging.WARNING):
            assert sum(batch.num_rows for batch in reader.read(part))
        assert f"offsets {one.high} to {one.high + 4} are missing" in caplog.text


def test_unreachable_cluster_raises() -> None:
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1"):
        rows({"nameserver": "127.0.0.1:1", "subscribe": "x"})


def test_broker_added_later_is_read(cluster: JavaCluster, tmp_path: Path) -> None:
    topic = f"{PREFIX}-two"
    send(cluster, topic, *"abc")
    with Stream(live(cluster, subscribe=f"{topic},TBW102", startingOffsets="earliest")) as stream:
        assert bodies(stream.batch()) == list("abc")
        with JavaCluster(tmp_path / "b", {"brokerName": "broker-b"}, namesrv=cluster.namesrv) as second:
            with Producer(cluster.namesrv) as producer, PullClient(ClientConfig(cluster.namesrv)) as client:
                new = next(one for one in client.queues("TBW102") if one.broker_name == "broker-b")
                await_dispatch(cluster.namesrv, [producer.send(Message("TBW102", text.encode()), new) for text in "de"])
            found = [(row["broker"], row["body"], row["store_host"]) for row in stream.batch()]
            assert found == [("broker-b", b"d", second.broker), ("broker-b", b"e", second.broker)]
            with pytest.raises(ConfigError, match="with the broker, for there are 2: broker-a, broker-b"):
                rows(live(cluster, subscribe="TBW102", startingOffsets='{"TBW102":{"0":0}}'))
        assert stream.batch() == []  # the queues of a broker that is gone keep their place
    send(cluster, topic, "f")
    with Stream(stream.options, checkpoint=stream.checkpoint) as restarted:
        assert bodies(restarted.batch()) == ["f"]


@pytest.mark.slow
@pytest.mark.parametrize("tags", [{}, {"tags": "t"}])
def test_retention_under_stream_is_data_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tags: dict[str, str]
) -> None:
    """The real broker deletes files in front of a query, and between a batch's planning and its reading."""
    settings = {"mappedFileSizeCommitLog": 65536, "fileReservedTime": 0, "deleteWhen": "25"}
    with JavaCluster(tmp_path / "store", settings) as own, PullClient(ClientConfig(own.namesrv)) as client:
        with Producer(own.namesrv) as producer:
            queue = producer.queues("TBW102")[0]
            results = [producer.send(Message("TBW102", b"%d" % number * 300, tags="t"), queue) for number in range(300)]
        await_dispatch(own.namesrv, results)
        options = live(own, assign=json.dumps({"TBW102": [queue.queue_id]}), startingOffsets="earliest", **tags)
        with Stream(options | {"maxOffsetsPerTrigger": "50"}) as stream:
            assert len(stream.batch()) == 50
            end = json.dumps(stream.reader.latestOffset(json.loads(stream.checkpoint), stream.limit))
            parts = stream.reader.partitions(json.loads(stream.checkpoint), json.loads(end))
            delete_files(client, own, queue)
            low = client.min_offset(queue)
            assert low > 100
            with pytest.raises(DataLossError, match="the messages at offsets 50 to 99 are missing"):
                [list(stream.reader.read(part)) for part in parts]
            with pytest.raises(DataLossError, match=f"the messages at offsets 50 to {low - 1} are missing"):
                stream.batch()
        with Stream(options | {"failOnDataLoss": "false"}, checkpoint=stream.checkpoint) as careless:
            with caplog.at_level(logging.WARNING):
                found = careless.batch()
            assert [row["queue_offset"] for row in found] == list(range(low, 300))
            assert f"the messages at offsets 50 to {low - 1} are missing" in caplog.text


def delete_files(client: PullClient, cluster: JavaCluster, queue: MessageQueue) -> None:
    delete = Call(lambda: RemotingCommand(RequestCode.DELETE_EXPIRED_COMMITLOG), lambda response, _: response.code)
    client._client.call(cluster.broker, delete)
    deadline = time.monotonic() + 150  # the broker looks for the first time a minute after it began
    while time.monotonic() < deadline and client.min_offset(queue) <= 100:
        time.sleep(0.2)


@pytest.mark.slow
def test_signed_reads_are_accepted_by_real_broker(tmp_path: Path) -> None:
    auth = {
        "authenticationEnabled": "true",
        "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider":
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
    }  # fmt: skip
    with JavaCluster(tmp_path / "store", auth=auth) as own:
        keys = {"accessKey": "rocketmq", "secretKey": "12345678"}
        writer = RocketMQDataSource(live(own, topic="TBW102", **keys)).writer(fields("body"), overwrite=False)
        writer.write(iter([pa.record_batch({"body": [b"x", b"y"]})]))
        assert bodies(rows(live(own, subscribe="TBW102", **keys))) == ["x", "y"]
        with pytest.raises(MQBrokerError):
            rows(live(own, subscribe="TBW102", **keys | {"secretKey": "wrong"}))


def test_spark_reads_and_streams(spark: SparkSession, topics: JavaCluster, tmp_path: Path) -> None:
    """Spark itself: a batch by its columns, and a stream into a store that goes on from its checkpoint."""
    frame = spark.read.format("rocketmq").options(**live(topics, subscribe=ORDERS)).load()
    assert frame.count() == 100
    assert frame.selectExpr("sum(length(body))").first()[0] == sum(
        len(row["body"]) for row in rows(stored(topics, subscribe=ORDERS))
    )
    topic = f"{PREFIX}-spark"
    for texts in ("abc", "defg"):
        send(topics, topic, *texts)
        reading = spark.readStream.format("rocketmq").schema("topic string, body binary")
        stream = reading.options(**live(topics, subscribe=topic, startingOffsets="earliest")).load()
        writing = stream.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(tmp_path / "copy"))
        assert query.awaitTermination(120)
        assert query.exception() is None
    assert bodies(rows({"path": str(tmp_path / "copy")})) == list("abcdefg")
