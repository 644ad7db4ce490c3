"""One Spark of the race of spark_kafka.py: a driver that reads orders, a JSON object a line, and answers each.

It is started twice, with the PySpark of this project and with the one that Kafka's connector is for, and so it imports
nothing of gantrymq before it is asked to read a store or a broker.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from cpu_time import cpu_seconds
from pyspark.sql import DataFrame, SparkSession


def session(jars: str, temporary: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
    builder = builder.config("spark.local.dir", temporary)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not jars:
        from spark_read import CeilingSource

        from gantrymq.spark import RocketMQDataSource

        for source in (RocketMQDataSource, CeilingSource):
            spark.dataSource.register(source)
    return spark


def frame(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Topic and body of every message."""
    reading = spark.read.format(order["format"]).options(**order["options"])
    if order["format"] == "kafka":
        return reading.load().select("topic", "value")
    return reading.schema("topic string, body binary").load()


def answer(spark: SparkSession, order: dict[str, Any]) -> dict[str, Any]:
    if "fill" in order:
        bodies = spark.read.parquet(order["fill"]).selectExpr("body AS value")
        bodies.write.format("kafka").options(**order["options"]).save()
        return {}
    cpu_s, began_s = cpu_seconds(), time.perf_counter()
    source = frame(spark, order)
    if order["to"] == "count":
        return {"rows": source.count()}
    if order["to"] == "parquet":
        source.write.mode("overwrite").parquet(order["target"])
    else:
        source.write.format("noop").mode("overwrite").save()
    found = {"wall_s": time.perf_counter() - began_s, "cpu_s": cpu_seconds() - cpu_s}
    if order["to"] == "parquet":
        shutil.rmtree(order["target"])
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints goes elsewhere
    spark = session(*sys.argv[1:])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
