"""An export has every message that a reader sees, with Spark's columns, in files that readers of Hive's layout know."""

from __future__ import annotations

import base64
import csv
import json
import random
import sys
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gantrymq.clock import ManualClock
from gantrymq.errors import ConfigError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.paths import StorePaths
from gantrymq.tools import arrow as bodies
from gantrymq.tools import export_files as export_parts
from gantrymq.tools.arrow import MESSAGE_SCHEMA
from gantrymq.tools.export import SUCCESS, export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.export_plan import ExportSelection, StoreSurvey, plan_export
from gantrymq.tools.salvage import salvage_store
from golden_stores import NAMES, unpack
from store_cases import NOON_MS, SMALL, StoreReader, await_dispatch, dump, fill, numbered, open_store, tree

DAY_MS = 86_400_000
Row = dict[str, Any]


def rows_of(out: Path) -> dict[int, Row]:
    """Every row of a Parquet export by physical offset."""
    rows = [row for path in sorted(out.glob("*/*/*.parquet")) for row in read_parquet(path)]
    assert len({row["phy_offset"] for row in rows}) == len(rows)
    return {row["phy_offset"]: row for row in rows}


def read_parquet(path: Path) -> list[Row]:
    rows: list[Row] = pq.ParquetFile(path).read().to_pylist(maps_as_pydicts="strict")
    return rows


@pytest.fixture
def store(tmp_path: Path, rng: random.Random) -> Path:
    """Odd messages of five topics, and of three days."""
    path, clock = tmp_path / "store", ManualClock(NOON_MS)
    with open_store(RealFileSystem(), path, clock=clock) as opened:
        for _ in range(3):
            fill(opened, 60, rng)
            await_dispatch(opened)
            clock.advance(DAY_MS)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_export_of_golden_store_equals_dump_of_its_salvage(name: str, tmp_path: Path) -> None:
    store, out = unpack(name, tmp_path) / "store", tmp_path / "out"
    before = tree(store)
    report = export_store(store, out, decompress=False)
    assert tree(store) == before
    salvage_store(store, tmp_path / "salvaged")
    with StoreReader.open(tmp_path / "salvaged") as reader:
        lines = {line["phyOffset"]: line for line in dump(reader) if line["kind"] == "message"}
    rows = rows_of(out)
    assert rows.keys() == lines.keys()
    for offset, row in rows.items():
        line = lines[offset]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            line["topic"],
            line["queueId"],
            line["queueOffset"],
        )
        assert (row["msg_id"], row["properties"]) == (line["msgId"], line["properties"])
        assert len(row["body"]) == line["bodyLength"]
        assert row["store_timestamp"].timestamp() * 1000 == pytest.approx(line["storeTimestamp"])
    assert report.rows == len(lines)
    assert (out / SUCCESS).exists()


def test_files_stand_by_topic_and_day(store: Path, tmp_path: Path) -> None:
    report = export_store(store, tmp_path / "out", config=SMALL)
    for path in (tmp_path / "out").glob("*/*/*"):
        topic, day = path.parent.parent.name, path.parent.name
        for row in read_parquet(path):
            assert topic == f"topic_dir={quote(row['topic'], safe='')}"
            assert day == f"day={row['store_timestamp']:%Y-%m-%d}"
    assert len(list((tmp_path / "out").glob("topic_dir=orders/day=*"))) == 3
    table = ds.dataset(tmp_path / "out", partitioning=ds.HivePartitioning.discover(infer_dictionary=False))
    assert table.count_rows() == report.rows == len(rows_of(tmp_path / "out"))


def test_exported_tree_is_readable_by_pandas_and_pyarrow(store: Path, tmp_path: Path) -> None:
    report = export_store(store, tmp_path / "out", config=SMALL)
    table, frame = pq.read_table(tmp_path / "out"), pd.read_parquet(tmp_path / "out")
    topics = sorted(topic for topic, count in report.topics.items() for _ in range(count))
    assert sorted(table["topic"].to_pylist()) == sorted(frame.topic) == topics
    whole = rows_of(tmp_path / "out")
    assert sorted(table["phy_offset"].to_pylist()) == sorted(frame.phy_offset) == sorted(whole)
    assert set(frame.columns) == {*MESSAGE_SCHEMA.names, "topic_dir", "day"}


LONG_TOPICS = ["t" * 255, "%RETRY%" + "%" * 240, "%DLQ%" + "主题" * 40, "a" * 245]


def test_topics_with_names_longer_than_directory_limit_are_exported(tmp_path: Path) -> None:
    topics = [*LONG_TOPICS, "t" * 254 + "u"]
    with open_store(RealFileSystem(), tmp_path / "store", clock=ManualClock(NOON_MS)) as opened:
        for topic in topics:
            assert opened.put(Message(topic, topic.encode())).status is PutMessageStatus.PUT_OK
    report = export_store(tmp_path / "store", tmp_path / "out", config=SMALL)
    assert report.topics == dict.fromkeys(topics, 1)
    rows = {row["topic"]: row["body"] for row in rows_of(tmp_path / "out").values()}
    assert rows == {topic: topic.encode() for topic in topics}
    names = sorted(path.name for path in (tmp_path / "out").glob("topic_dir=*"))
    assert len(names) == len(topics)
    assert max(map(len, names)) == 255
    assert f"topic_dir={'a' * 245}" in names  # the longest that is whole
    assert f"topic_dir={'t' * 228}~{sha256(b't' * 255).hexdigest()[:16]}" in names
    # Cut between two characters, so that readers of Hive's layout can decode them.
    assert [unquote(name, errors="strict")[:12] for name in names if "%E4" in name] == ["topic_dir=%D"]
    table = ds.dataset(tmp_path / "out", partitioning=ds.HivePartitioning.discover(infer_dictionary=False))
    assert table.count_rows() == len(topics)


def test_exported_rows_are_in_log_order(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # So little is kept waiting that the largest topic has to go again and again, and into many files.
    monkeypatch.setattr(export_parts, "_WAITING_BYTES", 4_000)
    monkeypatch.setattr(export_parts, "_WORTH_WRITING_BYTES", 3_000)
    monkeypatch.setattr(export_parts, "_LARGEST_FILE_BYTES", 6_000)
    report = export_store(store, tmp_path / "out", config=SMALL)
    assert report.files > 15
    for directory in (tmp_path / "out").glob("*/*"):
        offsets = [row["phy_offset"] for path in sorted(directory.iterdir()) for row in read_parquet(path)]
        assert offsets == sorted(offsets)
    assert len(rows_of(tmp_path / "out")) == report.rows


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (ExportSelection(frozenset({"orders"})), lambda row: row["topic"] == "orders"),
        (ExportSelection(queue_id=1), lambda row: row["queue_id"] == 1),
        (
            ExportSelection(frozenset({"orders"}), 0, from_offset=3, to_offset=9),
            lambda row: (row["topic"], row["queue_id"]) == ("orders", 0) and 3 <= row["queue_offset"] < 9,
        ),
        (
            ExportSelection(begin_ms=NOON_MS + DAY_MS, end_ms=NOON_MS + 2 * DAY_MS),
            lambda row: NOON_MS + DAY_MS <= row["store_timestamp"].timestamp() * 1000 < NOON_MS + 2 * DAY_MS,
        ),
        (ExportSelection(begin_ms=NOON_MS + 5 * DAY_MS), lambda row: False),
        (ExportSelection(frozenset({"orders"}), 0, from_offset=10_000), lambda row: False),
    ],
)
def test_export_has_only_selected_messages(
    store: Path, tmp_path: Path, selection: ExportSelection, wanted: Any
) -> None:
    export_store(store, tmp_path / "all", config=SMALL)
    export_store(store, tmp_path / "some", selection=selection, config=SMALL)
    every = rows_of(tmp_path / "all")
    assert rows_of(tmp_path / "some") == {offset: row for offset, row in every.items() if wanted(row)}


@pytest.mark.parametrize(("wrong", "other"), [(0, 200), (-1, 100)])
def test_unit_pointing_to_other_record_is_not_used(tmp_path: Path, wrong: int, other: int) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        for number in range(300):
            assert opened.put(Message("orders", bytes(4000))).queue_offset == number
        await_dispatch(opened)
    files = sorted((store / "consumequeue/orders/0").iterdir())
    units = np.concatenate([np.fromfile(path, "V20") for path in files])
    units[:300][wrong] = units[other]
    for path, part in zip(files, np.split(units, len(files)), strict=True):
        part.tofile(path)
    selection = ExportSelection(frozenset({"orders"}))
    assert export_store(store, tmp_path / "out", selection=selection, config=SMALL).rows == 300


HOUR_MS = 3_600_000
_STORE_TIMESTAMP_AT = 56  # in a record whose producer has an IPv4 address


@pytest.mark.parametrize(
    "hours", [(0, 1), (1, 0), (0, -1), (0, 1, 0), (0, -1, 0), (0, 100, 0), (100, 0), (0, 0, 1, 0, 0)], ids=str
)
def test_store_times_going_back_are_exported_by_day(tmp_path: Path, hours: tuple[int, ...]) -> None:
    """The clock is so many hours ahead for three files and a bit each: a broker was started, then it was put right."""
    store, clock = tmp_path / "store", ManualClock(NOON_MS)
    with open_store(RealFileSystem(), store, clock=clock) as opened:
        places = [opened.put(Message("orders", bytes(4000))).phy_offset for _ in range(11 * len(hours))]
        log = opened.config.mapped_file_size_commit_log
    times = [NOON_MS + number + hours[number // 11] * HOUR_MS for number in range(len(places))]
    for place, time_ms in zip(places, times, strict=True):
        with (store / "commitlog" / f"{place - place % log:020d}").open("r+b") as file:
            file.seek(place % log + _STORE_TIMESTAMP_AT)
            file.write(time_ms.to_bytes(8))
    last = NOON_MS + len(places)
    for begin, end in ((NOON_MS, None), (None, NOON_MS), (NOON_MS, last), (None, last), (last, None)):
        out = tmp_path / f"{begin}-{end}"
        selection = ExportSelection(begin_ms=begin, end_ms=end)
        assert export_store(store, out, selection=selection, config=SMALL).lost == []
        found = [row["store_timestamp"].timestamp() * 1000 for _, row in sorted(rows_of(out).items())]
        assert found == [time_ms for time_ms in times if (begin or 0) <= time_ms < (end or 2 * NOON_MS)]


def test_files_of_other_days_are_not_read(store: Path) -> None:
    """The first record is of NOON_MS, the last of two days later."""
    every = [int(path.name) for path in sorted((store / "commitlog").iterdir())]

    def planned(begin_ms: int | None, end_ms: int | None) -> list[int]:
        selection = ExportSelection(begin_ms=begin_ms, end_ms=end_ms)
        plan = plan_export(StoreSurvey(RealFileSystem(), StorePaths(store), SMALL, ()), selection, decompress=True)
        return [file.base for file in plan.files]

    assert planned(None, NOON_MS - DAY_MS) == []
    head, tail = planned(None, NOON_MS - DAY_MS + 1), planned(NOON_MS + 3 * DAY_MS, None)
    assert every[: len(head)] == head
    assert every[-len(tail) :] == tail
    assert max(len(head), len(tail)) < len(every)
    # Nothing says when the last record was stored.
    assert planned(NOON_MS + 30 * DAY_MS, None) == every[-2:]


def test_json_lines_and_csv_say_the_same(store: Path, tmp_path: Path) -> None:
    for kind in ExportFormat:
        export_store(store, tmp_path / kind, kind, config=SMALL)
    expected = rows_of(tmp_path / "parquet")
    lines = [json.loads(line) for path in (tmp_path / "jsonl").glob("*/*/*") for line in path.read_bytes().splitlines()]
    assert {line["phy_offset"]: line for line in lines}.keys() == expected.keys()
    csv.field_size_limit(sys.maxsize)
    table = []
    for path in (tmp_path / "csv").glob("*/*/*"):
        with path.open(newline="", encoding="utf-8") as file:
            table += list(csv.DictReader(file))
    assert {int(row["phy_offset"]) for row in table} == expected.keys()
    for row in [*lines, *table]:
        original = expected[int(row["phy_offset"])]
        body = base64.b64decode(row["body_base64"]) if row.get("body_base64") else (row["body"] or "").encode()
        assert body == original["body"]
        read = (
            row
            if isinstance(row["keys"], list)
            else {**row, **{name: json.loads(row[name]) for name in ("keys", "properties")}}
        )
        assert (read["keys"], read["properties"]) == (original["keys"], original["properties"])
        assert int(row["queue_offset"]) == original["queue_offset"]
    assert {tuple(sorted(line)) for line in lines} == {tuple(sorted(table[0]))}
    assert {(line["body"] is None) != (line["body_base64"] is None) for line in lines} == {True}
    times = [{int(row["phy_offset"]): row["store_timestamp"] for row in rows} for rows in (lines, table)]
    assert times[0] == times[1]
    moment = datetime.fromisoformat(lines[0]["store_timestamp"])
    assert moment.astimezone(UTC) == expected[lines[0]["phy_offset"]]["store_timestamp"]


FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 and 9999


def test_born_times_outside_date_range_are_exported(tmp_path: Path) -> None:
    times = [FIRST_MS - 1, FIRST_MS, -1, NOON_MS + 7, LAST_MS, LAST_MS + 1, 1_700_000_000_000_000, -(1 << 62)]
    with open_store(RealFileSystem(), tmp_path / "store", clock=ManualClock(NOON_MS)) as opened:
        for time_ms in times:
            opened.put(Message("orders", b"", born_timestamp_ms=time_ms))
    for kind in ExportFormat:
        assert export_store(tmp_path / "store", tmp_path / kind, kind, config=SMALL).rows == len(times)
    (parquet,) = (tmp_path / "parquet").glob("*/*/*")
    born = pq.ParquetFile(parquet).read()["born_timestamp"].cast("int64").to_pylist()
    assert born == [*(time_ms * 1000 for time_ms in times[:-1]), None]
    (jsonl,), (table,) = ((tmp_path / kind).glob("*/*/*") for kind in ("jsonl", "csv"))
    rows = [json.loads(line)["born_timestamp"] for line in jsonl.read_bytes().splitlines()]
    assert rows == [
        *(None, "0001-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999000+00:00", "2023-11-14T22:13:20.007000+00:00"),
        *("9999-12-31T23:59:59.999000+00:00", None, None, None),
    ]
    with table.open(newline="", encoding="utf-8") as file:
        assert [row["born_timestamp"] or None for row in csv.DictReader(file)] == rows


def test_compressed_bodies_are_decompressed(tmp_path: Path) -> None:
    store = unpack("broker-features", tmp_path) / "store"
    export_store(store, tmp_path / "out")
    export_store(store, tmp_path / "packed", decompress=False)
    plain, packed = rows_of(tmp_path / "out"), rows_of(tmp_path / "packed")
    differing = [offset for offset in plain if plain[offset]["body"] != packed[offset]["body"]]
    assert differing == [offset for offset, row in plain.items() if row["sys_flag"] & 1]
    assert differing


def test_highly_compressed_bodies_are_exported_in_bounded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_PART_BYTES", 1 << 20)
    sizes, add = list[int](), export_parts.ExportParts.add

    def note_size(parts: export_parts.ExportParts, topic: str, day: int, rows: pa.RecordBatch) -> None:
        sizes.append(rows.nbytes)
        add(parts, topic, day, rows)

    monkeypatch.setattr(export_parts.ExportParts, "add", note_size)
    stored: list[bytes] = []
    store, config = tmp_path / "store", replace(SMALL, mapped_file_size_commit_log=1 << 20)
    broken = (0, 7, 8, 399)
    with open_store(RealFileSystem(), store, config, clock=ManualClock(NOON_MS)) as opened:
        for number in range(400):
            body = b"%08d" % number * (1 << 13)  # 64 KiB, of which zlib makes some hundred bytes
            packed = zlib.compress(body)[number in broken :] if number % 5 else body[:100]
            opened.put(Message("orders", packed, sys_flag=1 if number % 5 or number == 0 else 0))
            stored += [] if number in broken else [body if number % 5 else packed]
    report = export_store(store, tmp_path / "out", config=config)
    assert [row["body"] for _, row in sorted(rows_of(tmp_path / "out").items())] == stored
    assert len(report.undecodable) == len(broken)
    assert len(sizes) > 10
    assert max(sizes) < 1_500_000


def test_body_over_limit_is_omitted_and_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store, SMALL) as opened:
        large = opened.put(Message("orders", zlib.compress(bytes(10_001)), sys_flag=1))
        opened.put(Message("orders", zlib.compress(bytes(10_000)), sys_flag=1))
        opened.put(Message("orders", bytes(2_000)))
    limited = replace(SMALL, max_decompressed_body_size_bytes=10_000)
    report = export_store(store, tmp_path / "out", config=limited)
    assert [len(row["body"]) for row in rows_of(tmp_path / "out").values()] == [10_000, 2_000]
    [text] = report.undecodable
    assert f"offset {large.phy_offset}: its body cannot be decompressed: it has more than 10000 bytes" in text
    assert export_store(store, tmp_path / "all", config=SMALL).rows == 3


def test_damage_is_passed_over_and_told(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(RealFileSystem(), store) as opened:
        results = [opened.put(message) for message in numbered(300)]
        packed = opened.put(Message("orders", b"no zlib", sys_flag=1))
        for message in numbered(200):
            opened.put(message)
        await_dispatch(opened)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(results[40].phy_offset)
        file.write(b"\xff" * 8)
    report = export_store(store, tmp_path / "out", config=SMALL)
    assert [(one.start, one.end) for one in report.lost] == [(results[40].phy_offset, results[40].end_offset)]
    assert len(report.undecodable) == 1
    assert rows_of(tmp_path / "out").keys().isdisjoint({results[40].phy_offset, packed.phy_offset})
    assert report.rows == 499


def test_failed_export_leaves_nothing(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_parts, "_WORTH_WRITING_BYTES", 1)
    commit, committed = export_parts.ExportFile.commit, []

    def fail_once_some_are_there(file: export_parts.ExportFile) -> int:
        if len(committed) == 3:
            raise OSError(28, "No space left on device")
        committed.append(file.path)
        return commit(file)

    monkeypatch.setattr(export_parts.ExportFile, "commit", fail_once_some_are_there)
    with pytest.raises(OSError, match="No space"):
        export_store(store, tmp_path / "out", config=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    # So the next try needs nobody's hand.
    monkeypatch.undo()
    assert export_store(store, tmp_path / "out", config=SMALL).rows > 0


def test_export_refuses_unusable_target(store: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(StoreError, match="not an empty directory"):
        export_store(store, tmp_path / "full")
    (tmp_path / "link").symlink_to(store / "index")
    for out in (store / "index/out", tmp_path / "link/out", store / "../store/out"):
        with pytest.raises(StoreError, match="only read"):
            export_store(store, out)
    with pytest.raises(ConfigError, match="one --topic and one --queue"):
        ExportSelection(from_offset=3)
    with pytest.raises(ConfigError, match="before --end"):
        ExportSelection(begin_ms=5, end_ms=5)
    report = export_store(store, tmp_path / "out", selection=ExportSelection(frozenset({"nowhere"})), config=SMALL)
    assert (report.rows, report.missing_topics) == (0, ["nowhere"])


def test_export_columns_equal_those_of_spark() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    from gantrymq.spark.schema import COLUMNS

    schema = types.StructType([types.StructField(one.name, one.type, one.nullable) for one in COLUMNS])
    assert pandas_types.to_arrow_schema(schema, timezone="UTC").equals(MESSAGE_SCHEMA)
