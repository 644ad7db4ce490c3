"""Reading a partition on an executor: what batch and stream share.

Executors need this package, and the files of the store where the driver sees them or a way to the brokers; they take
no lock, recover nothing and commit no offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from gantrymq.errors import CorruptRecordError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.pyspark_api import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.spark.log_run import LogRun
    from gantrymq.spark.pull_run import PullRun
    from gantrymq.tools.log_batch import LogBatch


def read_partition(run: LogRun | PullRun | None, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The messages of a partition in the order of the log, or queue by queue; raises CorruptRecordError, StoreError.

    From a cluster also DataLossError and RemotingError. Of an empty list of partitions Spark makes one that is None.
    """
    from gantrymq.tools.arrow_batches import ArrowBatches

    if run is None:
        return
    arrow = ArrowBatches(
        arrow_schema(schema),
        decompress=options.decompress,
        broker_name=run.broker,
        refuse=None if options.fail_on_data_loss else _pass_over,
        max_decompressed_body_size=options.max_decompressed_body_size,
    )
    for batch in _log_batches(run, options):
        yield from arrow.convert(batch)


def _pass_over(error: CorruptRecordError) -> None:
    """A body that cannot be decompressed is damage, too; whoever wants it as it is stored asks for it."""
    from gantrymq.spark.data_loss import report

    report([str(error)], fail=False)


def _log_batches(run: LogRun | PullRun, options: ReadOptions) -> Iterator[LogBatch]:
    from gantrymq.spark.pull_run import PullRun

    if isinstance(run, PullRun):
        from gantrymq.spark.pull_reader import read_pulls

        return read_pulls(run, options)
    from gantrymq.spark.run_reader import read_run

    return read_run(run, verify_crc=options.verify_crc, fail_on_data_loss=options.fail_on_data_loss)
