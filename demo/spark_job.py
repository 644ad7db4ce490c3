"""The Spark job: reads the store (never the CSV), takes the JSON bodies apart and answers the questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from demo.flights import COLUMNS
from demo.questions import QUESTIONS
from gantrymq.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE_MS = 20

# Stored so many in each slice of time; the times are the store's own.
THROUGHPUT = f"""
SELECT unix_millis(store_timestamp) div {SLICE_MS} * {SLICE_MS} AS at_ms, count(*) AS messages, sum(size) AS bytes
FROM flights GROUP BY 1 ORDER BY 1"""


@dataclass(slots=True)
class Answers:
    """What Spark found: a table for each question, the throughput, and how long everything took."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    stored_by_slice: pa.Table = field(default_factory=lambda: pa.table({"at_ms": [], "messages": [], "bytes": []}))
    read_s: float = 0.0
    rows: int = 0
    took_s: dict[str, float] = field(default_factory=dict)


# The columns that the questions need; a schema of fewer columns lets the source decode no others.
STORE_COLUMNS = {
    "topic": "STRING",
    "queue_id": "INT",
    "queue_offset": "BIGINT",
    "tags": "STRING",
    "keys": "ARRAY<STRING>",
    "properties": "MAP<STRING, STRING>",
    "born_timestamp": "TIMESTAMP",
    "store_timestamp": "TIMESTAMP",
    "size": "INT",
    "body": "BINARY",
}


# And of the bodies these.
BODY_FIELDS = (
    *("month", "day", "hour", "dep_time", "dep_delay", "arr_delay", "carrier", "tailnum", "origin", "dest"),
    *("air_time", "distance"),
)


def read_store(spark: SparkSession, store: Path) -> DataFrame:
    """The store as it lies there: one row for each message."""
    schema = ", ".join(f"{name} {kind}" for name, kind in STORE_COLUMNS.items())
    return spark.read.format("rocketmq").schema(schema).option("path", str(store)).load()


def with_bodies(messages: DataFrame) -> DataFrame:
    """``messages`` and columns for the fields of their bodies."""
    types = {pa.int64(): "BIGINT", pa.string(): "STRING"}
    fields = ", ".join(f"{name} {types[COLUMNS[name]]}" for name in BODY_FIELDS)
    kept = [name for name in STORE_COLUMNS if name != "body"]
    parsed = messages.selectExpr(*kept, f"from_json(CAST(body AS STRING), '{fields}') AS flight_row")
    return parsed.selectExpr(*kept, "flight_row.*")


def answer_all(spark: SparkSession, messages: DataFrame, clock: Clock, asked: Callable[[int], None]) -> Answers:
    """Read ``messages`` once, keep them in memory, and ask everything; ``asked`` hears how much is done."""
    answers = Answers()
    flights = with_bodies(messages).cache()
    flights.createOrReplaceTempView("flights")
    began_s = clock.monotonic_s()
    answers.rows = flights.count()
    answers.read_s = clock.monotonic_s() - began_s
    asked(1)
    for place, question in enumerate(QUESTIONS):
        answers.tables[question.name] = _timed(spark, question.sql, clock, answers.took_s, question.name)
        asked(place + 2)
    answers.stored_by_slice = _timed(spark, THROUGHPUT, clock, answers.took_s, "throughput")
    flights.unpersist()
    asked(len(QUESTIONS) + 2)
    return answers


def _timed(spark: SparkSession, sql: str, clock: Clock, took_s: dict[str, float], name: str) -> pa.Table:
    began_s = clock.monotonic_s()
    table = spark.sql(sql).toArrow()
    took_s[name] = clock.monotonic_s() - began_s
    return table
