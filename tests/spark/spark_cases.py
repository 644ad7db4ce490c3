"""What the tests of Spark's source share: reading without Spark, and what a row must be, by the reference codecs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard
from pyspark.sql.types import StructField, StructType

from gantrymq.format.names import CONSUME_QUEUE, offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.model.message import StoredMessage
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.schema import COLUMNS
from gantrymq.store.reader import StoreReader
from store_cases import SMALL

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNPACK = {
    0x000: zlib.decompress,
    0x100: lz4.frame.decompress,
    0x200: lambda body: zstandard.ZstdDecompressor().stream_reader(body).read(),
    0x300: zlib.decompress,
}


def fields(*names: str) -> StructType:
    """A schema of these columns; of all without any."""
    return StructType([StructField(one.name, one.type) for one in COLUMNS if not names or one.name in names])


def partitions_of(path: Path | str, *names: str, **options: object) -> list[list[Row]]:
    """The rows of each partition, read in this process as Spark's driver and executors do."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    reader = RocketMQDataSource(given).reader(fields(*names))
    return [
        [row for batch in reader.read(partition) for row in batch.to_pylist(maps_as_pydicts="strict")]
        for partition in reader.partitions()
    ]


def rows_of(path: Path | str, *names: str, **options: object) -> list[Row]:
    """The rows of all partitions."""
    return [row for rows in partitions_of(path, *names, **options) for row in rows]


def expected_row(message: StoredMessage, *, decompress: bool = True, broker: str | None = None) -> Row:
    """A message as a row, made the plain way."""
    body = message.body
    if decompress and message.sys_flag & 1:
        body = UNPACK[message.sys_flag & 0x700](body)
    return {
        "topic": message.topic,
        "broker": broker,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "body": body,
        "tags": message.tags or None,
        "keys": message.keys,
        "properties": message.properties,
        "msg_id": message.msg_id,
        "born_timestamp": EPOCH + timedelta(milliseconds=message.born_timestamp_ms),
        "store_timestamp": EPOCH + timedelta(milliseconds=message.store_timestamp_ms),
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "phy_offset": message.phy_offset,
        "size": message.size_bytes,
        "body_crc": message.body_crc,
    }


def expected_rows(path: Path, *, decompress: bool = True) -> list[Row]:
    """Every message that the queues of a store reach, in the order of the log."""
    with StoreReader.open(path) as reader:
        broker = path.parent.name if path.name == "store" else path.name
        return in_log_order(
            expected_row(message, decompress=decompress, broker=broker) for message in reader.messages()
        )


def in_log_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["phy_offset"])


def damage_unit(store: Path, topic: str, queue_offset: int, phy_offset: int | None) -> None:
    """Let a unit of a topic's queue 0, in a store of small files, name another place, or without one be zeros."""
    base, at = divmod(queue_offset * UNIT_SIZE, SMALL.mapped_file_size_consume_queue)
    with (store / CONSUME_QUEUE / topic / "0" / offset_name(base * SMALL.mapped_file_size_consume_queue)).open(
        "r+b"
    ) as file:
        file.seek(at)
        file.write(bytes(UNIT_SIZE) if phy_offset is None else phy_offset.to_bytes(8, "big", signed=True))


def golden_messages(folder: Path) -> list[dict[str, Any]]:
    """What RocketMQ read out of a golden store, in the order of the log; where it gave up early, what is right."""
    file = folder / "expected-all.jsonl"
    file = file if file.exists() else folder / "expected.jsonl"
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    return sorted((line for line in lines if line["kind"] == "message"), key=lambda line: line["phyOffset"])
