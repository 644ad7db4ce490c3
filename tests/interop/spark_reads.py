"""What Spark's driver and executors ask of the source, here in one process: for a batch, and for a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import StructField, StructType

from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.schema import COLUMNS

Row = dict[str, Any]


def fields(*names: str) -> StructType:
    """A schema of these columns; of all without any."""
    return StructType([StructField(one.name, one.type) for one in COLUMNS if not names or one.name in names])


def partitions(options: dict[str, str], *names: str) -> list[list[Row]]:
    """The rows of each partition."""
    reader = RocketMQDataSource(options).reader(fields(*names))
    return [
        [row for batch in reader.read(part) for row in batch.to_pylist(maps_as_pydicts="strict")]
        for part in reader.partitions()
    ]


def rows(options: dict[str, str], *names: str) -> list[Row]:
    """The rows of all partitions, queue by queue."""
    return in_order(row for part in partitions(options, *names) for row in part)


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row.get("topic", ""), row.get("queue_id", 0), row.get("queue_offset", 0)))


def bodies(found: Iterable[Row]) -> list[str]:
    return sorted(row["body"].decode() for row in found)


class Stream:
    """A query, asked as Spark asks; ``checkpoint`` is JSON, and with one given it goes on there."""

    def __init__(self, options: dict[str, str], checkpoint: str | None = None) -> None:
        self.options, self.schema = options, fields()
        self.reader = RocketMQDataSource(options).streamReader(self.schema)
        self.limit = self.reader.getDefaultReadLimit()
        self.checkpoint = json.dumps(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def batch(self) -> list[Row]:
        """The rows of the next batch; none where Spark would start none."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.checkpoint), self.limit))
        found = [] if end == self.checkpoint else self.between(self.checkpoint, end)
        self.checkpoint = end
        return found

    def between(self, start: str, end: str) -> list[Row]:
        executor = RocketMQDataSource(self.options).streamReader(self.schema)
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        return [
            row for part in parts for batch in executor.read(part) for row in batch.to_pylist(maps_as_pydicts="strict")
        ]
