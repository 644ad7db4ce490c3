"""Reading a partition on an executor: what batch and stream share.

Executors need this package and the files of the store where the driver sees them; they take no lock and recover
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from gantrymq.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.spark.log_run import LogRun


def read_partition(run: LogRun | None, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The messages of a partition in the order of the log; raises CorruptRecordError, StoreError.

    Of an empty list of partitions Spark makes one that is None.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from gantrymq.spark.run_reader import read_run
    from gantrymq.tools.arrow_batches import ArrowBatches

    if run is None:
        return
    # Spark compares this schema with its own, field by field.
    arrow = ArrowBatches(to_arrow_schema(schema, timezone="UTC"), decompress=options.decompress, broker_name=run.broker)
    for batch in read_run(run, verify_crc=options.verify_crc, fail_on_data_loss=options.fail_on_data_loss):
        yield arrow.convert(batch)
