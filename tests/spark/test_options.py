"""Options and schemas that are wrong are named errors; the store is looked at before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from spark_cases import fields

from gantrymq.errors import ConfigError, NotAStoreError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.schema import check_schema


def test_all_options() -> None:
    given = {
        "PATH": "/data/store", "Subscribe": " a, b ,", "minpartitions": " 7 ", "decompress": "FALSE",
        "verifyCrc": "true", "failondataloss": "false", "brokerName": "broker-a",
    }  # fmt: skip
    expected = ReadOptions(Path("/data/store"), frozenset({"a", "b"}), None, 7, False, True, False, "broker-a")
    assert ReadOptions.parse(given) == expected
    assert ReadOptions.parse({"path": "/x", "topic": "a"}).subscribe == {"a"}
    assert ReadOptions.parse({"path": "/x", "subscribePattern": "a.*"}).subscribe_pattern == "a.*"


def test_paths() -> None:
    assert ReadOptions.parse({"path": "file:/data/a%20b"}).path == Path("/data/a b")
    assert ReadOptions.parse({"path": "file:///data/x"}).path == Path("/data/x")
    assert ReadOptions.parse({"path": "x/y"}).path == Path.cwd() / "x/y"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "path='' is not allowed: the directory of a store"),
        ({"path": "s3://bucket/store"}, "a directory that every executor sees as a local one"),
        ({"path": "/x", "subscribe": " , "}, "names of topics, separated by commas"),
        ({"path": "/x", "subscribe": "a", "topic": "b"}, "given twice under two names"),
        ({"path": "/x", "subscribe": "a", "subscribePattern": "b"}, "either this or subscribe"),
        ({"path": "/x", "subscribePattern": "("}, "a regular expression"),
        ({"path": "/x", "minPartitions": "0"}, "a whole number of at least 1"),
        ({"path": "/x", "minPartitions": "many"}, "a whole number of at least 1"),
        ({"path": "/x", "decompress": "yes"}, "decompress='yes' is not allowed: true or false"),
        ({"path": "/x", "minPartition": "3"}, "no such option; there is minPartitions"),
        ({"path": "/x", "qwertz": "3"}, "no such option; there is path, subscribe"),
    ],
)
def test_wrong_options(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ReadOptions.parse(options)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_store(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "nowhere", "does not exist"), (tmp_path, "is not a RocketMQ store")):
        source = RocketMQDataSource({"path": str(path)})
        with pytest.raises(NotAStoreError, match=reason):
            source.schema()
        with pytest.raises(NotAStoreError, match=reason):
            source.reader(fields())


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("bodi", BinaryType()), "schema='bodi binary' is not allowed: no such column; there is body"),
        (StructField("xyzzy", BinaryType()), "there is topic, broker, queue_id"),
        (StructField("Topic", StringType()), "no such column; there is topic"),
        (StructField("body", StringType()), "schema='body string' is not allowed: the column is body binary"),
        (StructField("queue_id", LongType()), "the column is queue_id int"),
        (StructField("keys", ArrayType(LongType())), "the column is keys array<string>"),
        (StructField("tags", StringType(), False), "'tags string NOT NULL' is not allowed: the column can be null"),
    ],
)
def test_wrong_schemas(field: StructField, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_schema(StructType([StructField("topic", StringType()), field]))
    assert says in str(raised.value)


def test_schemas_may_say_that_nothing_is_null() -> None:
    check_schema(
        StructType(
            [
                StructField("keys", ArrayType(StringType(), False), False),
                StructField("properties", MapType(StringType(), StringType(), False), False),
                StructField("born_timestamp", TimestampType()),
            ]
        )
    )
    with pytest.raises(ConfigError, match="at least one column"):
        check_schema(StructType([]))
