"""A quiet Spark of this machine alone: two cores, no web pages, its words in a log, no process left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from demo.failure import DemoError
from gantrymq.spark.stderr_log import stderr_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """A session for the ``with`` block; all it writes is below ``work``, its log is ``work/spark.log``.

    Raises DemoError where Spark cannot start, or cannot do what the block asks for.
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
        # Its text comes from the Java process, so it must be asked for while that runs.
        reason = str(error).strip()
        raise DemoError(f"Spark failed, {log} says more:\n  {reason[-_SHOWN:]}") from error
    finally:
        _end_java()


def _settings(work: Path, log4j: Path) -> dict[str, str]:
    work = work.resolve()
    # In quotes, for a path may have blanks. A job of seconds does not live to see its code optimized (level 1).
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
    """End the Java process, which pyspark would leave running until this one ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # It ends when its standard input does.
    process.stdin.close()
    process.wait(_GOODBYE_S)
