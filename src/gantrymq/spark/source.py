"""The data source as Spark sees it: its name, its schema, its readers.

Spark makes one for each ``load()``, in a Python process beside the driver, and asks it for a reader when a query is
planned. Neither opens the store longer than it takes.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from gantrymq.spark.options import ReadOptions
from gantrymq.spark.reader import RocketMQReader
from gantrymq.spark.schema import SCHEMA_DDL, check_schema


class RocketMQDataSource(DataSource):
    """``spark.read.format("rocketmq")``; options and columns stand in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The short name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """All columns; asked for only where the reader of the data gave no schema. Raises ConfigError, NotAStoreError.

        Options and path are looked at here so that ``load()`` fails, not the first action.
        """
        ReadOptions.parse(self.options).require_store()
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of the columns in ``schema``; raises ConfigError, NotAStoreError."""
        options = ReadOptions.parse(self.options)
        options.require_store()
        check_schema(schema)
        return RocketMQReader(options, schema)
