"""Explores topics of a store or a cluster with Spark, cell by cell, as in a notebook.

    python examples/explore_topics.py STORE_OR_NAMESERVER TOPIC

An editor that knows `# %%` runs it cell by cell; Jupyter opens it with jupytext.
"""

# %% Where the messages are: a store directory, or host:port of a name server
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, topic = sys.argv[1:3]
spark = SparkSession.builder.appName("explore").config("spark.ui.enabled", "false").getOrCreate()

# %% The topic as a table; nothing is read yet
origin = "nameserver" if ":" in source and "/" not in source else "path"
messages = (
    spark.read.format("rocketmq").option(origin, source).option("subscribe", topic).option("columns", "all").load()
)
messages.printSchema()

# %% How many, from when to when, and how large
messages.select(
    F.count("*").alias("messages"),
    F.min("store_timestamp").alias("first"),
    F.max("store_timestamp").alias("last"),
    F.round(F.avg(F.length("body"))).alias("bytes"),
).show(truncate=False)

# %% The most frequent tags
messages.groupBy("tags").count().orderBy(F.desc("count"), "tags").show()

# %% Bodies that are JSON, as columns
orders = messages.select(
    "queue_id", "queue_offset", F.from_json(F.col("body").cast("string"), "cents bigint").alias("order")
)
orders.agg(F.sum("order.cents").alias("cents")).show()

# %% How long messages took to the broker
messages.select(
    F.percentile_approx(
        (F.col("store_timestamp").cast("double") - F.col("born_timestamp").cast("double")) * 1000, [0.5, 0.99]
    ).alias("ms_p50_p99")
).show(truncate=False)

spark.stop()
