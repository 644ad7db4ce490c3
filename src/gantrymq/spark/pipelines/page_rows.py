"""The rows that the page shows of an analysis: the first rows of each frame, and totals.

The number of rows that come to the driver is bounded. Spark counts the rest on the executors.

Thread rule: the driver's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gantrymq.spark.pipelines.analysis import StoreAnalysis

Rows = list[dict[str, Any]]

TOPICS_BY_HOUR = 6
_SHOWN = 25
_HOURS_SHOWN = 20_000  # rows, each of one hour and topic


def page_rows(analysis: StoreAnalysis) -> dict[str, Rows]:
    """The first rows of each frame by name, with these exceptions.

    - ``totals``, one row: topics, messages, bytes, largest_bytes, compressed, queues, first, last, of all topics.
    - ``hours``: hour, topic (null: all but the largest), messages; the newest hours if there are too many.
    - ``skew``: topic, queues, skew (messages of the fullest queue divided by the mean), the most skewed first.
    - ``kinds`` of disorder: kind, times, queues.
    """
    persisted = [frame.persist() for frame in (analysis.topics, analysis.disorder)]
    try:
        topics = _first(analysis.topics)
        largest = [row["topic"] for row in topics[:TOPICS_BY_HOUR]]
        return {
            "totals": _first(_totals(analysis.topics)),
            "topics": topics,
            "hours": _whole_hours(_first(_hours(analysis.hours, largest), _HOURS_SHOWN)),
            "tags": _first(analysis.tags),
            "skew": _first(_skew(analysis.queues)),
            "keys": _first(analysis.keys),
            "largest": _first(analysis.largest),
            "kinds": _first(_kinds(analysis.disorder)),
            "disorder": _first(analysis.disorder),
        }
    finally:
        for frame in persisted:
            frame.unpersist()


def _first(frame: DataFrame, max_rows: int | None = None) -> Rows:
    rows: Rows = frame.limit(max_rows or _SHOWN).toArrow().to_pylist()
    return rows


def _totals(topics: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("messages", "bytes", "compressed", "queues")]
    largest = f.coalesce(f.max("largest_bytes"), f.lit(0)).alias("largest_bytes")
    times = f.min("first").alias("first"), f.max("last").alias("last")
    return topics.agg(f.count("*").alias("topics"), *sums, largest, *times)


def _hours(hours: DataFrame, largest: Sequence[str]) -> DataFrame:
    """Newest hours first. Smaller topics are merged here, before the limit drops rows."""
    from pyspark.sql import functions as f

    topic = f.when(f.col("topic").isin(*largest), f.col("topic")).alias("topic")
    counted = hours.where("hour is not null").groupBy("hour", topic).agg(f.sum("messages").alias("messages"))
    return counted.orderBy(f.desc("hour"), "topic")


def _whole_hours(rows: Rows) -> Rows:
    """Drop the oldest hour if the limit may have cut it."""
    if len(rows) < _HOURS_SHOWN:
        return rows
    return [row for row in rows if row["hour"] != rows[-1]["hour"]]


def _skew(queues: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    skew = (f.max("messages") * f.count("*") / f.sum("messages")).alias("skew")
    of_topic = queues.groupBy("topic").agg(f.count("*").alias("queues"), skew)
    return of_topic.where("queues > 1").orderBy(f.desc("skew"), "topic")


def _kinds(disorder: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    times, queues = f.sum("times").alias("times"), f.count("*").alias("queues")
    return disorder.groupBy("kind").agg(times, queues).orderBy(f.desc("times"), "kind")
