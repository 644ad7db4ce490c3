"""Every golden store through a real Spark: its rows are what RocketMQ read out of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_cases import UNPACK, expected_rows, golden_messages, in_log_order

from golden_stores import NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def line_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the words of expected.jsonl; it has all columns."""
    row = dict(row)
    line = {
        "kind": "message",
        "topic": row.pop("topic"),
        "queueId": row.pop("queue_id"),
        "queueOffset": row.pop("queue_offset"),
        "phyOffset": row.pop("phy_offset"),
        "size": row.pop("size"),
        "flag": row.pop("flag"),
        "sysFlag": row.pop("sys_flag"),
        "bornTimestamp": milliseconds(row.pop("born_timestamp")),
        "bornHost": row.pop("born_host"),
        "storeTimestamp": milliseconds(row.pop("store_timestamp")),
        "storeHost": row.pop("store_host"),
        "reconsumeTimes": row.pop("reconsume_times"),
        "bodyCRC": row.pop("body_crc"),
        "properties": row.pop("properties"),
        "bodyLength": len(row["body"]),
        "bodySha256": sha256(row.pop("body")).hexdigest(),
        "msgId": row.pop("msg_id"),
    }
    assert row.pop("broker")
    assert row.pop("tags") == line["properties"].get("TAGS")
    assert row.pop("keys") == [key for key in line["properties"].get("KEYS", "").split(" ") if key]
    assert not row
    return line


def milliseconds(moment: datetime) -> int:
    # collect() gives local time without saying so.
    return round(moment.astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize("name", NAMES)
def test_rows_equal_what_rocketmq_reads(spark: SparkSession, golden: Callable[[str], Path], name: str) -> None:
    source = spark.read.format("rocketmq").option("path", str(golden(name) / "store"))
    rows = source.option("columns", "all").option("decompress", "false").option("minPartitions", 3).load().collect()
    expected = golden_messages(golden(name))
    for line in expected:
        # What a row does not have: the unit's tags code, and the offset of the prepared message.
        del line["tagsCode"], line["preparedTransactionOffset"]
    assert sorted(map(line_of, (row.asDict() for row in rows)), key=lambda line: line["phyOffset"]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_decompressed(spark: SparkSession, golden: Callable[[str], Path], name: str) -> None:
    store = golden(name) / "store"
    loaded = spark.read.format("rocketmq").schema("phy_offset bigint, sys_flag int, body binary").load(str(store))
    rows = in_log_order(row.asDict() for row in loaded.collect())
    expected = expected_rows(store)
    assert [bytes(row["body"]) for row in rows] == [row["body"] for row in expected]
    kinds = {row["sys_flag"] & 0x700 for row in rows if row["sys_flag"] & 1}
    assert kinds <= UNPACK.keys()
    assert kinds, "a golden store without a compressed body tests nothing here"
