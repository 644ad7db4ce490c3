"""A driver of a landing whose Python workers are killed in the middle of what they write.

    python landing_driver.py STORE TABLE FORMAT WAREHOUSE COMMIT_ROWS

Each task's first attempt ends by SIGKILL after it has written a file. The rows of the commits are printed.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from gantrymq.spark.landing.engine import SparkEngine
from gantrymq.tables.bodies.body_format import DecodedBodies
from gantrymq.tables.bodies.plain import RawBodies
from gantrymq.tables.landing import Landing
from gantrymq.tables.local.target import TableFormat, TableTarget
from gantrymq.tables.options import LandOptions
from gantrymq.tables.sources import log_look
from gantrymq.tables.sources.stores import StoreMessages


@dataclass(frozen=True)
class KillingBodies(RawBodies):
    """Raw bodies whose second run ends the first attempt of a task."""

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Decode them, or end the process."""
        from gantrymq.tables.local import part_files

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            part_files.FILE_BYTES = 1
            if getattr(part_files, "decoded_in", None) == context.taskAttemptId():
                os.kill(os.getpid(), signal.SIGKILL)
            part_files.decoded_in = context.taskAttemptId()  # type: ignore[attr-defined]
        return super().decode(bodies)


@dataclass(frozen=True, slots=True)
class KillingOptions(LandOptions):
    """The options of a landing with these bodies."""

    def body_format(self) -> Any:
        """Their format."""
        return KillingBodies()


def main() -> None:
    """Land once."""
    store, table, kind, warehouse, rows = sys.argv[1:]
    log_look.CUT_BYTES = 60_000
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    for key in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.config("spark.pyspark.python", sys.executable).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    target = TableTarget(table, TableFormat(kind), warehouse or None)
    engine = SparkEngine(target.open(), spark)
    landing = Landing(
        engine, lambda choice: StoreMessages([store], choice), KillingOptions(pattern=".*"), commit_rows=int(rows)
    )
    for commit in landing.run_pass():
        print(commit.totals.rows)
    spark.stop()


if __name__ == "__main__":
    main()
