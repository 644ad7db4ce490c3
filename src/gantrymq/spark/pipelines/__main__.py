"""``python -m gantrymq.spark.pipelines STORE REPORT.html``: the analysis of a store as a page.

Spark's settings come from ``spark-submit`` and ``SPARK_CONF_DIR``.
"""

from __future__ import annotations

import sys

from gantrymq.errors import GantrymqError
from gantrymq.spark.stderr_log import not_started

_USAGE = "usage: python -m gantrymq.spark.pipelines STORE REPORT.html"


def main(arguments: list[str]) -> int:
    """Write the page. Returns the exit code."""
    if len(arguments) != 2:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from gantrymq.spark.pipelines.report import write_analysis
    except ModuleNotFoundError as error:
        print(f"gantrymq: the page needs the module {error.name}: pip install 'gantrymq[report]'", file=sys.stderr)
        return 3

    store, report = arguments
    try:
        # Spark's own output stays as it is: a program for spark-submit has its logging configured already.
        session = SparkSession.builder.appName("gantrymq").getOrCreate()
    except (PySparkException, OSError) as error:
        print(f"gantrymq: {not_started(str(error))}", file=sys.stderr)
        return 3
    try:
        write_analysis(session, store, report)
    except (GantrymqError, OSError) as error:
        print(f"gantrymq: {error}", file=sys.stderr)
        return 3
    finally:
        session.stop()
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
