"""A stream without Spark: the reader is asked what Spark asks, in the same order, with offsets as JSON texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from spark_cases import Row, fields

from gantrymq.spark import RocketMQDataSource


class Stream:
    """One query. ``checkpoint`` is what it has read up to; a new Stream with it goes on there.

    Without a path the options name a cluster.
    """

    def __init__(self, path: Path | str, *names: str, checkpoint: str | None = None, **options: object) -> None:
        given = ({"path": str(path)} if path else {}) | {name: str(value) for name, value in options.items()}
        self.schema = fields(*names)
        self.source = RocketMQDataSource(given)
        self.reader = self.source.streamReader(self.schema)
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        self.checkpoint = json.dumps(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def latest(self) -> str:
        return json.dumps(self.reader.latestOffset(json.loads(self.checkpoint), self.limit))

    def rows_between(self, start: str, end: str) -> list[list[Row]]:
        """The rows of each partition; read by a reader of its own, as on an executor."""
        executor = self.source.streamReader(self.schema)
        return [
            [row for batch in executor.read(partition) for row in batch.to_pylist(maps_as_pydicts="strict")]
            for partition in self.reader.partitions(json.loads(start), json.loads(end))
        ]

    def batch(self) -> list[Row]:
        """The rows of the next micro-batch; none where Spark would start none."""
        end = self.latest()
        if end == self.checkpoint:
            return []
        rows = [row for part in self.rows_between(self.checkpoint, end) for row in part]
        self.checkpoint = end
        return rows

    def batches(self) -> list[list[Row]]:
        """All micro-batches until there is nothing left."""
        found = []
        while rows := self.batch():
            found.append(rows)
        return found


def bodies(rows: list[Row]) -> list[bytes]:
    return [row["body"] for row in rows]


def offsets(text: str) -> dict[str, Any]:
    """The offsets of a checkpoint, without what lies beside the topics."""
    found: dict[str, Any] = json.loads(text)
    return {topic: inner for topic, inner in found.items() if topic[0] != "#"}
