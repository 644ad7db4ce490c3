"""A driver whose tasks fail at their first two attempts, in the middle of what they write.

    python retry_driver.py SOURCE ROOM NAMESERVER

The rows of the store SOURCE go into a store below ROOM and into a topic of the cluster, by a batch and by a stream;
both are called as that. Each attempt of a task is a file in ROOM.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

PAUSE_S = 1.0  # for the sink to write what it has
COLUMNS = "topic string, body binary, keys array<string>"


def failing(room: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows that end with an error behind the first of them, but for each task's third attempt."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        attempt = note(room)
        for batch in batches:
            yield batch
            if attempt < 2:
                time.sleep(PAUSE_S)
                raise RuntimeError(f"attempt {attempt} fails")

    return rows


def note(room: str) -> int:
    """Note an attempt in a file of its own; its number."""
    context = TaskContext.get()
    assert context is not None
    (Path(room) / f"attempt-{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}").touch()
    return context.attemptNumber()


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


def write(spark: SparkSession, kind: str, source: str, room: str, options: dict[str, str]) -> None:
    """Write in one way into one sink, and wait for the end."""
    work = failing(room)
    if kind == "stream":
        loaded = spark.readStream.format("rocketmq").schema(COLUMNS).option("startingOffsets", "earliest")
        frame = loaded.option("maxOffsetsPerTrigger", "150").option("minPartitions", "2").load(source)
        writing = frame.mapInArrow(work, COLUMNS).writeStream.format("rocketmq").options(**options)
        writing = writing.option("checkpointLocation", f"{room}/checkpoint-{len(options)}")
        writing.trigger(availableNow=True).start().awaitTermination()
    else:
        frame = spark.read.format("rocketmq").schema(COLUMNS).option("minPartitions", "4").load(source)
        frame.mapInArrow(work, COLUMNS).write.format("rocketmq").options(**options).mode("append").save()


def main() -> None:
    """Write in each way into both sinks."""
    source, room, nameserver = sys.argv[1:]
    spark = session()
    for kind in ("batch", "stream"):
        write(spark, kind, source, room, {"path": f"{room}/{kind}"})
        write(spark, kind, source, room, {"nameserver": nameserver, "topic": kind})
    spark.stop()


if __name__ == "__main__":
    main()
