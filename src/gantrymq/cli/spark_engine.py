"""``--engine spark``: its options, and its Spark session."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.spark.stderr_log import not_started, stderr_into

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_MASTER = "spark.master"
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has configured Spark


class Engine(StrEnum):
    """The engine of a command: this process, or Spark, whose executors share the files."""

    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    Engine,
    typer.Option("--engine", help="local: this process. spark: executors that share the files."),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="With --engine spark: a setting such as spark.master=spark://host:7077. May be given more than once.",
    ),
]


@contextmanager
def spark_session(assignments: list[str] | None) -> Iterator[SparkSession]:
    """A Spark session for the ``with`` block, on all cores of this machine unless Spark's settings name a master.

    An existing session of this process is used and not stopped. Raises ConfigError if PySpark is missing or a setting
    is malformed, GantrymqError if Spark does not start.
    """
    settings = _settings(assignments)
    if (running := _running()) is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="gantrymq-spark-") as work:
        session = _start(settings, Path(work))
        from py4j.protocol import Py4JError

        from gantrymq.spark.pipelines.jobs import while_spark_runs

        try:
            with while_spark_runs(session):
                yield session
        finally:
            with suppress(Py4JError, ConnectionError):  # Spark's process has ended before
                session.stop()


@contextmanager
def on_spark(assignments: list[str] | None, *, shown: bool = True) -> Iterator[SparkSession]:
    """The same, with a progress bar of its tasks on a terminal.

    Import the pipelines within the block: without the extra their import names pyarrow, and another extra.
    """
    _require_spark()
    from gantrymq.cli.terminal import progress
    from gantrymq.spark.pipelines.jobs import watched

    with spark_session(assignments) as session, progress("tasks", shown=shown) as bar, watched(session, bar):
        yield session


def _settings(assignments: list[str] | None) -> dict[str, str]:
    from gantrymq.errors import ConfigError

    settings = {}
    for assignment in assignments or ():
        key, equals, value = assignment.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError("--spark-conf", assignment, "KEY=VALUE with a key that begins with spark.")
        settings[key] = value
    return settings


def _running() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _start(given: dict[str, str], work: Path) -> SparkSession:
    _require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("gantrymq")
    for key, value in ({"spark.ui.showConsoleProgress": "false"} | _here(given, work) | given).items():
        builder = builder.config(key, value)
    log = work / "start.log"
    try:
        with stderr_into(log):
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        raise not_started(lines[-1] if lines else str(error)) from error
    return session


def _require_spark() -> None:
    """Raise ConfigError without the extra ``spark``."""
    from gantrymq.errors import ConfigError

    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise ConfigError(
            "--engine", "spark", "local; for Spark install PySpark: pip install 'gantrymq[spark]'"
        ) from None


def _here(given: dict[str, str], work: Path) -> dict[str, str]:
    """The settings of a local Spark that logs only errors; empty if a master is configured."""
    defaults = Path(os.environ.get("SPARK_CONF_DIR", "/nowhere")) / "spark-defaults.conf"
    is_elsewhere = _MASTER in given or "MASTER" in os.environ or _GATEWAY in os.environ
    if is_elsewhere or (defaults.exists() and _MASTER in defaults.read_text("utf-8")):
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOG4J, "utf-8")
    return {
        _MASTER: "local[*,4]",  # a task whose Python is killed is tried again, as on a cluster
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log4j.as_uri()}"',
        "spark.local.dir": str(work),
        "spark.ui.enabled": "false",
    }
