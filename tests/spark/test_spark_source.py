"""The format as a user of Spark meets it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException
from spark_cases import expected_rows, fields

from gantrymq import Message
from gantrymq.errors import ConfigError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.pipelines.analysis import of_messages, read_messages
from gantrymq.spark.schema import COLUMNS
from store_cases import numbered, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As the issue and docs/spark.md promise them.
PROMISED = (
    "topic string, broker string, queue_id int, queue_offset bigint, body binary, tags string, keys array<string>, "
    "properties map<string,string>, msg_id string, born_timestamp timestamp, store_timestamp timestamp, "
    "born_host string, store_host string, flag int, sys_flag int, reconsume_times int, phy_offset bigint, size int, "
    "body_crc int"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(path=tmp_path) as store:
        store.put_batch(numbered(1000))
        for number in range(100):
            store.put(Message("invoices", b"{}", tags=f"t{number % 2}", keys=[f"k{number}", "all"]))
    return tmp_path


def test_default_schema_has_documented_columns(spark: SparkSession, store: Path) -> None:
    loaded = spark.read.format("rocketmq").option("columns", "all").load(str(store))
    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in loaded.schema) == PROMISED
    assert loaded.schema == fields()
    assert loaded.schema == RocketMQDataSource({"path": str(store), "columns": "all"}).schema()


def test_read_without_schema_omits_expensive_columns(spark: SparkSession, store: Path) -> None:
    plain = ["topic", "queue_id", "queue_offset", "body", "tags", "store_timestamp"]
    reading = spark.read.format("rocketmq")
    assert reading.load(str(store)).columns == plain
    assert reading.option("includeProperties", "true").load(str(store)).columns == [
        *plain[:-1],
        "properties",
        plain[-1],
    ]
    rows = [row.asDict() for row in reading.schema("topic string, body binary").load(str(store)).collect()]
    assert rows == [{name: row[name] for name in ("topic", "body")} for row in expected_rows(store)]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"columns": "all"}, [one.name for one in COLUMNS]),
        ({"columns": "all", "includeProperties": "false"}, [one.name for one in COLUMNS if one.name != "properties"]),
        ({"columns": "keys,topic,msg_id"}, ["topic", "keys", "msg_id"]),
        ({"columns": "topic", "includeProperties": "true"}, ["topic", "properties"]),
    ],
)
def test_columns_option_selects_columns(store: Path, options: dict[str, str], columns: list[str]) -> None:
    assert RocketMQDataSource({"path": str(store), **options}).schema().names == columns


def test_unknown_column_names_nearest(store: Path) -> None:
    with pytest.raises(ConfigError, match=r"columns='msgid' is not allowed: all, or columns .*: msg_id"):
        RocketMQDataSource({"path": str(store), "columns": "topic,msgid"}).schema()


def test_session_with_timestamp_ntz_reads_timestamps_with_zone(spark: SparkSession, store: Path) -> None:
    """What the type ``timestamp`` of a schema in words means is up to the session."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        loaded = spark.read.format("rocketmq").option("columns", "all").load(str(store))
        assert loaded.schema == fields()
        assert loaded.count() == 1100
        assert of_messages(read_messages(spark, str(store))).hours.agg({"messages": "sum"}).first()[0] == 1100
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_sql_queries_count_right(spark: SparkSession, store: Path) -> None:
    loaded = spark.read.format("rocketmq").option("path", str(store)).option("columns", "all").load()
    assert loaded.count() == 1100
    assert loaded.where("topic = 'invoices' and tags = 't1'").count() == 50
    assert loaded.selectExpr("explode(keys) as key").groupBy("key").count().where("key = 'all'").first()["count"] == 100
    assert loaded.where("properties['TAGS'] = 'paid'").selectExpr("max(queue_offset) as m").first()["m"] == 999
    assert loaded.selectExpr("count(distinct msg_id) as n").first()["n"] == 1100
    assert loaded.where("store_timestamp < current_timestamp()").count() == 1100


@pytest.mark.parametrize(
    "schema", ["topic string, body binary", "body binary, topic string", "size int", "keys array<string>, tags string"]
)
def test_selected_columns_alone_are_read(spark: SparkSession, store: Path, schema: str) -> None:
    loaded = spark.read.format("rocketmq").schema(schema).option("minPartitions", 3).load(str(store))
    names = [field.split()[0] for field in schema.split(", ")]
    assert loaded.columns == names
    rows = [row.asDict() for row in loaded.collect()]
    assert rows == [{name: row[name] for name in names} for row in expected_rows(store)]


def test_partitions_follow_options(spark: SparkSession, store: Path) -> None:
    for count in (1, 4):
        loaded = spark.read.format("rocketmq").option("minPartitions", count).load(str(store))
        assert loaded.rdd.getNumPartitions() == count
        assert loaded.count() == 1100


def test_dataframe_is_one_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans a loaded source once, at its first action; who wants to see more loads again."""
    with open_store(path=tmp_path) as store:
        loaded = spark.read.format("rocketmq").load(str(tmp_path))
        assert loaded.count() == 0
        store.put_batch(numbered(10))
        assert loaded.count() == 0
        assert loaded.collect() == []
        again = spark.read.format("rocketmq").load(str(tmp_path))
        store.put_batch(numbered(10))
        assert again.count() == 20
        store.put_batch(numbered(10))
        assert again.where("queue_offset >= 0").count() == 20


def test_temporary_view_is_queried(spark: SparkSession, store: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW messages USING rocketmq OPTIONS (path '{store}', subscribe 'invoices')")
    try:
        assert spark.sql("SELECT count(*) FROM messages").first()[0] == 100
    finally:
        spark.catalog.dropTempView("messages")


def test_wrong_option_raises_at_load(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    source = spark.read.format("rocketmq")
    with pytest.raises(AnalysisException, match=f"NotAStoreError: {tmp_path}/nowhere: does not exist"):
        source.load(f"{tmp_path}/nowhere")
    with pytest.raises(AnalysisException, match=r"ConfigError: path='' is not allowed: path .the directory of a store"):
        source.load()
    with pytest.raises(AnalysisException, match="minPartitions='x' is not allowed: a whole number of at least 1"):
        source.option("minPartitions", "x").load(str(store))
    with pytest.raises(AnalysisException, match="no such option; there is decompress"):
        spark.read.format("rocketmq").option("decompres", "false").load(str(store))


def test_wrong_schema_raises(spark: SparkSession, store: Path) -> None:
    for schema, says in (
        ("bodi binary", "schema='bodi binary' is not allowed: no such column; there is body"),
        ("body string", "schema='body string' is not allowed: the column is body binary"),
    ):
        with pytest.raises(PySparkException, match=says):
            spark.read.format("rocketmq").schema(schema).load(str(store)).collect()


def test_executors_error_names_file_and_offset(spark: SparkSession, store: Path) -> None:
    victim = expected_rows(store)[40]
    file = store / "commitlog" / f"{0:020d}"
    raw = bytearray(file.read_bytes())
    raw[victim["phy_offset"] + 4] ^= 0x40
    file.write_bytes(raw)
    source = spark.read.format("rocketmq")
    with pytest.raises(PySparkException) as raised:
        source.load(str(store)).collect()
    assert f"CorruptRecordError: {file}: no readable record at offset {victim['phy_offset']}" in str(raised.value)
    assert source.option("failOnDataLoss", "false").load(str(store)).count() == 1099


def test_registered_format_reads_golden_store(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    """A session that does not find the format by itself can be given it."""
    spark.dataSource.register(RocketMQDataSource)
    assert spark.read.format("rocketmq").load(str(golden("broker-features") / "store")).count() == 444


def test_executors_import_no_writer(golden: Callable[[str], Path]) -> None:
    """Reading a partition brings in neither recovery nor what writes, and no Numba where the kernels are compiled.

    Nor pandas, which takes longer to come than a small read does.
    """
    store = golden("direct-mixed") / "store"
    reader = RocketMQDataSource({"path": str(store), "tags": "*", "brokerName": "a"}).reader(fields())
    pickled = pickle.dumps((reader, reader.partitions()[0]))
    read = """
import pickle, sys
reader, partition = pickle.load(sys.stdin.buffer)
assert sum(batch.num_rows for batch in reader.read(partition)) == 4858
print("\\n".join(sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", read], input=pickled, capture_output=True, check=True).stdout.decode()
    imported = set(said.splitlines())
    ours = {name.removeprefix("gantrymq.store.") for name in imported if name.startswith("gantrymq.store.")}
    assert not ours & {"message_store", "append", "recovery", "retention", "opening", "queue_dispatch"}
    assert not {name for name in imported if name.startswith(("numba", "pandas", "gantrymq.broker", "gantrymq.cli"))}


@pytest.mark.parametrize("options", [{}, {"tags": "a", "keys": "b", "minPartitions": "3"}], ids=str)
def test_planning_does_not_import_pandas(golden: Callable[[str], Path], options: dict[str, str]) -> None:
    """Spark starts a process for it at each load."""
    given = {"path": str(golden("direct-mixed") / "store"), **options}
    plan = f"""
import sys
from gantrymq.errors import ConfigError
from gantrymq.spark import RocketMQDataSource
source = RocketMQDataSource({given})
reader = source.reader(__import__("pyspark.sql.types").sql.types._parse_datatype_json_string({fields().json()!r}))
assert reader.partitions()
assert [batch for partition in reader.partitions() for batch in reader.read(partition)] or {bool(options)}
print("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", plan], capture_output=True, check=True).stdout == b"False\n"
