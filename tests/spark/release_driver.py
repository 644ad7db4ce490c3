"""What every supported release of PySpark can do, with the store at argv[1] and room at argv[2]: a line of JSON.

It runs as a program of its own, since a process has one PySpark. An error is the last line of its text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession


def outcome(step: Callable[[], Any]) -> Any:
    """What a step returns, or the line of its error that names a release."""
    try:
        return step()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "needs PySpark" in line]
        return lines[-1].rpartition("GantrymqError: ")[2] if lines else str(error)


class Release:
    """One session, and each thing to be tried with it."""

    def __init__(self, spark: SparkSession, store: str, room: str) -> None:
        self._spark, self._store, self._room = spark, store, room

    def count(self, schema: str | None = None, **options: str) -> int:
        """The rows of a batch."""
        reading = self._spark.read.format("rocketmq").options(**options)
        return (reading.schema(schema) if schema else reading).load(self._store).count()

    def written(self) -> int:
        """The rows of a store that a batch was written into."""
        loaded = self._spark.read.format("rocketmq").schema("topic string, body binary").load(self._store)
        loaded.write.format("rocketmq").mode("append").save(f"{self._room}/copy")
        return self._spark.read.format("rocketmq").load(f"{self._room}/copy").count()

    def landed(self) -> int:
        """The rows of a table that a topic was landed in."""
        from gantrymq.spark import land

        return land(self._spark, self._store, f"{self._room}/landed", topic="orders", commit_rows=30).totals.rows

    def stream(self, **options: str) -> DataFrame:
        """All that the store has, as a stream."""
        reading = self._spark.readStream.format("rocketmq").schema("topic string, body binary")
        return reading.options(startingOffsets="earliest", **options).load(self._store)

    def streamed(self, name: str, sink: str, **options: str) -> int:
        """The rows that a stream wrote, when it was run twice with one checkpoint."""
        for _ in range(2):
            writing = self.stream(**options).writeStream.format(sink).trigger(availableNow=True)
            writing = writing.option("checkpointLocation", f"{self._room}/{name}-checkpoint")
            writing.start(f"{self._room}/{name}").awaitTermination()
        return self._spark.read.format(sink).load(f"{self._room}/{name}").count()


def main() -> None:
    """Try all of it."""
    store, room = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    release = Release(spark, store, room)
    steps: dict[str, Callable[[], Any]] = {
        "version": lambda: pyspark.__version__,
        "batch": release.count,
        "columns": lambda: release.count(columns="all", keys="k7"),
        "filter": lambda: release.count("body binary", tags="paid"),
        "write": release.written,
        "land": release.landed,
        "stream": lambda: release.streamed("parquet", "parquet"),
        "limit": lambda: release.streamed("limited", "parquet", maxOffsetsPerTrigger="30"),
        "stream into a store": lambda: release.streamed("store", "rocketmq"),
    }
    print(json.dumps({name: outcome(step) for name, step in steps.items()}))
    spark.stop()


if __name__ == "__main__":
    main()
