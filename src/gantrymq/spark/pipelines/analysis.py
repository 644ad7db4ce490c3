"""Statistics of a store as DataFrames: sizes, the largest messages, skew, and queues that are out of order.

    analysis = analyze(spark, "/data/store")
    analysis.topics.show()

Everything is read through ``format("rocketmq")``, lazily. Each frame reads only the columns that it needs;
:func:`gantrymq.spark.pipelines.report.write_analysis` reads them all at once.

Thread rule: the driver's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LARGEST = 50
_KEYS_A_TOPIC = 20
_HOUR_S = 3600
_OPTIONS = {"failOnDataLoss": "false", "verifyCRC": "true"}  # unless others are given
COLUMNS = (
    "topic string, broker string, queue_id int, queue_offset bigint, tags string, keys array<string>, msg_id string, "
    "store_timestamp timestamp_ltz, sys_flag int, phy_offset bigint, size int"
)


@dataclass(frozen=True, slots=True)
class StoreAnalysis:
    """The frames of an analysis. Sizes are of stored records, in bytes; times are UTC.

    - ``topics``: topic, messages, bytes, median_bytes, largest_bytes, compressed (messages), queues, first, last.
    - ``hours``: topic, hour (timestamp), messages, bytes.
    - ``tags``: topic, tags (null: without), messages, bytes.
    - ``queues``: broker, topic, queue_id, messages, bytes, share (of the topic's messages).
    - ``keys``: topic, key, messages, share; each topic's most frequent keys.
    - ``largest``: topic, broker, queue_id, queue_offset, msg_id, size, store_timestamp, phy_offset.
    - ``disorder``: broker, topic, queue_id, kind, times, first_phy_offset. Kinds of disorder of a queue in the order of
      the log: ``offset-repeated``, ``offset-back``, ``offset-missing``, ``time-back``.
    """

    topics: DataFrame
    hours: DataFrame
    tags: DataFrame
    queues: DataFrame
    keys: DataFrame
    largest: DataFrame
    disorder: DataFrame

    def frames(self) -> dict[str, DataFrame]:
        """All frames by their names."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


def analyze(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> StoreAnalysis:
    """Analyze the store or stores at ``path``; ``options`` are those of ``format("rocketmq")``.

    Damage inside of the log is skipped, unless ``options`` say otherwise. Raises ConfigError, NotAStoreError.
    """
    return of_messages(read_messages(spark, path, options))


def read_messages(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """Read the columns that an analysis needs; arguments as for :func:`analyze`. Raises ConfigError, NotAStoreError."""
    from gantrymq.spark.options import ReadOptions
    from gantrymq.tools.locations import find_stores

    given = dict(options or {})
    named = {name.lower() for name in given}  # Spark's options ignore case
    given |= {name: text for name, text in _OPTIONS.items() if name.lower() not in named}
    # Check here, because errors in Spark's own process arrive as Spark's errors.
    parsed = ReadOptions.parse({**given, "path": path}, streaming=False)
    find_stores(parsed.path, parsed.broker_name, parsed.store_path_commit_log)
    return spark.read.format("rocketmq").schema(COLUMNS).options(**given).load(path)


def of_messages(messages: DataFrame) -> StoreAnalysis:
    """The analysis of rows of the source ``rocketmq``, which a caller may have filtered. They need :data:`COLUMNS`."""
    return StoreAnalysis(
        _topics(messages),
        _hours(messages),
        _tags(messages),
        _queues(messages),
        _keys(messages),
        _largest(messages),
        _disorder(messages),
    )


def _counted() -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    return f.count("*").alias("messages"), f.sum("size").alias("bytes")


def _topics(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        messages.groupBy("topic")
        .agg(
            *_counted(),
            f.percentile_approx("size", 0.5).alias("median_bytes"),
            f.max("size").alias("largest_bytes"),
            f.count_if(f.col("sys_flag").bitwiseAND(1) == 1).alias("compressed"),
            f.count_distinct("broker", "queue_id").alias("queues"),
            f.min("store_timestamp").alias("first"),
            f.max("store_timestamp").alias("last"),
        )
        .orderBy(f.desc("bytes"), "topic")
    )


def _hours(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    # Hours of UTC, regardless of the session's time zone.
    hour = f.timestamp_seconds(f.floor(f.unix_seconds("store_timestamp") / _HOUR_S) * _HOUR_S).alias("hour")
    return messages.groupBy("topic", hour).agg(*_counted()).orderBy("hour", "topic")


def _tags(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return messages.groupBy("topic", "tags").agg(*_counted()).orderBy(f.desc("messages"), "topic", "tags")


def _queues(messages: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    queues = messages.groupBy("broker", "topic", "queue_id").agg(*_counted())
    share = f.col("messages") / f.sum("messages").over(Window.partitionBy("topic"))
    return queues.withColumn("share", share).orderBy("topic", "broker", "queue_id")


def _keys(messages: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = messages.select("topic", f.explode("keys").alias("key")).groupBy("topic", "key")
    counted = keys.agg(f.count("*").alias("messages"))
    of_topic = Window.partitionBy("topic")
    ranked = f.row_number().over(of_topic.orderBy(f.desc("messages"), "key"))
    return (
        counted.withColumn("share", f.col("messages") / f.sum("messages").over(of_topic))
        .withColumn("rank", ranked)
        .where(f.col("rank") <= _KEYS_A_TOPIC)
        .drop("rank")
        .orderBy(f.desc("messages"), "topic", "key")
    )


def _largest(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    columns = ("topic", "broker", "queue_id", "queue_offset", "msg_id", "size", "store_timestamp", "phy_offset")
    return messages.select(*columns).orderBy(f.desc("size"), "phy_offset").limit(LARGEST)


def _disorder(messages: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    in_log = Window.partitionBy("broker", "topic", "queue_id").orderBy("phy_offset")
    step = f.col("queue_offset") - f.lag("queue_offset").over(in_log)
    kinds = f.array_compact(
        f.array(
            f.when(step == 0, "offset-repeated").when(step < 0, "offset-back").when(step > 1, "offset-missing"),
            f.when(f.col("store_timestamp") < f.lag("store_timestamp").over(in_log), "time-back"),
        )
    )
    return (
        messages.select("broker", "topic", "queue_id", "phy_offset", kinds.alias("kinds"))
        .select("broker", "topic", "queue_id", "phy_offset", f.explode("kinds").alias("kind"))
        .groupBy("broker", "topic", "queue_id", "kind")
        .agg(f.count("*").alias("times"), f.min("phy_offset").alias("first_phy_offset"))
        .orderBy(f.desc("times"), "broker", "topic", "queue_id", "kind")
    )
