"""What a batch reads of a store, option by option, and what is said where an option does not fit the store."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from spark_cases import Row, expected_rows, partitions_of, rows_of

from gantrymq import Message
from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, NotAStoreError
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.plan import log_order
from gantrymq.spark.plan.queue_view import QueueView
from store_cases import NOON_MS, await_dispatch, fill, numbered, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Topic orders with two queues of ten, a message each second, and topic invoices with one of five."""
    clock = ManualClock(NOON_MS)
    with open_store(path=tmp_path / "a", clock=clock) as store:
        for number in range(10):
            store.put_batch(numbered(1, first=number) + numbered(1, first=number, queue_id=1))
            clock.advance(1000)
        store.put_batch(numbered(5, topic="invoices"))
        await_dispatch(store)
    return tmp_path / "a"


def places(path: Path | str, **options: object) -> list[tuple[str, int, int]]:
    names = ("topic", "queue_id", "queue_offset")
    return sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in rows_of(path, *names, **options))  # type: ignore[arg-type]


def orders(*ranges: tuple[int, int, int]) -> list[tuple[str, int, int]]:
    return [("orders", queue, offset) for queue, low, high in ranges for offset in range(low, high)]


def test_starting_and_ending_offsets_bound_rows(path: Path) -> None:
    chosen = {"subscribe": "orders"}
    starts, ends = '{"orders":{"0":3,"1":-2}}', '{"orders":{"a":{"0":7,"1":-1}}}'
    assert places(path, **chosen) == orders((0, 0, 10), (1, 0, 10))
    assert places(path, startingOffsets=starts, **chosen) == orders((0, 3, 10), (1, 0, 10))
    assert places(path, endingOffsets=ends, **chosen) == orders((0, 0, 7), (1, 0, 10))
    assert places(path, startingOffsets=starts, endingOffsets=ends, **chosen) == orders((0, 3, 7), (1, 0, 10))
    assert places(path, startingOffsets='{"orders":{"0":9,"1":9}}', endingOffsets=ends, **chosen) == orders((1, 9, 10))
    assert places(path, startingOffsets="EARLIEST", endingOffsets="latest", **chosen) == orders((0, 0, 10), (1, 0, 10))


def test_assign_reads_given_queues(path: Path) -> None:
    assert places(path, assign='{"orders":[1]}') == orders((1, 0, 10))
    assert len(places(path, assign='{"orders":{"a":[0]},"invoices":[0]}')) == 15
    with pytest.raises(ConfigError, match="assign='orders: 5' is not allowed: a queue that is there"):
        places(path, assign='{"orders":[1,5]}')
    with pytest.raises(ConfigError, match="a queue that is there of broker b"):
        places(path, assign='{"orders":{"b":[1]}}')


def test_timestamps_bound_rows(path: Path) -> None:
    chosen = {"subscribe": "orders"}
    third, seventh = NOON_MS + 2500, NOON_MS + 6500
    assert places(path, startingTimestamp=third, **chosen) == orders((0, 3, 10), (1, 3, 10))
    assert places(path, endingTimestamp=seventh, **chosen) == orders((0, 0, 7), (1, 0, 7))
    starts = json.dumps({"orders": {"0": third, "1": 0}})
    ends = json.dumps({"orders": {"a": {"0": seventh, "1": NOON_MS * 2}}})
    both = {"startingOffsetsByTimestamp": starts, "endingOffsetsByTimestamp": ends}
    assert places(path, **both, **chosen) == orders((0, 3, 7), (1, 0, 10))
    # A timestamp goes before timestamps for each queue, these before offsets.
    assert places(path, startingTimestamp=seventh, startingOffsets='{"x":{"0":1}}', **both, **chosen) == orders(
        (1, 7, 10)
    )


def test_timestamp_after_last_message_raises_or_starts_at_end(path: Path) -> None:
    late = {"subscribe": "orders", "startingTimestamp": NOON_MS * 2}
    with pytest.raises(ConfigError, match="a time at or before the last message of topic orders, broker a, queue 0"):
        places(path, **late)
    assert places(path, startingOffsetsByTimestampStrategy="latest", **late) == []


def declare(path: Path, text: str) -> None:
    (path / "config").mkdir()
    (path / "config" / "topics.json").write_text(text)


def test_queues_without_messages_have_offset_0(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker's configuration says which queues there are beside those that have messages."""
    starts = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":3,"1":-2,"2":0,"3":-2}}'}
    with pytest.raises(ConfigError, match="queue 2 is not there or not chosen"):
        places(path, **starts)
    topics = {name: {"topicName": name, "readQueueNums": 4, "perm": perm} for name, perm in (("orders", 6), ("no", 2))}
    declare(path, json.dumps({"topicConfigTable": topics}))
    assert places(path, **starts) == orders((0, 3, 10), (1, 0, 10))
    assert places(path, assign='{"orders":[1,3]}') == orders((1, 0, 10))
    assert places(path, subscribe="orders", startingOffsetsByTimestamp='{"orders":{"0":0,"1":0,"2":5}}') == orders(
        (0, 0, 10), (1, 0, 10)
    )
    with pytest.raises(ConfigError, match="a queue that is there"):
        places(path, assign='{"no":[1]}')
    with pytest.raises(DataLossError, match="queue 2: offset 1 was expected, but the queue ends at 0"):
        places(path, subscribe="orders", startingOffsets='{"orders":{"0":3,"1":-2,"2":1}}')
    assert "is not there" not in caplog.text
    assert places(path, subscribe="no") == []
    assert "topic no is not there; it is read as soon as it is" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable":{"orders":{"readQueueNums":2147483647}}}'])
def test_damaged_table_of_topics_does_not_stop_read(path: Path, text: str) -> None:
    declare(path, text)
    assert places(path, subscribe="orders") == orders((0, 0, 10), (1, 0, 10))


def test_invalid_offsets_are_refused(path: Path) -> None:
    for starts, says in (
        ('{"orders":{"0":3}}', "an offset for every queue that is read; 1 are missing"),
        ('{"orders":{"0":3,"1":3,"2":3}}', "topic orders, broker a, queue 2 is not there or not chosen"),
        ('{"orders":{"b":{"0":3,"1":3}}}', "topic orders, broker b, queue 0 is not there or not chosen"),
    ):
        with pytest.raises(ConfigError, match=says):
            places(path, subscribe="orders", startingOffsets=starts)
    beyond = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":3,"1":11}}'}
    with pytest.raises(DataLossError, match="queue 1: offset 11 was expected, but the queue ends at 10"):
        places(path, **beyond)
    assert places(path, failOnDataLoss="false", **beyond) == orders((0, 3, 10))


@pytest.mark.parametrize("most", [1, 7, 12, 24, 25, 1000])
def test_maxRecordsPerPartition_limits_partitions(path: Path, most: int) -> None:
    partitions = partitions_of(path, "phy_offset", maxRecordsPerPartition=most)
    assert max(map(len, partitions)) <= most
    assert len(partitions) == -(-25 // most)
    assert sum(map(len, partitions)) == 25
    both = partitions_of(path, "phy_offset", maxRecordsPerPartition=most, minPartitions=5)
    assert len(both) >= 5
    assert max(map(len, both)) <= most


def test_maxRecordsPerPartition_splits_store_of_many_topics(tmp_path: Path, rng: random.Random) -> None:
    with open_store(path=tmp_path) as store:
        fill(store, 300, rng)
    partitions = partitions_of(tmp_path, maxRecordsPerPartition=29)
    assert max(map(len, partitions)) <= 29
    assert [row for rows in partitions for row in rows] == expected_rows(tmp_path)


@pytest.fixture
def five_queues(tmp_path: Path) -> Path:
    """A thousand messages, all over five queues."""
    with open_store(path=tmp_path / "f") as store:
        for number in range(200):
            store.put_batch([Message("orders", b"%d" % number, queue_id=number * one % 5) for one in range(5)])
        await_dispatch(store)
    return tmp_path / "f"


def test_queues_are_read_once_for_however_many_partitions(five_queues: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units, read = 0, QueueView.phy_offsets

    def counted(queue: QueueView, low: int, high: int) -> NDArray[np.int64]:
        nonlocal units
        units += high - low
        return read(queue, low, high)

    monkeypatch.setattr(QueueView, "phy_offsets", counted)
    partitions = partitions_of(five_queues, "phy_offset", maxRecordsPerPartition=5)
    assert list(map(len, partitions)) == [5] * 200
    assert units <= 1000


@pytest.mark.parametrize("most", [1, 7, 40, 70, 333, 999])
@pytest.mark.parametrize("at_once", [40, 100, 2000])
def test_partitions_of_large_store_are_planned_in_steps(
    five_queues: Path, most: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_order, "_SORTED_UNITS", at_once)
    monkeypatch.setattr(log_order, "_READ_UNITS", 50)
    partitions = partitions_of(five_queues, "phy_offset", maxRecordsPerPartition=most)
    full, rest = divmod(1000, most)
    assert list(map(len, partitions)) == [most] * full + [rest] * bool(rest)


def test_tags_and_keys_filter_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        for number in range(60):
            tags = ("", "a", "b", "AaAa", "BBBB")[number % 5]
            store.put(Message("orders", b"%d" % number, tags=tags, keys=[f"k{number % 3}", "all", "k"][: number % 4]))
    everything = expected_rows(tmp_path)

    def those(**options: object) -> list[Row]:
        return rows_of(tmp_path, **options)

    assert those(tags="a") == [row for row in everything if row["tags"] == "a"]
    assert those(tags=" a || AaAa") == [row for row in everything if row["tags"] in ("a", "AaAa")]
    assert those(tags="*") == those(tags="x || *") == everything
    assert those(tags="none") == []
    assert those(keys="k1") == [row for row in everything if "k1" in row["keys"]]
    assert those(keys="k0, all", tags="b") == [
        row for row in everything if {"k0", "all"} & set(row["keys"]) and row["tags"] == "b"
    ]


def test_namespace_selects_topics(tmp_path: Path) -> None:
    topics = ("ns%orders", "ns%invoices", "%RETRY%ns%group", "orders", "other%orders", "%DLQ%other%group")
    with open_store(path=tmp_path) as store:
        for topic in topics:
            store.put(Message(topic, topic.encode()))

    def bodies(**options: object) -> list[bytes]:
        return [row["body"] for row in rows_of(tmp_path, namespace="ns", **options)]

    assert bodies() == [b"ns%orders", b"ns%invoices", b"%RETRY%ns%group"]
    assert bodies(subscribe="orders") == [b"ns%orders"]
    assert bodies(subscribePattern=".*group") == [b"%RETRY%ns%group"]
    assert bodies(subscribe="orders", startingOffsets='{"orders":{"0":1}}') == []
    shown = [row["topic"] for row in rows_of(tmp_path, "topic", namespace="ns")]
    assert shown == ["orders", "invoices", "%RETRY%group"]


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    for broker, count in (("a", 3), ("b,c", 4), ("d", 5)):
        with open_store(path=tmp_path / broker / "store") as store:
            store.put_batch(numbered(count))
    (tmp_path / "x").mkdir()
    return tmp_path


def counts(path: object, **options: object) -> dict[str, int]:
    brokers = [row["broker"] for row in rows_of(path, "broker", **options)]  # type: ignore[arg-type]
    return {broker: brokers.count(broker) for broker in brokers}


def test_glob_list_or_json_of_paths_reads_several_stores(stores: Path) -> None:
    assert counts(f"{stores}/*/store") == {"a": 3, "b,c": 4, "d": 5}
    assert counts(f"{stores}/[ad]/store") == {"a": 3, "d": 5}
    assert counts(f"{stores}/a/store, {stores}/d/store") == {"a": 3, "d": 5}
    assert counts(f"{stores}/b,c/store") == {"b,c": 4}
    assert counts(json.dumps([f"{stores}/b,c/store", f"file://{stores}/a/store"])) == {"a": 3, "b,c": 4}
    assert counts(f"file://{stores}/*/store") == {"a": 3, "b,c": 4, "d": 5}
    named = {"startingOffsets": '{"orders":{"a":{"0":1},"d":{"0":5}}}'}
    assert counts(f"{stores}/[ad]/store", **named) == {"a": 2}
    with pytest.raises(ConfigError, match="with the broker, for there are 2: a, d"):
        counts(f"{stores}/[ad]/store", startingOffsets='{"orders":{"0":1}}')
    with open_store(path=stores / "d" / "store") as store:
        store.put_batch(numbered(2, topic="late"))
    late = {"subscribe": "late", "startingOffsets": '{"late":{"0":1}}'}
    assert counts(f"{stores}/[ad]/store", **late) == {"d": 1}


def test_brokerName_names_stores(stores: Path) -> None:
    one = f"{stores}/a/store"
    assert counts(one, brokerName="mine") == {"mine": 3}
    (stores / "a" / "broker.conf").write_text("brokerName = broker-a\n")
    assert counts(one) == {"broker-a": 3}
    (stores / "a" / "store" / "broker.conf").write_text("brokerName=inside\n")
    assert counts(one) == {"inside": 3}
    (stores / "d" / "broker.conf").write_text("brokerName=inside\n")
    with pytest.raises(ConfigError, match="a name for each store"):
        counts(f"{stores}/[ad]/store")
    assert counts(f"{stores}/[ad]/store", brokerName="x,y") == {"x": 3, "y": 5}
    with pytest.raises(ConfigError, match="a name for each store; there are 2"):
        counts(f"{stores}/[ad]/store", brokerName="x")


def test_invalid_paths_are_refused(stores: Path) -> None:
    for path, says in (
        (f"{stores}/nowhere", "does not exist"),
        (f"{stores}/x", "is not a RocketMQ store"),
        (f"{stores}/*/nothing", "matches no RocketMQ store"),
    ):
        with pytest.raises(NotAStoreError, match=says):
            counts(path)
    with pytest.raises(ConfigError, match="a file system that pyarrow"):
        counts("nosuch://bucket/store")
