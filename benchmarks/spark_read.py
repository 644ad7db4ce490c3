"""The speed of Spark reading a store, beside the ceiling: a source that yields batches of the same size from memory.

    python benchmarks/spark_read.py [--rows 2000000] [--body 100 1024] [--columns few many all] [--repeats 5]
    python benchmarks/spark_read.py --writer [--rows 400000] [--body 1024]

Both run in turn in one session, to the ``noop`` format. The ceiling reads the first batch of each partition from the
store and then yields it repeatedly. It has the same partitions, rows, columns and batch sizes, so the difference is
exactly our work: scanning the log and filling the columns.

There are two figures: rows per second (the best run), and the CPU time per row of the JVM and Spark's Python
workers together (the median), which is comparable on a machine with other load.

With ``--writer`` the rows go to Parquet files, from the store and, in turn, from Spark's own memory, where they are
when the time begins: no source can be faster than that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.race.spark_worker import cpu_seconds
from gantrymq import MessageStore
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.read.batch import RocketMQReader
from gantrymq.spark.schema import default_schema

COLUMNS = {
    "few": "topic string, body binary",
    "many": "topic string, queue_id int, queue_offset bigint, body binary, tags string, keys array<string>, "
    "store_timestamp timestamp",
    "default": default_schema(),
    "all": default_schema(["all"]),
}
PUT_ROWS = 20_000
WARM_UP = 3


class CeilingReader(DataSourceReader):
    def __init__(self, reader: RocketMQReader, rows: int) -> None:
        self._reader = reader
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        partitions = list(self._reader.partitions())
        return [InputPartition((partition, self._rows // len(partitions))) for partition in partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        real, left = partition.value
        batch = next(self._reader.read(real))
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


class CeilingSource(RocketMQDataSource):
    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return default_schema()

    def reader(self, schema: StructType) -> CeilingReader:  # type: ignore[override]
        rows = int(self.options.pop("rows"))
        return CeilingReader(super().reader(schema), rows)


def body_batches(rows: int, body_bytes: int) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """Yield row numbers and their bodies, which are random and always the same."""
    rng = np.random.default_rng(1)
    for start in range(0, rows, PUT_ROWS):
        numbers = np.arange(start, min(start + PUT_ROWS, rows))
        bodies = rng.integers(0, 256, (len(numbers), body_bytes), np.uint8)
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * body_bytes
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bodies)]
        yield numbers, pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


def make_store(path: Path, rows: int, body_bytes: int) -> None:
    """Make a store with the rows over 4 topics with 4 queues each, with a tag, a key and two properties each."""
    with MessageStore.open(path) as store:
        for numbers, bodies in body_batches(rows, body_bytes):
            table = pa.table(
                {
                    "topic": [f"benchmark-{number % 4}" for number in numbers],
                    "queue_id": pa.array(numbers // 4 % 4, pa.int32()),
                    "body": bodies,
                    "tags": [f"tag-{number % 10}" for number in numbers],
                    "keys": [[f"key-{number}"] for number in numbers],
                    "properties": pa.array(
                        [{"UNIQ_KEY": f"7F000001{number:024X}", "WAIT": "true"} for number in numbers.tolist()],
                        pa.map_(pa.string(), pa.string()),
                    ),
                }
            )
            store.put_batch(table)
            print(f"\r  {numbers[-1] + 1:,} messages stored", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def cost(read: Callable[[], DataFrame]) -> Cost:
    cpu_s, began_s = cpu_seconds(), time.perf_counter()
    read().write.format("noop").mode("overwrite").save()
    return Cost(time.perf_counter() - began_s, cpu_seconds() - cpu_s)


def compare(spark: SparkSession, store: Path, rows: int, columns: str, repeats: int) -> None:
    def ours() -> DataFrame:
        return spark.read.format("rocketmq").schema(COLUMNS[columns]).load(str(store))

    def ceiling() -> DataFrame:
        return spark.read.format("ceiling").option("rows", rows).schema(COLUMNS[columns]).load(str(store))

    for _ in range(WARM_UP):
        cost(ours), cost(ceiling)
    pairs = [(cost(ours), cost(ceiling)) for _ in range(repeats)]
    wall_s = [min(pair[side].wall_s for pair in pairs) for side in (0, 1)]
    cpu_s = [statistics.median(pair[side].cpu_s for pair in pairs) for side in (0, 1)]
    speed = f"{rows / wall_s[0] / 1e6:5.2f} M rows/s, ceiling {rows / wall_s[1] / 1e6:5.2f}"
    cores = f"{cpu_s[0] / rows * 1e9:5.0f} ns of a core a row, ceiling {cpu_s[1] / rows * 1e9:5.0f}"
    ratios = f"{wall_s[1] / wall_s[0]:4.0%}", f"{cpu_s[1] / cpu_s[0]:4.0%}"
    print(f"{store.name:>5} bytes, {columns:>4} columns: {speed}: {ratios[0]};  {cores}: {ratios[1]}", flush=True)


def compare_writer(spark: SparkSession, store: Path, rows: int, repeats: int) -> None:
    def write(frame: DataFrame) -> float:
        began_s = time.perf_counter()
        with tempfile.TemporaryDirectory() as out:
            frame.write.mode("overwrite").parquet(out)
        return rows / (time.perf_counter() - began_s)

    rates: list[tuple[float, float]] = []
    for _ in range(1 + repeats):
        frame = spark.read.format("rocketmq").schema(COLUMNS["few"]).load(str(store))
        ours = write(frame)
        frame.persist(StorageLevel.MEMORY_ONLY).count()
        rates.append((ours, write(frame)))
        frame.unpersist(blocking=True)
    ours, memory = (statistics.median(pair[side] for pair in rates[1:]) for side in (0, 1))
    ratio = statistics.median(pair[1] / pair[0] for pair in rates[1:])
    speed = f"{ours:,.0f} rows/s, from Spark's memory {memory:,.0f}: {ratio:.2f} times as many"
    print(f"{store.name:>5} bytes, to Parquet: {speed}", flush=True)


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for source in (RocketMQDataSource, CeilingSource):
        spark.dataSource.register(source)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--body", type=int, nargs="+", default=[100, 1024], help="bytes of a body")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--writer", action="store_true", help="to Parquet, beside the same rows from Spark's memory")
    parser.add_argument("--stores", type=Path, help="where to keep the stores for the next time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.stores or Path(temporary)
        for body_bytes in given.body:
            if not (directory / str(body_bytes)).exists():
                make_store(directory / str(body_bytes), given.rows, body_bytes)
        spark = session()
        for body_bytes in given.body:
            if given.writer:
                compare_writer(spark, directory / str(body_bytes), given.rows, given.repeats)
                continue
            for columns in given.columns:
                compare(spark, directory / str(body_bytes), given.rows, columns, given.repeats)
        spark.stop()


if __name__ == "__main__":
    main()
