"""The Spark job: reads the store (never the CSV), parses the JSON bodies and answers the questions.

Its session is local and quiet: two cores, no web pages, output in a log file, no process left behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from demo.failure import DemoError
from demo.flights import COLUMNS
from demo.questions import QUESTIONS
from gantrymq.clock import Clock
from gantrymq.spark.stderr_log import stderr_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_GOODBYE_S = 20
_SHOWN = 2000


@contextmanager
def spark_session(work: Path) -> Iterator[SparkSession]:
    """A session for the ``with`` block. All its files are below ``work``; its log is ``work/spark.log``.

    Raises DemoError if Spark cannot start or a job fails.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    log = work / "spark.log"
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOG4J, "utf-8")
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("gantrymq demo")
    for key, value in _settings(work, log4j).items():
        builder = builder.config(key, value)
    try:
        with stderr_into(log):
            session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    except PySparkException as error:
        # The Java process supplies the text, so it must be read while that process runs.
        reason = str(error).strip()
        raise DemoError(f"Spark failed, {log} says more:\n  {reason[-_SHOWN:]}") from error
    finally:
        _end_java()


def _settings(work: Path, log4j: Path) -> dict[str, str]:
    work = work.resolve()
    # The quotes allow blanks in a path. Level 1: a job of seconds ends before optimized code would pay off.
    java = f'"-Dlog4j2.configurationFile={log4j.resolve().as_uri()}" "-Djava.io.tmpdir={work}"'
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{java} -XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
        "spark.local.dir": str(work),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _end_java() -> None:
    """End the Java process, which pyspark would leave running until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # Java ends when its standard input is closed.
    process.stdin.close()
    process.wait(_GOODBYE_S)


SLICE_MS = 20

# The messages stored in each slice of time, by the store timestamps.
THROUGHPUT = f"""
SELECT unix_millis(store_timestamp) div {SLICE_MS} * {SLICE_MS} AS at_ms, count(*) AS messages, sum(size) AS bytes
FROM flights GROUP BY 1 ORDER BY 1"""


@dataclass(slots=True)
class Answers:
    """The results: a table for each question, the throughput, and the time of each step."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    stored_by_slice: pa.Table = field(default_factory=lambda: pa.table({"at_ms": [], "messages": [], "bytes": []}))
    read_s: float = 0.0
    rows: int = 0
    took_s: dict[str, float] = field(default_factory=dict)


# The columns that the questions need. The source decodes only the columns of the schema.
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


# The fields of the JSON bodies that the questions need.
BODY_FIELDS = (
    *("month", "day", "hour", "dep_time", "dep_delay", "arr_delay", "carrier", "tailnum", "origin", "dest"),
    *("air_time", "distance"),
)


def read_store(spark: SparkSession, store: Path) -> DataFrame:
    """The store as a DataFrame with one row for each message."""
    schema = ", ".join(f"{name} {kind}" for name, kind in STORE_COLUMNS.items())
    return spark.read.format("rocketmq").schema(schema).option("path", str(store)).load()


def with_bodies(messages: DataFrame) -> DataFrame:
    """``messages`` with columns for the fields of their bodies."""
    types = {pa.int64(): "BIGINT", pa.string(): "STRING"}
    fields = ", ".join(f"{name} {types[COLUMNS[name]]}" for name in BODY_FIELDS)
    kept = [name for name in STORE_COLUMNS if name != "body"]
    parsed = messages.selectExpr(*kept, f"from_json(CAST(body AS STRING), '{fields}') AS flight_row")
    return parsed.selectExpr(*kept, "flight_row.*")


def answer_all(spark: SparkSession, messages: DataFrame, clock: Clock, asked: Callable[[int], None]) -> Answers:
    """Read ``messages`` once, cache them, and answer everything. ``asked`` is called with the number of steps done."""
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
