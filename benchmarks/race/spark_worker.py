"""One Spark of a race: a driver that reads orders, one JSON object per line, and answers each.

    python spark_worker.py DIRECTORY_OF_JARS TEMPORARY

It runs with the PySpark of this project, and with the one for Kafka's connector. Therefore it imports nothing of
gantrymq before it must read a store or a broker. An order has ``do`` (read, write or land).

| do | |
|---|---|
| read | ``format``, ``options``, ``to``: noop, parquet (a directory that is removed unless ``keep``), delta or count |
| | ``plain``: a plain ``load()`` with the default columns; ``typed``: the DDL of JSON bodies |
| write | ``format`` and ``options``; the directory of its Parquet ``rows``, and the SQL ``columns`` to select |
| land | the ``arguments`` of :func:`gantrymq.spark.land` |

``register`` names one more data source, ``module:Class``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def cpu_seconds() -> float:
    """The CPU time of this process and its descendants (the JVM, Spark's Python workers) in seconds."""
    parents, used = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
        used[int(status.parent.name)] = sum(map(int, fields[11:13]))
    total, family = 0, [os.getpid()]
    while family:
        process = family.pop()
        total += used.get(process, 0)
        family += [child for child, parent in parents.items() if parent == process]
    return total / os.sysconf("SC_CLK_TCK")


def session(jars: str, temporary: str) -> SparkSession:
    """A Spark of two cores, with Kafka's connector or with ours."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
    builder = builder.config("spark.local.dir", temporary)
    # As docs/spark.md advises. Kafka's connector has no Python workers.
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not jars:
        from gantrymq.spark import RocketMQDataSource

        spark.dataSource.register(RocketMQDataSource)
    return spark


def frame(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Topic and body of every message; with ``plain`` the columns of a read without a schema."""
    if "register" in order:
        module, _, name = order["register"].partition(":")
        spark.dataSource.register(getattr(import_module(module), name))
    reading = spark.read.format(order["format"]).options(**order["options"])
    if "typed" in order:
        parsed = f"from_json(cast(value as string), '{order['typed']}') as body"
        return reading.load().selectExpr("topic", "partition", "offset", "timestamp", parsed)
    if order.get("plain"):
        return reading.load()
    if order["format"] == "kafka":
        return reading.load().select("topic", "value")
    return reading.schema("topic string, body binary").load()


def answer(spark: SparkSession, order: dict[str, Any]) -> dict[str, Any]:
    """Execute an order and return its wall time and CPU time in seconds."""
    if order.get("to") == "count":
        return {"rows": frame(spark, order).count()}
    cpu_s, began_s = cpu_seconds(), time.perf_counter()
    if order["do"] == "write":
        rows = spark.read.parquet(order["rows"]).selectExpr(*order["columns"])
        rows.write.format(order["format"]).options(**order["options"]).mode("append").save()
    elif order["do"] == "land":
        from gantrymq.spark import land

        land(spark, **order["arguments"])
    elif order["to"] == "delta":
        frame(spark, order).write.format("delta").mode("append").save(order["target"])
    elif order["to"] == "parquet":
        frame(spark, order).write.mode("overwrite").parquet(order["target"])
    else:
        frame(spark, order).write.format("noop").mode("overwrite").save()
    found = {"wall_s": time.perf_counter() - began_s, "cpu_s": cpu_seconds() - cpu_s}
    if order.get("to") == "parquet" and not order.get("keep"):
        shutil.rmtree(order["target"])
    return found


def main() -> None:
    """Answer orders until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout is for answers; Spark prints to stderr
    spark = session(*sys.argv[1:])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
