"""The data source as Spark sees it: its name, its schema, its readers and writers.

Spark creates one for each ``load()``, in a Python process beside the driver, and asks it for a reader when it plans a
query. A batch opens the store only for planning; a stream keeps it open.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from gantrymq.errors import ConfigError
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.pyspark_api import has_stream_writers, needs
from gantrymq.spark.read.batch import FilteringReader, RocketMQReader
from gantrymq.spark.read.stream import RocketMQStreamReader
from gantrymq.spark.schema import check_schema, default_schema
from gantrymq.spark.write.cluster import ClusterBatchWriter, ClusterStreamWriter
from gantrymq.spark.write.options import WriteOptions
from gantrymq.spark.write.store import StoreBatchWriter, StoreStreamWriter

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class RocketMQDataSource(DataSource):
    """``format("rocketmq")``; docs/spark.md describes its options and columns."""

    @classmethod
    def name(cls) -> str:
        """The short name of the format."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns of a read without a schema of its own. Raises ConfigError, NotAStoreError.

        Options and path are checked here so that ``load()`` fails, not the first action.
        """
        options = ReadOptions.parse(self.options)
        schema = default_schema(options.columns, properties=options.include_properties, pending=options.pending)
        _require_origin(options)
        return schema

    def reader(self, schema: StructType) -> RocketMQReader:
        """A batch reader of the columns in ``schema``. Raises ConfigError, NotAStoreError."""
        options = ReadOptions.parse(self.options, streaming=False)
        _require_origin(options)
        check_schema(schema, pending=options.pending)
        # Push filters only on request: Spark 4.3 keeps the filtered reader for all uses of a loaded DataFrame, so that
        # other uses would miss rows. Spark also refuses a reader with filters if its setting is off. The setting is on
        # in the process that Spark starts for pushing filters down.
        pushes = options.filter_pushdown and _PUSHDOWN_WORKER in sys.modules
        return FilteringReader(options, schema) if pushes else RocketMQReader(options, schema)

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:
        """A reader for micro-batches of the columns in ``schema``; raises ConfigError."""
        options = ReadOptions.parse(self.options, streaming=True)
        check_schema(schema)
        return RocketMQStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends a DataFrame; raises ConfigError."""
        options = _checked_write(self.options, schema, overwrite=overwrite)
        return StoreBatchWriter(options, schema) if options.path else ClusterBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer that appends micro-batches; raises ConfigError."""
        if not has_stream_writers():
            raise needs("writing a stream", "4.1")
        options = _checked_write(self.options, schema, overwrite=overwrite)
        return StoreStreamWriter(options, schema) if options.path else ClusterStreamWriter(options)


def _checked_write(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteOptions:
    from gantrymq.spark.write.rows import check_columns

    options = WriteOptions.parse(given)
    if overwrite:
        raise ConfigError("mode", "overwrite", "append: messages are only ever added")
    check_columns(schema, topic=options.topic, deliver=options.nameserver is not None)
    return options


def _require_origin(options: ReadOptions) -> None:
    """Raise NotAStoreError if a path holds no store, ConfigError if certificates cannot be loaded."""
    if options.path:
        from gantrymq.tools.locations import find_stores

        find_stores(options.path, options.broker_name, options.store_path_commit_log)
    elif options.tls:
        from gantrymq.spark.cluster import client_config, require_certificates

        require_certificates(client_config(options))
