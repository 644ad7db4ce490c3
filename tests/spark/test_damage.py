"""Hostile and damaged bytes: what a record holds is shown as Java reads it, and what is no record is a named error."""

from __future__ import annotations

import logging
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_cases import random_record
from spark_cases import Row, damage_unit, expected_row, expected_rows, fields, partitions_of, rows_of
from stream_cases import Stream, bodies

from gantrymq import Message, MessageStore
from gantrymq.errors import CorruptRecordError, StoreError
from gantrymq.format.names import is_topic_storable
from gantrymq.format.record import MAGIC_BLANK, Layout, decode_record, encode_record, read_layout
from gantrymq.model.flags import is_consumable
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan import log_order
from gantrymq.spark.plan.batch import plan_batch
from gantrymq.spark.read import log as run_reader
from gantrymq.spark.read.batch import RocketMQReader
from gantrymq.spark.read.log import read_run
from gantrymq.spark.runs import LogPiece, LogRun
from gantrymq.spark.selection import Selection
from gantrymq.tools.locations import Location
from gantrymq.tools.rebuild import rebuild_store
from store_cases import SMALL, numbered, open_store


def rows_of_log(path: Path, raw: bytes, **options: Any) -> list[Row]:
    """The rows of a log file that holds ``raw``."""
    path.write_bytes(raw)
    reader = RocketMQReader(ReadOptions((str(path.parent),), **options), fields())
    run = LogRun((LogPiece(Location(str(path)), 0, 0, len(raw)),))
    return [row for batch in reader.read(Partition(run)) for row in batch.to_pylist(maps_as_pydicts="strict")]


class Partition:
    """What ``read`` wants of an InputPartition, whose constructor is untyped."""

    def __init__(self, value: LogRun) -> None:
        self.value = value


def plain_rows(raw: bytes) -> list[Row]:
    """The rows of a log by the reference codecs, bodies as they are stored."""
    rows, position, view = [], 0, memoryview(raw)
    while position < len(raw):
        layout = read_layout(view, position, len(raw))
        assert isinstance(layout, Layout)
        message = decode_record(view, position, layout)
        is_there = is_consumable(message.sys_flag) and is_topic_storable(message.topic) and message.queue_id >= 0
        if is_there:
            rows.append(expected_row(message, decompress=False))
        position += layout.size
    return rows


def test_records_with_extreme_values_are_read(tmp_path: Path, rng: random.Random) -> None:
    raw = bytearray()
    for _ in range(3000):
        raw += random_record(rng, len(raw))
    expected = plain_rows(bytes(raw))
    assert len(expected) > 500
    for row, wanted in zip(
        rows_of_log(tmp_path / "log", bytes(raw), decompress=False, verify_crc=False), expected, strict=True
    ):
        assert row == wanted


def test_impossible_times_are_null(tmp_path: Path) -> None:
    raw = b""
    for time_ms in (1 << 62, -(1 << 63), (1 << 63) - 1, 253_402_300_799_999, -62_135_596_800_000):
        (one,) = messages_of(random_record(random.Random(1), len(raw)))
        one = replace(one, sys_flag=0, queue_id=0, phy_offset=len(raw), born_timestamp_ms=time_ms)
        one = replace(
            one, born_host=one.born_host._replace(ip=b"\0" * 4), store_host=one.born_host._replace(ip=b"\0" * 4)
        )
        raw += encode_record(one, b"t", b"")
    assert [row["born_timestamp"] and row["born_timestamp"].year for row in rows_of_log(tmp_path / "log", raw)] == [
        None, None, None, 9999, 1,
    ]  # fmt: skip


def messages_of(raw: bytes) -> list[Any]:
    layout = read_layout(memoryview(raw), 0, len(raw))
    assert isinstance(layout, Layout)
    return [decode_record(memoryview(raw), 0, layout)]


END_OF_LOG = 38_058


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three log files, closed cleanly: a recovery begins with the last one and judges no other."""
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(330))
    assert len(list((tmp_path / "commitlog").iterdir())) == 3
    return tmp_path


def zero(raw: bytearray, at: int, size: int) -> None:
    raw[at : at + size] = bytes(size)


def wrong_magic(raw: bytearray, at: int, size: int) -> None:
    raw[at + 4] ^= 0x40


def wrong_size(raw: bytearray, at: int, size: int) -> None:
    raw[at : at + 4] = (size + 1).to_bytes(4, "big")


def no_size(raw: bytearray, at: int, size: int) -> None:
    raw[at : at + 4] = bytes(4)


def huge_size(raw: bytearray, at: int, size: int) -> None:
    raw[at : at + 4] = b"\x7f\xff\xff\xff"


def early_blank(raw: bytearray, at: int, size: int) -> None:
    raw[at + 4 : at + 8] = MAGIC_BLANK.to_bytes(4, "big")


def wrong_place(raw: bytearray, at: int, size: int) -> None:
    raw[at + 35] ^= 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (zero, "zeros"),
        (wrong_magic, "a wrong magic code"),
        (wrong_size, "half a record"),
        (no_size, "an impossible size"),
        (huge_size, "an impossible size"),
        (early_blank, "an impossible size"),
        (wrong_place, "it names another physical offset"),
    ],
)
@pytest.mark.parametrize("min_partitions", [1, 9])
@pytest.mark.parametrize("chunk_bytes", [100, 5000, run_reader.CHUNK_BYTES])
def test_damaged_record_inside_log_is_loss(
    store: Path,
    damage: Callable[[bytearray, int, int], None],
    reason: str,
    min_partitions: int,
    chunk_bytes: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_reader, "CHUNK_BYTES", chunk_bytes)
    rows = expected_rows(store)
    victim = rows[40]
    file = store / "commitlog" / f"{0:020d}"
    raw = bytearray(file.read_bytes())
    damage(raw, victim["phy_offset"], victim["size"])
    file.write_bytes(raw)
    with pytest.raises(CorruptRecordError) as raised:
        rows_of(store, minPartitions=min_partitions)
    assert str(raised.value) == f"{file}: no readable record at offset {victim['phy_offset']}: {reason}"
    with caplog.at_level(logging.WARNING):
        left = rows_of(store, minPartitions=min_partitions, failOnDataLoss=False)
    assert left == [row for row in rows if row is not victim]
    assert f"offset {victim['phy_offset']}: {reason}" in caplog.text


@pytest.fixture
def filled_slots(tmp_path: Path) -> Path:
    """Of queue 0, 50 messages in a row were damaged, and a rebuild filled their slots; queue 1 is whole."""
    with open_store(path=tmp_path) as store:
        for first in range(0, 200, 4):
            store.put_batch(numbered(4, first=first) + numbered(1, first=first, queue_id=1))
    for victim in [row for row in expected_rows(tmp_path) if row["queue_id"] == 0][40:90]:
        base = victim["phy_offset"] - victim["phy_offset"] % SMALL.mapped_file_size_commit_log
        with (tmp_path / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.seek(victim["phy_offset"] - base)
            file.write(bytes(8))
    rebuild_store(tmp_path, SMALL)
    assert [row["queue_offset"] for row in expected_rows(tmp_path) if row["queue_id"] == 0] == [
        *range(40), *range(90, 200),
    ]  # fmt: skip
    return tmp_path


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("queue", [{}, {"assign": '{"orders":[0]}'}])
def test_filler_slots_above_limit_do_not_stop_stream(
    filled_slots: Path, queue: dict[str, str], halved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if halved:
        monkeypatch.setattr(log_order, "_READ_UNITS", 10)
    options = {"failOnDataLoss": False, **queue}
    expected = [row for row in expected_rows(filled_slots) if not queue or row["queue_id"] == 0]
    rows: list[Row] = []
    with Stream(filled_slots, startingOffsets="earliest", maxOffsetsPerTrigger=10, **options) as stream:
        while (end := stream.latest()) != stream.checkpoint:
            rows += [row for part in stream.rows_between(stream.checkpoint, end) for row in part]
            stream.checkpoint = end
    assert rows == expected
    parts = partitions_of(filled_slots, maxRecordsPerPartition=10, **options)
    assert [row for part in parts for row in part] == expected
    assert max(map(len, parts)) == 10


@pytest.mark.parametrize("most", [5, 12, 30])
def test_read_from_filler_slots_has_all_later_rows(
    filled_slots: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_order, "_READ_UNITS", 10)
    expected = [row for row in expected_rows(filled_slots) if row["queue_id"] == 1 or row["queue_offset"] >= 60]
    start = '{"orders":{"0":60,"1":0}}'
    parts = partitions_of(filled_slots, startingOffsets=start, maxRecordsPerPartition=most, failOnDataLoss=False)
    assert [row for part in parts for row in part] == expected


def test_checkCrc_reports_damaged_bodies(store: Path) -> None:
    rows = expected_rows(store)
    victim = rows[40]
    file = store / "commitlog" / f"{0:020d}"
    raw = bytearray(file.read_bytes())
    at = raw.index(victim["body"], victim["phy_offset"])
    raw[at] ^= 1
    file.write_bytes(raw)
    changed = bytes(raw[at : at + len(victim["body"])])
    with pytest.raises(CorruptRecordError, match=f"offset {victim['phy_offset']}: its CRC is wrong"):
        rows_of(store)
    assert rows_of(store, failOnDataLoss=False) == [row for row in rows if row is not victim]
    unchecked = rows_of(store, verifyCRC=False)
    assert unchecked == [row | {"body": changed} if row is victim else row for row in rows]


@pytest.mark.parametrize("place", [-1, 0, 115, 7_000, 115 * 141, END_OF_LOG, 1 << 62])
@pytest.mark.parametrize("damaged", [100, 199])
def test_damaged_unit_at_edge_of_range_loses_no_row(store: Path, damaged: int, place: int) -> None:
    """The log is whole, and so is the read."""
    expected = expected_rows(store)
    assert expected[-1]["phy_offset"] + expected[-1]["size"] == END_OF_LOG
    damage_unit(store, "orders", damaged, place)
    options = {"startingOffsets": '{"orders":{"0":100}}', "endingOffsets": '{"orders":{"0":200}}'}
    assert rows_of(store, **options) == expected[100:200]
    with Stream(store, startingOffsets='{"orders":{"0":100}}') as stream:
        end = stream.checkpoint.replace(": 100}", ": 200}")
        assert [row for part in stream.rows_between(stream.checkpoint, end) for row in part] == expected[100:200]


@pytest.fixture
def two_topics(tmp_path: Path) -> Path:
    """Fifty messages of a topic, in three files of its queue, among those of another that goes on behind them."""
    with open_store(path=tmp_path) as store:
        for number in range(50):
            for topic in ("orders", "other"):
                store.put(Message(topic, b"%08d" % number, keys=["4711"]))
        store.put_batch(numbered(50, topic="other"))
    return tmp_path


@pytest.mark.parametrize(
    ("damaged", "place"), [(0, None), (0, 1 << 40), (1, None), (20, None), (40, None), (48, None), (49, 1 << 40)]
)
def test_damaged_last_unit_of_queue_loses_no_row(two_topics: Path, damaged: int, place: int | None) -> None:
    """A read of the whole topic has what the log has of it, as one of everything."""
    expected = [row for row in expected_rows(two_topics) if row["topic"] == "orders"]
    damage_unit(two_topics, "orders", damaged, place)
    assert rows_of(two_topics, subscribe="orders") == expected
    parts = partitions_of(two_topics, subscribe="orders", maxRecordsPerPartition=10)
    assert [row for part in parts for row in part] == expected
    assert rows_of(two_topics, subscribe="orders", keys="4711") == expected
    assert [row for row in rows_of(two_topics, keys="4711") if row["topic"] == "orders"] == expected


def test_zeroed_last_unit_ends_read_of_queue(two_topics: Path) -> None:
    """Nothing says that it does not: it ends there, as for any consumer, and no more of the log is read."""
    expected = [row for row in expected_rows(two_topics) if row["topic"] == "orders"]
    assert planned_bytes(two_topics, subscribe="orders") == expected[-1]["phy_offset"] + expected[-1]["size"]
    damage_unit(two_topics, "orders", 49, None)
    assert rows_of(two_topics, subscribe="orders") == expected[:-1]
    assert [row for row in rows_of(two_topics) if row["topic"] == "orders"] == expected


@pytest.mark.parametrize("moved", [1, 7, -20])
def test_damaged_unit_at_begin_of_partition_loses_no_row(store: Path, moved: int) -> None:
    expected = expected_rows(store)
    damage_unit(store, "orders", 100, expected[100]["phy_offset"] + moved)
    parts = partitions_of(store, maxRecordsPerPartition=100)
    assert [row for part in parts for row in part] == expected
    assert [len(part) for part in parts] == [101, 99, 100, 30] if moved > 0 else [100, 100, 100, 30]


def planned_bytes(store: Path, **options: str) -> int:
    runs = plan_batch(ReadOptions.parse({"path": str(store), **options}))
    return sum(piece.stop - piece.start for run in runs for piece in run.pieces)


def test_correct_units_report_no_loss(filled_slots: Path, tmp_path: Path) -> None:
    """Those of slots that stayed empty, and those of further queues of a message, are not taken for damage."""
    rows = [row for row in expected_rows(filled_slots) if row["queue_id"] == 0]
    options = {"assign": '{"orders":[0]}', "endingOffsets": '{"orders":{"0":60}}'}
    assert planned_bytes(filled_slots, **options) == rows[39]["phy_offset"] + rows[39]["size"]
    with open_store(path=tmp_path / "light") as store:
        for number in range(20):
            further = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number + 7},{number}"}
            store.put(Message("orders", b"", properties=further))
    rows = expected_rows(tmp_path / "light")
    queues = tmp_path / "light" / "consumequeue"
    shutil.copytree(queues / "orders", queues / "%LMQ%b")
    options = {"subscribe": "%LMQ%b", "endingOffsets": '{"%LMQ%b":{"0":5}}', "startingOffsets": '{"%LMQ%b":{"0":2}}'}
    assert planned_bytes(tmp_path / "light", **options) == sum(row["size"] for row in rows[2:5])


def planned(store: Path, **options: str) -> tuple[RocketMQReader, Any]:
    reader = RocketMQDataSource({"path": str(store), **options}).reader(fields("queue_offset"))
    (partition,) = reader.partitions()
    return reader, partition


def test_log_file_deleted_during_query_raises_or_is_skipped(store: Path) -> None:
    everything = rows_of(store, "queue_offset")
    strict, partition = planned(store)
    lenient, _ = planned(store, failOnDataLoss="false")
    file = store / "commitlog" / f"{0:020d}"
    in_second = sum(row["phy_offset"] < SMALL.mapped_file_size_commit_log for row in expected_rows(store))
    file.unlink()
    with pytest.raises(StoreError, match="went away"):
        list(strict.read(partition))
    left = [row for batch in lenient.read(partition) for row in batch.to_pylist()]
    assert left == everything[in_second:]


def test_undecompressible_body_raises_or_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path, housekeeping=False) as store:
        store.put(Message("orders", b"plain"))
        offsets = [store.put(Message("orders", b"not packed", sys_flag=1 | kind << 8)).phy_offset for kind in range(5)]
        store.put(Message("orders", b"behind"))
    with pytest.raises(CorruptRecordError, match=f"offset {offsets[0]}: its body cannot be decompressed"):
        rows_of(tmp_path)
    assert bodies(rows_of(tmp_path, failOnDataLoss=False)) == [b"plain", b"behind"]
    log = tmp_path / "commitlog" / f"{0:020d}"
    with Stream(tmp_path, startingOffsets="earliest", failOnDataLoss=False) as stream:
        assert bodies(stream.batch()) == [b"plain", b"behind"]
    texts = [f"continuing after: {log}: no readable record at offset {at}: " for at in offsets]
    assert all(caplog.text.count(text) == 2 for text in texts)
    assert bodies(rows_of(tmp_path, decompress=False)) == [b"plain", *[b"not packed"] * 5, b"behind"]
    assert len(rows_of(tmp_path, "topic")) == 7


@pytest.mark.parametrize("kind", [0x100, 0x200, 0x300])
def test_truncated_compressed_body_raises(golden: Callable[[str], Path], tmp_path: Path, kind: int) -> None:
    rows = expected_rows(golden("direct-mixed") / "store", decompress=False)
    packed = next(row["body"] for row in rows if row["sys_flag"] & 1 and row["sys_flag"] & 0x700 == kind)
    with MessageStore.open(tmp_path, housekeeping=False) as store:
        store.put(Message("orders", packed[:-3], sys_flag=1 | kind))
    with pytest.raises(CorruptRecordError, match="cannot be decompressed"):
        rows_of(tmp_path)


def test_body_over_limit_cannot_be_decompressed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, housekeeping=False) as store:
        for size in (10_000, 10_001):
            store.put(Message("orders", zlib.compress(bytes(size)), sys_flag=1))
    with pytest.raises(CorruptRecordError, match="more than 10000 bytes"):
        rows_of(tmp_path, maxDecompressedBodySize=10_000)
    read = rows_of(tmp_path, maxDecompressedBodySize=10_000, failOnDataLoss=False)
    assert bodies(read) == [bytes(10_000)]
    assert bodies(rows_of(tmp_path)) == [bytes(10_000), bytes(10_001)]
    assert len(rows_of(tmp_path, maxDecompressedBodySize=10_000, decompress=False)) == 2


def test_batches_are_not_written_over(store: Path) -> None:
    """Who keeps the batches of a partition keeps what they held."""
    reader, partition = planned(store)
    kept = list(reader.read(partition))
    assert [row for batch in kept for row in batch.to_pylist()] == rows_of(store, "queue_offset")


def test_arrow_batches_are_not_empty(store: Path) -> None:
    _, partition = planned(store)
    run = replace(partition.value, selection=Selection(frozenset({"nobody"})), bounds={})
    assert list(read_run(run, verify_crc=False, fail_on_data_loss=True)) == []
