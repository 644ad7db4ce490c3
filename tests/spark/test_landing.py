"""Landings on Spark have the rows of the local engine, and the two take turns at one table."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from gantrymq import AdminClient, EmbeddedBroker, Producer
from gantrymq.errors import ConfigError, StoreError
from gantrymq.model.message import Message
from gantrymq.spark import land as land_on_spark
from gantrymq.spark.landing.engine import SparkEngine
from gantrymq.tables.bodies.body_format import DecodedBodies
from gantrymq.tables.bodies.plain import RawBodies
from gantrymq.tables.errors import AnotherLanderError
from gantrymq.tables.landing import DEFAULT_COMMIT_ROWS, Landing, Summary
from gantrymq.tables.local.engine import LocalEngine
from gantrymq.tables.local.target import TableFormat
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.sources import TableSources, cluster, log_look
from gantrymq.tables.sources.stores import StoreMessages
from golden_stores import unpack
from store_cases import tree
from tables.landing_cases import ALL, FORMATS, Lake, land, landing_of, line, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = LandOptions(pattern=".*", body="text")
SIDES = ("", "__dead", "__audit")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests are small, and tasks are to be several."""
    monkeypatch.setattr(log_look, "CUT_BYTES", 20_000)


def on_spark(
    spark: SparkSession,
    lake: Lake,
    store: Path,
    options: LandOptions = ALL,
    commit_rows: int = DEFAULT_COMMIT_ROWS,
) -> Landing:
    """A landing on Spark that has not begun."""
    engine = SparkEngine(lake.target.open(), spark)
    return Landing(engine, lambda choice: StoreMessages([str(store)], choice), options, commit_rows)


def landed(landing: Landing) -> Summary:
    assert all(commit.version for commit in landing.run_pass())
    return landing.summary


def contents(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """The rows of a table and of those beside it, in one order."""
    return {side: sorted(lake.rows(side), key=repr) for side in SIDES}


def columns(lake: Lake) -> dict[str, str]:
    """The types of the columns. delta-rs moves a partition's column when it adds others."""
    table = lake.read()
    assert table is not None
    return {field.name: str(field.type).replace("large_", "") for field in table.schema}


def data_files(root: Path) -> int:
    """The files with rows, committed or not."""
    return sum(name.endswith((".parquet", ".staged")) and "/metadata/" not in name for name in tree(root))


@pytest.mark.parametrize(
    ("name", "kind", "partition_by"),
    [
        ("bad-crc", TableFormat.DELTA, "day"),
        ("lost-queues", TableFormat.DELTA, "topic,queue_id,day"),
        ("torn-tail", TableFormat.PARQUET, "topic,tags"),
        ("direct-killed", TableFormat.ICEBERG, "topic,tags,hour"),
        pytest.param("retention", TableFormat.ICEBERG, "day", marks=pytest.mark.slow),
        pytest.param("broker-4.9.8", TableFormat.DELTA, "day", marks=pytest.mark.slow),
    ],
)
def test_landing_on_spark_has_rows_of_local_engine(
    name: str, kind: TableFormat, partition_by: str, tmp_path: Path, spark: SparkSession
) -> None:
    options = replace(TEXT, partition_by=PartitionBy.parse(partition_by))
    store = unpack(name, tmp_path) / "store"
    here, there = Lake(tmp_path / "here", kind), Lake(tmp_path / "there", kind)
    _, local = land(here, store, options, 700)
    summary = landed(on_spark(spark, there, store, options, 700))
    assert summary.as_json() == local.as_json()
    assert summary.totals.rows > (180 if name == "broker-4.9.8" else 400)
    assert contents(there) == contents(here)
    assert columns(there) == columns(here)
    assert land(there, store, LandOptions())[1].commits == 0
    assert not [name for name in tree(there.root) if "seen-by-executors" in name]


@pytest.mark.parametrize("kind", FORMATS)
def test_engines_take_turns_at_one_table(kind: TableFormat, tmp_path: Path, spark: SparkSession) -> None:
    store = unpack("bad-crc", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", kind), Lake(tmp_path / "lake", kind)
    _, once = land(whole, store, TEXT)
    for number in range(6):
        landing = on_spark(spark, lake, store, TEXT, 250) if number % 2 else landing_of(lake, store, TEXT, 250)
        if next(landing.run_pass(), None) is None:
            break
    assert number == 5
    landed(landing_of(lake, store, LandOptions()))
    assert contents(lake) == contents(whole)
    assert landing_of(lake, store, LandOptions())._opened()
    assert lake.target.open().head().state.totals == once.totals  # type: ignore[union-attr]


def test_frozen_spark_landing_leaves_nothing_on_waking(tmp_path: Path, spark: SparkSession) -> None:
    store = unpack("direct-propcrc", tmp_path) / "store"
    for kind in FORMATS:
        lake = Lake(tmp_path / kind.value, kind)
        frozen = on_spark(spark, lake, store, commit_rows=300).run_pass()
        next(frozen)
        land(lake, store, commit_rows=300)
        messages, files = lake.messages(), data_files(lake.root)
        with pytest.raises(AnotherLanderError, match="another `table land`"):
            next(frozen)
        assert lake.messages() == messages
        assert len(set(messages)) == len(messages)
        assert data_files(lake.root) == files


def test_local_landing_waking_after_spark_landing_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    store = unpack("direct-propcrc", tmp_path) / "store"
    lake = Lake(tmp_path / "lake", TableFormat.DELTA)
    frozen = landing_of(lake, store, commit_rows=300).run_pass()
    next(frozen)
    landed(on_spark(spark, lake, store))
    messages, files = lake.messages(), data_files(lake.root)
    with pytest.raises(AnotherLanderError):
        next(frozen)
    assert lake.messages() == messages
    assert data_files(lake.root) == files


def bodies() -> Iterator[bytes]:
    """JSON whose fields become more: some in tasks far apart, with misfits in between."""
    for number in range(3000):
        fields: dict[str, Any] = {"id": number}
        if number > 800:
            fields["price"] = number / 4
        if number > 1500:
            fields["user"] = {"name": f"n{number}"}
        if number > 2500:
            fields["user"]["age"] = number % 90
        if number % 700 == 650:
            fields["id"] = "a text"
        yield json.dumps(fields).encode() if number % 1000 != 999 else b"\xff{"


@pytest.mark.parametrize("kind", FORMATS)
def test_inferred_columns_grow_on_spark_as_in_local_engine(
    kind: TableFormat, tmp_path: Path, spark: SparkSession
) -> None:
    put(tmp_path / "store", bodies())
    options = LandOptions(topics=("orders",), body="json", schema="infer")
    here, there = Lake(tmp_path / "here", kind), Lake(tmp_path / "there", kind)
    _, local = land(here, tmp_path / "store", options)
    summary = landed(on_spark(spark, there, tmp_path / "store", options))
    assert summary.totals == local.totals
    assert local.totals.dead == 7
    heads = [lake.target.open().head() for lake in (here, there)]
    assert heads[0].state.options == heads[1].state.options  # type: ignore[union-attr]
    if kind is TableFormat.PARQUET:  # its files have columns of their own
        assert there.messages() == here.messages()
        return
    assert contents(there) == contents(here)
    assert columns(there) == columns(here)
    assert {"id", "price", "user"} <= columns(there).keys()
    files = len(lake_files(there))
    assert data_files(there.root / "lake" / "sales" if kind is TableFormat.ICEBERG else there.root / "orders") == files


def lake_files(lake: Lake) -> list[str]:
    """The data files of a table."""
    if lake.format is TableFormat.DELTA:
        from deltalake import DeltaTable

        return DeltaTable(lake.table).file_uris()
    table = lake.target.open()
    files = [task.file.file_path for task in table._catalog.load_table(lake.table).scan().plan_files()]  # type: ignore[attr-defined]
    dead = [task.file.file_path for task in table._catalog.load_table(f"{lake.table}__dead").scan().plan_files()]  # type: ignore[attr-defined]
    return files + dead


@dataclass(frozen=True)
class FailingBodies(RawBodies):
    """Raw bodies whose second run fails a task while the file ``mark`` exists. The first one is in a file by then."""

    mark: str
    error: type[Exception]

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        from pyspark import TaskContext

        from gantrymq.tables.local import part_files

        is_failing, state = Path(self.mark).exists(), vars(part_files)
        part_files.FILE_BYTES = 1 if is_failing else 128 << 20
        attempt = TaskContext.get().taskAttemptId()  # type: ignore[union-attr]
        if is_failing and state.get("decoded_in") == attempt:
            raise self.error("bodies", "the task fails")
        state["decoded_in"] = attempt
        return super().decode(bodies)


@dataclass(frozen=True, slots=True)
class FailingOptions(LandOptions):
    """The options of a landing with these bodies."""

    failing: FailingBodies | None = None

    def body_format(self) -> Any:
        return self.failing


@pytest.mark.parametrize(
    ("kind", "error"),
    [(TableFormat.DELTA, StoreError), (TableFormat.ICEBERG, RuntimeError), (TableFormat.PARQUET, RuntimeError)],
)
def test_failed_job_leaves_no_file_and_no_row(
    kind: TableFormat, error: type[Exception], tmp_path: Path, spark: SparkSession
) -> None:
    store = unpack("lost-queues-many-files", tmp_path) / "store"
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    lake, mark = Lake(tmp_path / "lake", kind), tmp_path / "mark"
    mark.touch()
    options = FailingOptions(pattern=".*", failing=FailingBodies(str(mark), error))
    landing = on_spark(spark, lake, store, options)
    with pytest.raises(StoreError, match="the task fails"):
        list(landing.run_pass())
    assert lake.messages() == []
    assert data_files(lake.root) == 0
    mark.unlink()
    assert sum(commit.totals.rows for commit in landing.run_pass()) == len(lake.messages()) == 1127


def test_log_file_deleted_after_planning_is_named(tmp_path: Path, spark: SparkSession) -> None:
    store = unpack("lost-queues-many-files", tmp_path) / "store"
    whole, lake = Lake(tmp_path / "whole", TableFormat.DELTA), Lake(tmp_path / "lake", TableFormat.DELTA)
    land(whole, store)
    landing = on_spark(spark, lake, store, commit_rows=400)
    passing = landing.run_pass()
    next(passing)
    for file in sorted((store / "commitlog").iterdir())[:9]:
        file.unlink()
    list(passing)
    messages, missing = {name[:3] for name in lake.messages()}, set(lake.audited())
    assert missing
    assert not messages & missing
    assert messages | missing == {name[:3] for name in whole.messages()}


def test_cluster_landing_on_spark_equals_that_of_local_engine(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TASK_MESSAGES", 70)
    here, there = Lake(tmp_path / "here", TableFormat.DELTA), Lake(tmp_path / "there", TableFormat.DELTA)
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        producer.send_batch([Message("orders", b"%d" % number, keys=(f"k{number}",)) for number in range(300)])
        source = f"namesrv://{broker.namesrv}"
        summary = land_on_spark(spark, source, there.table, topic="orders")
        landing = Landing(
            LocalEngine(here.target.open()),
            TableSources([source]).open,
            LandOptions(topics=("orders",)),
        )
        landed(landing)
        assert land_on_spark(spark, source, here.table, commit_group="lake").commits == 0
        with AdminClient(broker.namesrv) as admin:
            shown = admin.consume_stats("lake")
    assert summary.as_json() == landing.summary.as_json()
    assert summary.totals.rows == 300
    assert sum(stat.consumer_offset for queue, stat in shown.items() if queue.topic == "orders") == 300
    assert contents(there) == contents(here)


def test_upserts_on_spark_leave_last_row_of_each_key(tmp_path: Path, spark: SparkSession) -> None:
    lake, store = Lake(tmp_path / "lake", TableFormat.DELTA), tmp_path / "store"
    put(store, [line(id=number % 3, n=number) for number in range(10)])
    land_on_spark(spark, store, lake.table, topic="orders", body="json", schema="infer", upsert_by="id")
    put(store, [line(id=1, n=100)])
    assert land_on_spark(spark, store, lake.table).totals.rows == 1
    assert sorted((row["id"], row["n"]) for row in lake.rows()) == [(0, 9), (1, 100), (2, 8)]


def test_land_function_accepts_options_of_command(tmp_path: Path, spark: SparkSession) -> None:
    store = unpack("broker-features", tmp_path) / "store"
    told: list[int] = []
    summary = land_on_spark(
        spark, store, tmp_path / "{topic}", topics=".*", format="parquet", partition_by="none",
        on_commit=lambda commit: told.append(commit.totals.rows),
    )  # fmt: skip
    tables = [name for name in os.listdir(tmp_path) if (tmp_path / name / "_gantrymq").is_dir()]
    assert len(tables) > 2
    assert sum(told) == summary.totals.rows > 0
    again = land_on_spark(spark, [store], tmp_path / "{topic}", topics=".*", format="parquet")
    assert again.commits == 0
    with pytest.raises(ConfigError, match="partition-by"):
        land_on_spark(spark, store, tmp_path / tables[0], partition_by="hour")
