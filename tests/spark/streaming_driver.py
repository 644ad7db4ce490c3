"""A driver of its own: follows the store at argv[1] into the store at argv[2], checkpoint at argv[3].

argv[4]: how many rows a micro-batch has at most. It prints a line for each batch that was committed, and ends when
argv[5] batches are.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession


def main() -> None:
    source, sink, checkpoint, rows, batches = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    reading = spark.readStream.format("rocketmq").schema("topic string, body binary, queue_id int")
    stream = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows).load(source)
    query = stream.writeStream.format("rocketmq").option("checkpointLocation", checkpoint).start(sink)
    print("started", flush=True)
    done = -1
    while done + 1 < int(batches) and query.isActive:
        now = query.lastProgress
        if now is not None and now["batchId"] > done:
            done = now["batchId"]
            print(done, flush=True)
        time.sleep(0.02)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
