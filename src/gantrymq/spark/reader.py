"""The batch reader: plans on the driver, reads on executors.

It is pickled before it is asked for partitions, so what planning finds out travels in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gantrymq.spark.options import ReadOptions
from gantrymq.spark.pyspark_api import Filter
from gantrymq.spark.reading import read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class RocketMQReader(DataSourceReader):
    """Reads the columns of ``schema``, which has been checked."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """One for each part of what is to be read; their ``value`` is what ``read`` needs to know."""
        from gantrymq.spark.batch_plan import plan_batch

        return [InputPartition(part) for part in plan_batch(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition, in the order of the log; raises CorruptRecordError, StoreError."""
        return read_partition(partition.value, self._options, self._schema)


class FilteringReader(RocketMQReader):
    """The same for sessions with spark.sql.python.filterPushdown.enabled: in others Spark refuses it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters that help. All go back: Spark looks at what comes once more."""
        self._filters = tuple(filters)
        return filters
