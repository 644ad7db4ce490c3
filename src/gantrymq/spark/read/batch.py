"""Reading the partitions of a batch: planned on the driver, read on executors.

A reader is pickled before Spark asks it for partitions, so the results of planning travel in the partitions. Executors
need this package and either the store's files at the driver's paths or a way to the brokers. They take no lock, recover
nothing and commit no offset. :func:`read_partition` serves streams as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gantrymq.errors import CorruptRecordError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.pyspark_api import Filter, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.spark.runs import LogRun, PullRun
    from gantrymq.tools.arrow import LogBatch


def read_partition(run: LogRun | PullRun | None, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The messages of a partition in the order of the log, or queue by queue. Raises CorruptRecordError, StoreError.

    From a cluster it also raises DataLossError and RemotingError. ``run`` is None if there are no partitions, because
    Spark then makes one itself.
    """
    from gantrymq.tools.arrow import ArrowBatches

    if run is None:
        return
    arrow = ArrowBatches(
        arrow_schema(schema),
        decompress=options.decompress,
        broker_name=run.broker,
        refuse=None if options.fail_on_data_loss else _pass_over,
        max_decompressed_body_size=options.max_decompressed_body_size,
        builders=_further_columns(run),
    )
    for batch in _log_batches(run, options):
        yield from arrow.convert(batch)


def _further_columns(run: LogRun | PullRun) -> dict[str, Any]:
    from gantrymq.spark.runs import LogRun

    return run.pending.builders() if isinstance(run, LogRun) and run.pending is not None else {}


def _pass_over(error: CorruptRecordError) -> None:
    """Report a body that cannot be decompressed as a loss; decompress=false reads it as it is stored."""
    from gantrymq.spark.data_loss import report

    report([str(error)], fail=False)


def _log_batches(run: LogRun | PullRun, options: ReadOptions) -> Iterator[LogBatch]:
    from gantrymq.spark.runs import PullRun

    if isinstance(run, PullRun):
        from gantrymq.spark.read.pull import read_pulls

        return read_pulls(run, options)
    from gantrymq.spark.read.log import read_run

    return read_run(run, verify_crc=options.verify_crc, fail_on_data_loss=options.fail_on_data_loss)


class RocketMQReader(DataSourceReader):
    """Reads the columns of ``schema``, which was checked before."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read; their ``value`` has what ``read`` needs."""
        from gantrymq.spark.plan.batch import plan_batch

        return [InputPartition(part) for part in plan_batch(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition, in the order of the log. Raises CorruptRecordError, StoreError."""
        return read_partition(partition.value, self._options, self._schema)


class FilteringReader(RocketMQReader):
    """A reader for sessions with spark.sql.python.filterPushdown.enabled; Spark refuses it in others."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for planning. All are returned, so that Spark applies them again."""
        self._filters = tuple(filters)
        return filters
