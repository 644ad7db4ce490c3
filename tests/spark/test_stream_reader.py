"""Micro-batches: what a trigger reads of stores that are written, cut, recreated, and cleaned behind the reader."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark_cases import expected_rows, in_log_order
from stream_cases import Stream, bodies, offsets

from gantrymq import Message, MessageStore
from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, NotAStoreError, StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.record import SECTOR
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.log_file import OpenLogFile
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan import store_view
from gantrymq.spark.plan.boundaries import starting
from gantrymq.spark.plan.log_tail import LogTail
from gantrymq.spark.plan.store_origin import StoreOrigin
from gantrymq.tools.locations import Location
from gantrymq.tools.queue_key import QueueKey
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, await_dispatch, fill, kill_while_putting, numbered, open_store

BODY = ("topic", "queue_id", "queue_offset", "body")


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%08d" % number for number in range(first, first + count)]


def test_stream_offsets_are_valid_startingOffsets(tmp_path: Path) -> None:
    path = tmp_path / "broker-a"
    with open_store(path=path) as store:
        store.put_batch(
            numbered(5) + numbered(3, queue_id=10) + numbered(2, queue_id=2) + numbered(1, topic="invoices")
        )
    with Stream(path, *BODY) as stream:
        text = '{"invoices": {"broker-a": {"0": 1}}, "orders": {"broker-a": {"0": 5, "2": 2, "10": 3}}}'
        assert json.dumps(offsets(stream.checkpoint)) == text
    for given in (text, stream.checkpoint):
        with Stream(path, *BODY, startingOffsets=given) as again:
            assert json.dumps(offsets(again.checkpoint)) == text


def test_stream_without_startingOffsets_begins_with_new_messages(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(50))
        with Stream(tmp_path, *BODY) as stream:
            assert stream.batch() == []
            store.put_batch(numbered(7, first=50))
            assert bodies(stream.batch()) == numbers(7, 50)
            assert stream.batch() == []
            store.put_batch(numbered(900, first=57))  # over several files
            assert bodies(stream.batch()) == numbers(900, 57)


def test_repeated_read_of_batch_has_same_rows(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store, Stream(tmp_path, startingOffsets="earliest") as stream:
        fill(store, 200, random.Random(1))
        start, end = stream.checkpoint, stream.latest()
        rows = stream.rows_between(start, end)
        fill(store, 200, random.Random(2))
        assert stream.rows_between(start, end) == rows
        with Stream(tmp_path, checkpoint=start) as restarted:
            assert [row for part in restarted.rows_between(start, end) for row in part] == [
                row for part in rows for row in part
            ]


def test_all_rows_once_over_many_triggers(tmp_path: Path, rng: random.Random) -> None:
    rows = []
    with open_store(path=tmp_path) as store, Stream(tmp_path, startingOffsets="earliest", minPartitions=3) as stream:
        for _ in range(30):
            fill(store, rng.randrange(1, 40), rng)
            rows += stream.batch()
            if rng.random() < 0.2:
                stream.reader.stop()  # as a restart would: the store is opened anew
    rows += stream.batch()
    assert in_log_order(rows) == expected_rows(tmp_path)
    stream.reader.stop()


def test_trigger_reads_only_new_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    read: list[int] = []
    open_reader, read_into = store_view.open_reader, OpenLogFile.read_into
    monkeypatch.setattr(
        store_view, "open_reader", lambda place, **how: opened.append(place) or open_reader(place, **how)
    )
    with open_store(path=tmp_path, housekeeping=False) as store:
        store.put_batch(numbered(3000))
        await_dispatch(store)  # or opening may have to be tried again
        with Stream(tmp_path, *BODY) as stream:
            stream.batch()
            monkeypatch.setattr(
                OpenLogFile,
                "read_into",
                lambda self, view, position: read.append(len(view)) or read_into(self, view, position),
            )
            for number in range(20):
                store.put_batch(numbered(5, first=number * 5))
                assert offsets(stream.latest())["orders"]
    assert len(opened) == 1
    assert sum(read) < 20 * 60_000


def test_torn_record_ends_batch_until_completed(tmp_path: Path) -> None:
    """A power cut tears sectors of the disk, wherever the tail begins."""
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(3))
        begin = store.max_phy_offset
        store.put(Message("orders", b"whole", properties={"key": "v" * 1500}))
        torn = store.max_phy_offset
        store.put(Message("orders", b"torn", properties={"key": "v" * 1500}))
    directory = Location(str(tmp_path / "commitlog"))
    tail = LogTail(directory, SMALL.mapped_file_size_commit_log, begin)
    sector = torn + 2 * SECTOR - torn % SECTOR
    with (tmp_path / "commitlog" / offset_name(0)).open("r+b") as file:
        file.seek(sector)
        file.write(bytes(SECTOR))
    tail.refresh()
    assert begin % SECTOR
    assert (tail.records, tail.end) == (1, torn)


def test_unreadable_log_is_not_taken_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that finds nothing new for ever, and says nothing, would be taken for one that is idle."""
    opened, refused = os.open, ""

    def refuses(path: str, *how: Any, **more: Any) -> int:
        if refused and Path(path).name == refused:
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refuses)
    with open_store(path=tmp_path, housekeeping=False) as store, Stream(tmp_path, *BODY) as stream:
        store.put_batch(numbered(3))
        assert len(stream.batch()) == 3
        size = store.config.mapped_file_size_commit_log
        first = store.max_phy_offset // size
        while store.max_phy_offset // size == first:
            store.put_batch(numbered(1))
        refused = offset_name(store.max_phy_offset // size * size)
        with pytest.raises(StoreError, match="cannot be opened: Permission denied"):
            stream.latest()
        refused = ""
        assert stream.batch()


def test_stream_reads_topics_and_queues_added_later(tmp_path: Path) -> None:
    with open_store(path=tmp_path) as store, Stream(tmp_path, *BODY, subscribePattern="orders|in.*") as stream:
        store.put_batch(numbered(3) + numbered(2, topic="invoices", queue_id=4) + numbered(5, topic="others"))
        assert [row["topic"] for row in stream.batch()] == ["orders"] * 3 + ["invoices"] * 2
        store.put_batch(numbered(1, queue_id=9))
        assert [row["queue_id"] for row in stream.batch()] == [9]


def test_stream_reads_stores_added_later(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "broker-a") as store:
        store.put_batch(numbered(2))
        with Stream(f"{tmp_path}/broker-*", "broker", "body", startingOffsets="earliest") as stream:
            assert [row["broker"] for row in stream.batch()] == ["broker-a"] * 2
            with open_store(path=tmp_path / "broker-b") as other:
                other.put_batch(numbered(3))
                store.put_batch(numbered(1, first=2))
                rows = stream.batch()
    assert sorted(row["broker"] for row in rows) == ["broker-a"] + ["broker-b"] * 3


def test_limit_takes_first_rows_in_log_order(tmp_path: Path, rng: random.Random) -> None:
    with open_store(path=tmp_path) as store:
        fill(store, 200, rng)
        with Stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=37) as stream:
            assert stream.limit == ReadMaxRows(37)
            first = stream.batches()
            fill(store, 100, rng)
            second = stream.batches()
    expected = expected_rows(tmp_path)
    assert [row for batch in first + second for row in batch] == expected
    assert {len(batch) for batch in first[:-1] + second[:-1]} == {37}
    assert 0 < len(first[-1]) <= 37


def test_limit_over_several_stores_is_shared_by_their_backlog(tmp_path: Path) -> None:
    for broker, count in (("a", 100), ("b", 50)):
        with open_store(path=tmp_path / broker) as store:
            store.put_batch(numbered(count))
    with Stream(f"{tmp_path}/*", "broker", "body", startingOffsets="earliest", maxOffsetsPerTrigger=30) as stream:
        batches = stream.batches()
    assert [len(batch) for batch in batches] == [30] * 5
    assert [sum(row["broker"] == "a" for row in batch) for batch in batches] == [20] * 5


def test_large_limit_is_located_by_bisection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gantrymq.spark.plan import log_order

    monkeypatch.setattr(log_order, "_READ_UNITS", 10)
    with open_store(path=tmp_path) as store:
        for number in range(100):
            store.put_batch(numbered(number % 7, first=1000, queue_id=number % 3, topic=f"t{number % 2}"))
    with Stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=11) as stream:
        batches = stream.batches()
    assert {len(batch) for batch in batches[:-1]} == {11}
    assert [row for batch in batches for row in batch] == expected_rows(tmp_path)


def test_minOffsetsPerTrigger_waits_for_its_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("gantrymq.spark.read.stream.time.monotonic", lambda: now[0])
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": "30s"}
    with open_store(path=tmp_path) as store, Stream(tmp_path, *BODY, **options) as stream:
        assert stream.limit == ReadMinRows(10)
        store.put_batch(numbered(3))
        assert len(stream.batch()) == 3  # the first batch waits for nothing
        store.put_batch(numbered(9))
        assert stream.batch() == []
        now[0] += 29
        assert stream.batch() == []
        now[0] += 2
        assert len(stream.batch()) == 9
        store.put_batch(numbered(10))
        assert len(stream.batch()) == 10
        store.put_batch(numbered(1))
        stream.limit = ReadAllAvailable()  # Trigger.Once
        assert len(stream.batch()) == 1


def test_minOffsetsPerTrigger_and_maxOffsetsPerTrigger_combine(tmp_path: Path) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 20}
    with open_store(path=tmp_path) as store, Stream(tmp_path, *BODY, **options) as stream:
        assert stream.limit == ReadMaxRows(20)
        store.put_batch(numbered(48))
        assert [len(batch) for batch in stream.batches()] == [20, 20]  # the 8 that are left are too few
        store.put_batch(numbered(2))
        assert len(stream.batch()) == 10


def test_available_now_ends_where_queues_ended(tmp_path: Path) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4, "minOffsetsPerTrigger": 3}
    with open_store(path=tmp_path) as store, Stream(tmp_path, *BODY, **options) as stream:
        store.put_batch(numbered(10))
        stream.reader.prepareForTriggerAvailableNow()
        store.put_batch(numbered(10, first=10) + numbered(5, queue_id=3) + numbered(5, topic="late"))
        assert [bodies(batch) for batch in stream.batches()] == [numbers(4), numbers(4, 4), numbers(2, 8)]
        with Stream(tmp_path, *BODY, checkpoint=stream.checkpoint, **options) as later:
            later.reader.prepareForTriggerAvailableNow()
            assert sum(map(len, later.batches())) == 20


@pytest.mark.parametrize("limit", [100, 1000])
def test_available_now_reports_messages_deleted_before_its_end(
    tmp_path: Path, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    anew = 120
    for broker, count in (("broker-a", 40), ("broker-b", 300)):
        with open_store(path=tmp_path / broker) as store:
            store.put_batch(numbered(count))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
    with (
        Stream(f"{tmp_path}/*", "broker", **options) as strict,
        Stream(f"{tmp_path}/*", "broker", failOnDataLoss=False, **options) as lenient,
    ):
        for stream in (strict, lenient):
            stream.reader.prepareForTriggerAvailableNow()
        shutil.rmtree(tmp_path / "broker-b")
        with pytest.raises(NotAStoreError, match=r"has no store of broker broker-b, .*retiredBrokers=broker-b"):
            lenient.batch()
        with open_store(path=tmp_path / "broker-b") as store:
            store.put_batch(numbered(anew))
        with pytest.raises(DataLossError, match=f"broker broker-b, queue 0: .*the messages at offsets {anew} to 299"):
            strict.batches()
        rows = [row["broker"] for batch in lenient.batches() for row in batch]
        end = offsets(lenient.checkpoint)["orders"]
    assert (rows.count("broker-a"), rows.count("broker-b")) == (40, anew)
    assert end["broker-b"] == {"0": anew}
    assert f"the messages at offsets {anew} to 299 are missing" in caplog.text


def test_timestamp_is_searched_only_in_new_messages(tmp_path: Path) -> None:
    def begins(**queues: int) -> dict[QueueKey, int]:
        return {QueueKey(tmp_path.name, topic, 0): offset for topic, offset in queues.items()}

    options = ReadOptions.parse(
        {
            "path": str(tmp_path),
            "startingTimestamp": str(NOON_MS + 15_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        streaming=True,
    )
    origin = StoreOrigin(options)
    clock = ManualClock(NOON_MS)
    with open_store(path=tmp_path, clock=clock) as store:
        store.put_batch(numbered(30))
        assert starting(options, origin, origin.extents(), streaming=True) == begins(orders=30)
        for number in range(10):
            clock.advance(1000)
            store.put_batch(numbered(10, first=30 + number * 10) + numbered(1, topic="fresh"))
        assert starting(options, origin, origin.extents(), streaming=True) == begins(fresh=10, orders=130)
        for number in range(10, 20):
            clock.advance(1000)
            store.put_batch(numbered(10, first=30 + number * 10) + numbered(1, topic="fresh"))
        assert starting(options, origin, origin.extents(), streaming=True) == begins(fresh=14, orders=170)
    origin.close()


def test_progress_reports_latest_offset(tmp_path: Path) -> None:
    path = tmp_path / "b"
    with open_store(path=path) as store, Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger=2) as stream:
        store.put_batch(numbered(10))
        stream.batch()
        assert stream.reader.reportLatestOffset() == {"orders": {"b": {"0": 10}}}
        assert offsets(stream.checkpoint) == {"orders": {"b": {"0": 2}}}


def test_stream_of_killed_store_reads_recovered_rows(tmp_path: Path) -> None:
    kill_while_putting(tmp_path, 300, batch=10, seed=1)
    expected = expected_rows(tmp_path)
    with Stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=100) as stream:
        assert [row for batch in stream.batches() for row in batch] == expected
        with open_store(path=tmp_path) as store:  # recovers it
            store.put_batch(numbered(5))
        assert bodies(stream.batch()) == numbers(5)


def delete_first_files(path: Path, count: int) -> None:
    for file in sorted((path / "commitlog").iterdir())[:count]:
        file.unlink()


@pytest.mark.parametrize("restart", [False, True])
def test_retention_of_read_messages_is_no_data_loss(tmp_path: Path, restart: bool) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(400))
    with Stream(tmp_path, *BODY, startingOffsets="earliest") as stream:
        assert len(stream.batch()) == 400
        delete_first_files(tmp_path, 2)
        with open_store(path=tmp_path) as store:
            store.put_batch(numbered(5, first=400))
        if restart:
            stream.reader.stop()
        assert bodies(stream.batch()) == numbers(5, 400)


def test_retention_of_unread_messages_is_data_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(10))
    with (
        Stream(tmp_path, *BODY, startingOffsets="earliest") as strict,
        Stream(tmp_path, *BODY, startingOffsets="earliest", failOnDataLoss=False) as lenient,
    ):
        assert len(strict.batch()) == len(lenient.batch()) == 10
        with open_store(path=tmp_path) as store:
            store.put_batch(numbered(600, first=10))
        delete_first_files(tmp_path, 2)
        with pytest.raises(DataLossError) as raised:
            strict.batch()
        first = int(lenient.batch()[0]["body"])
    broker = tmp_path.name
    assert f"topic orders, broker {broker}, queue 0: the messages at offsets 10 to {first - 1} are missing" in str(
        raised.value
    )
    assert "failOnDataLoss=false continues after it" in str(raised.value)
    assert f"offsets 10 to {first - 1} are missing" in caplog.text


def test_log_file_deleted_between_plan_and_read_raises_or_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(400))
    for fail in (True, False):
        with Stream(tmp_path, *BODY, startingOffsets="earliest", failOnDataLoss=fail) as stream:
            start, end = stream.checkpoint, stream.latest()
            partitions = stream.reader.partitions(json.loads(start), json.loads(end))
            if fail:
                delete_first_files(tmp_path, 1)
                with pytest.raises(Exception, match="went away after the query was planned") as raised:
                    list(stream.reader.read(partitions[0]))
                assert f"broker {tmp_path.name}: topic orders, queue 0, offsets 0 to 399" in str(raised.value)


def test_recreated_store_is_reset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s"
    with open_store(path=path) as store:
        store.put_batch(numbered(100))
    with (
        Stream(path, *BODY) as strict,
        Stream(path, *BODY, failOnDataLoss=False) as lenient,
    ):
        shutil.rmtree(path)
        with open_store(path=path) as store:
            store.put_batch(numbered(5))
            with pytest.raises(DataLossError, match="offset 100 was expected, but the queue ends at 5"):
                strict.batch()
            assert lenient.batch() == []  # notes that the queue is read from its first message on
            assert bodies(lenient.batch()) == numbers(5)
            store.put_batch(numbered(3, first=5))
            assert bodies(lenient.batch()) == numbers(3, 5)
    assert "onQueueReset=earliest: topic orders, broker s, queue 0: " in caplog.text
    assert "reading continues at offset 0" in caplog.text


@pytest.mark.parametrize("known", ["units", "tail"])
def test_topic_recreated_after_read_is_data_loss(tmp_path: Path, known: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has come further than the old one did, so that offsets tell nothing."""
    with MessageStore.open(tmp_path, SMALL, given=GEOMETRY_KEYS, housekeeping=False) as store:
        store.put_batch(numbered(20, topic="others") + numbered(3 if known == "units" else 1))
        with (
            Stream(tmp_path, *BODY, subscribe="orders") as strict,
            Stream(tmp_path, *BODY, subscribe="orders", failOnDataLoss=False) as lenient,
            Stream(tmp_path, *BODY, subscribe="others") as elsewhere,
        ):
            if known == "tail":
                store.put_batch(numbered(2, first=1))
                assert bodies(strict.batch()) == bodies(lenient.batch()) == numbers(2, 1)
            assert store.delete_topic("orders").queues == 1
            store.put_batch(numbered(5, first=100) + numbered(1, first=20, topic="others"))
            await_dispatch(store)
            says = f"topic orders, broker {tmp_path.name}, queue 0: .*the messages before offset 3 are not those"
            with pytest.raises(DataLossError, match=says):
                strict.batch()
            assert lenient.batch() == []  # notes that the queue is read from its first message on
            assert bodies(lenient.batch()) == numbers(5, 100)
            assert bodies(elsewhere.batch()) == numbers(1, 20)
            store.put_batch(numbered(1, first=105))
            assert bodies(lenient.batch()) == numbers(1, 105)
    assert len(re.findall(says, caplog.text)) == 1


def test_recreated_store_with_more_messages_is_reset(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_store(path=path) as store:
        store.put_batch(numbered(10) + numbered(4, topic="others"))
    with Stream(path, *BODY) as stream:
        shutil.rmtree(path)
        with open_store(path=path) as store:
            store.put_batch(numbered(1, topic="first") + numbered(20) + numbered(4, topic="others"))
            with pytest.raises(DataLossError, match=r"orders, .* before offset 10 .*; .*others, .* before offset 4 "):
                stream.batch()


def test_repeated_batch_with_deleted_end_is_loss(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_store(path=path) as store:
        store.put_batch(numbered(10))
    start, end = (json.dumps({"orders": {"s": {"0": at}}}) for at in (3, 12))
    with (
        Stream(path, *BODY, checkpoint=start) as stream,
        pytest.raises(DataLossError, match="offset 12 was expected, but the queue ends at 10"),
    ):
        stream.rows_between(start, end)


@pytest.mark.parametrize("gone", ["b/consumequeue/orders/1", "b/consumequeue/orders"])
def test_planned_batch_of_deleted_queue_is_loss(tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture) -> None:
    """The offsets of the batch are noted, then the driver dies, and it is read by the next one."""
    for broker in "ab":
        with open_store(path=tmp_path / broker) as store:
            store.put_batch(numbered(5) + numbered(50, queue_id=1) + numbered(2, topic="others"))
    path = f"{tmp_path}/*"
    with Stream(path, *BODY, startingOffsets="earliest") as stream:
        start, end = stream.checkpoint, stream.latest()
    shutil.rmtree(tmp_path / gone)
    says = "topic orders, broker b, queue 1: the messages at offsets 0 to 49 are missing"
    with Stream(path, *BODY, checkpoint=start) as strict, pytest.raises(DataLossError, match=says):
        strict.rows_between(start, end)
    with Stream(path, *BODY, checkpoint=start, failOnDataLoss=False) as lenient:
        rows = [row for part in lenient.rows_between(start, end) for row in part]
        assert lenient.rows_between(end, end) == []
    left = {"b/consumequeue/orders/1": 7, "b/consumequeue/orders": 2}[gone]
    assert len(rows) == 57 + left
    assert says in caplog.text


def test_topic_removed_from_query_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_store(path=path) as store:
        store.put_batch(numbered(5) + numbered(2, topic="others"))
    with Stream(path, *BODY, startingOffsets="earliest") as stream:
        start, end = stream.checkpoint, stream.latest()
    with Stream(path, *BODY, checkpoint=start, subscribe="others") as again:
        assert [bodies(part) for part in again.rows_between(start, end)] == [numbers(2)]


def test_startingOffsets_selects_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with open_store(path=path) as store:
        store.put_batch(numbered(10) + numbered(10, queue_id=1))
    with Stream(path, *BODY, startingOffsets='{"orders":{"0":7,"1":-1}}') as stream:
        assert bodies(stream.batch()) == numbers(3, 7)
    with Stream(path, *BODY, startingOffsets='{"orders":{"s":{"0":-2,"1":9}}}') as stream:
        assert len(stream.batch()) == 11
    with pytest.raises(ConfigError, match="an offset for every queue that is read; 1 are missing"):
        Stream(path, startingOffsets='{"orders":{"0":7}}')
    with pytest.raises(ConfigError, match="topic orders, broker s, queue 5 is not there or not chosen"):
        Stream(path, startingOffsets='{"orders":{"0":7,"1":1,"5":0}}')
    with pytest.raises(DataLossError, match="offset 11 was expected, but the queue ends at 10"):
        Stream(path, startingOffsets='{"orders":{"0":11,"1":1}}')


def test_messages_of_initially_empty_store_are_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, housekeeping=False) as store, Stream(tmp_path, "body") as stream:
        assert stream.batch() == []
        assert stream.checkpoint == "{}"
        store.put(Message("orders", b"x" * 3_000_000))
        store.put(Message("orders", b"y"))
        assert [len(row["body"]) for row in stream.batch()] == [3_000_000, 1]


def test_tail_above_size_limit_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_view, "_MAX_TAIL_RECORDS", 50)
    with open_store(path=tmp_path) as store, Stream(tmp_path, "body", startingOffsets="earliest") as stream:
        for number in range(10):
            store.put_batch(numbered(20, first=20 * number))
            assert bodies(stream.batch()) == numbers(20, 20 * number)


def test_loss_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gantrymq.spark")
    with open_store(path=tmp_path) as store, Stream(tmp_path, "body") as stream:
        store.put_batch(numbered(5))
        stream.batch()
    assert "5 messages wait in 1 queues" in caplog.text
