"""Follows topics of RocketMQ into a table of Parquet files, by topic and day, for as long as it runs.

    python examples/continuous_dispatch.py STORE_OR_NAMESERVER TABLE [--subscribe orders,payments] [--once]

The first argument is a store directory (or several, or a glob) or the name server of a live cluster, ``host:port``.
What was read is noted in TABLE/_checkpoint together with the files that were written, so a query that is killed at any
moment goes on where it was, and every message is in the table once: readers that go through Spark see only files that
the table's own log (_spark_metadata) names. With ``--format delta`` the table is one of Delta Lake, if the session has
its jar.

Run it again with the same arguments to go on. One query a checkpoint: it belongs to the brokers it has read.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from gantrymq.spark import offsets_behind

COLUMNS = """topic string, broker string, queue_id int, queue_offset bigint, body binary, tags string,
keys array<string>, properties map<string,string>, born_timestamp timestamp, store_timestamp timestamp"""


def messages(spark: SparkSession, source: str, subscribe: str | None, per_batch: int) -> DataFrame:
    """The stream of messages, from the first one that is still there."""
    origin = "nameserver" if re.fullmatch(r"[^/]+:\d+(;[^/]+:\d+)*", source) else "path"
    reading = spark.readStream.format("rocketmq").schema(COLUMNS).option(origin, source)
    if subscribe:
        reading = reading.option("subscribe", subscribe)
    # It stops, and says what is missing, where messages went before they were read: failOnDataLoss stays true.
    return reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch).load()


def dispatch(stream: DataFrame, table: str, table_format: str, *, once: bool, interval: str) -> StreamingQuery:
    """Start to write ``stream`` into ``table``."""
    writing = (
        stream.selectExpr("*", "date(store_timestamp) AS day")
        .writeStream.format(table_format)
        .partitionBy("topic", "day")
        .option("checkpointLocation", f"{table}/_checkpoint")
    )
    writing = writing.trigger(availableNow=True) if once else writing.trigger(processingTime=interval)
    return writing.start(table)


def show_progress(query: StreamingQuery) -> None:
    """Say after each batch what it brought and what still waits."""
    shown = -1
    while query.isActive:
        query.awaitTermination(1)
        for progress in query.recentProgress:
            if progress["batchId"] <= shown:
                continue
            shown = progress["batchId"]
            waiting = offsets_behind(progress["sources"][0]).get("offsetsBehindLatest", 0)
            print(f"batch {shown}: {progress['numInputRows']:,} messages, {waiting:,} wait", flush=True)


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("table", type=lambda text: str(Path(text).absolute()))
    parser.add_argument("--subscribe", help="topics, separated by commas; without it every topic")
    parser.add_argument("--format", default="parquet", help="parquet, or delta where the session has it")
    parser.add_argument("--interval", default="10 seconds", help="how often to look for new messages")
    parser.add_argument("--per-batch", type=int, default=1_000_000, help="messages a batch at most")
    parser.add_argument("--once", action="store_true", help="stop when all that is there now is in the table")
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors have what this Python has
    spark = SparkSession.builder.appName("continuous dispatch").config("spark.ui.enabled", "false").getOrCreate()
    stream = messages(spark, given.source, given.subscribe, given.per_batch)
    query = dispatch(stream, given.table, given.format, once=given.once, interval=given.interval)
    try:
        show_progress(query)
    except KeyboardInterrupt:
        query.stop()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
