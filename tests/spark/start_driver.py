"""Streams that begin while their store is written, with the store at argv[1] and room at argv[2]: a line of JSON.

The reader sends a message after each of Spark's calls that asks for an offset. The first batch of a run that dies is
not committed. It runs as a program of its own, since a process has one PySpark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from gantrymq import Message, MessageStore, MessageStoreConfig
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.read.stream import RocketMQStreamReader

ASKED = ("initialOffset", "latestOffset", "prepareForTriggerAvailableNow")


class BusySource(RocketMQDataSource):
    """The format over a store that gets a message with the next number between the calls."""

    @classmethod
    def name(cls) -> str:
        """The short name of the format."""
        return "busy"

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:
        """A reader that sends and notes each call."""
        store, calls = self.options["path"], Path(self.options["path"] + ".calls")
        reader = super().streamReader(schema)

        def busy(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def asked(*arguments: Any) -> Any:
                answer = call(*arguments)
                with calls.open("a") as file:
                    file.write(f"{name}\n")
                send(store)
                return answer

            # Spark counts the parameters of latestOffset.
            return asked if name != "latestOffset" else lambda start=None, limit=None: asked(start, limit)

        for name in ASKED:
            setattr(reader, name, busy(name, getattr(reader, name)))
        return reader


def send(path: str, count: int = 1) -> None:
    """Put messages with the next numbers."""
    with MessageStore.open(path, MessageStoreConfig(mapped_file_size_commit_log=1 << 20)) as store:
        first = store.get("orders", 0, 0).max_offset
        store.put_batch([Message("orders", b"%d" % number) for number in range(first, first + count)])


def run(spark: SparkSession, store: str, checkpoint: str, *, dies: bool = False, **options: str) -> list[list[int]]:
    """The numbers in each batch of a run of what is available now."""
    batches: list[list[int]] = []

    def sink(rows: DataFrame, _: int) -> None:
        batches.append(sorted(int(row.body) for row in rows.select("body").collect()))
        if dies:
            raise RuntimeError("dies inside its batch")

    available_now = options.pop("available_now", "")
    stream = spark.readStream.format("busy").options(path=store, **options).load()
    writing = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query = (writing.trigger(availableNow=True) if available_now else writing).start()
    try:
        if available_now:
            query.awaitTermination(60)
        else:
            while query.isActive and len(batches) < 4:
                query.awaitTermination(0.05)
            query.stop()
            if (error := query.exception()) is not None:
                raise error
    except StreamingQueryException as error:
        if not dies or "dies inside its batch" not in str(error):
            raise
    return batches


def main() -> None:
    """Try each start in a store of its own."""
    stores, room = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    builder = builder.config("spark.python.authenticate.socketTimeout", "2m")  # 15 s are too few on a loaded machine
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(BusySource)
    found: dict[str, Any] = {"version": pyspark.__version__}
    cases = {"latest": {}, "earliest": {"startingOffsets": "earliest"}, "available now": {"available_now": "true"}}
    for name, options in cases.items():
        store = f"{stores}/{name}".replace(" ", "-")
        send(store, 10)
        runs = [run(spark, store, f"{room}/{name}", dies=number < 2, **options) for number in range(4)]
        calls = Path(f"{store}.calls").read_text().split()
        found[name] = {"runs": runs, "calls": calls[:3]}
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
