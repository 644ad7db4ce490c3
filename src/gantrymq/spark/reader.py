"""The batch reader: plans on the driver, reads on executors.

It is pickled before it is asked for partitions, so what planning finds out travels in them. Executors need this
package and the store's files at the path that the driver sees them at; they take no lock and recover nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gantrymq.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class RocketMQReader(DataSourceReader):
    """Reads the columns of ``schema``, which has been checked."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One for each run of the log; their ``value`` is a LogRun. Of an empty list Spark makes one with None."""
        from gantrymq.spark.planning import plan_runs

        return [InputPartition(run) for run in plan_runs(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition in the order of the log; raises CorruptRecordError, StoreError."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from gantrymq.spark.run_reader import read_run
        from gantrymq.tools.arrow_batches import ArrowBatches

        if partition.value is None:
            return
        # Spark compares this schema with its own, field by field.
        schema = to_arrow_schema(self._schema, timezone="UTC")
        options = self._options
        arrow = ArrowBatches(schema, decompress=options.decompress, broker_name=options.broker_name)
        for batch in read_run(
            partition.value, verify_crc=options.verify_crc, fail_on_data_loss=options.fail_on_data_loss
        ):
            yield arrow.convert(batch)
