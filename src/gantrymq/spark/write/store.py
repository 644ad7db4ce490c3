"""Writes rows to a store, batch and streaming: executors stage rows, the driver commits them.

Executors check each row against the store's limits before anything is put: a batch is stored as a whole or not at all.

Spark pickles a writer to its executors, and creates a new one for each commit of a stream. Only the executors know the
query of a batch (a local property of its tasks) and, before the commit, its number. They return both with what they
staged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, StoreError
from gantrymq.format.names import is_topic_storable
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.host import Host
from gantrymq.model.message import Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.spark.pyspark_api import DataSourceStreamArrowWriter
from gantrymq.spark.write.options import WriteOptions
from gantrymq.spark.write.writer_names import unique_writer_name
from gantrymq.store.geometry import find_file_sizes
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.log.batch import messages_of, of_table
from gantrymq.store.paths import StorePaths

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.spark.write.store_sink import StoreSink


_HOST = Host.parse("127.0.0.1:10911")


def check_rows(options: WriteOptions, tables: Iterator[Any]) -> Iterator[Any]:
    """Yield the tables unchanged. Raises ConfigError for the first row that the store would refuse."""
    config = _store_config(options)
    checked = 0
    for table in tables:
        if of_table(table, config) is None:
            _check_one_by_one(table, config, checked)
        checked += table.num_rows
        yield table


def _store_config(options: WriteOptions) -> MessageStoreConfig:
    assert options.path is not None
    config, given = options.store_settings()
    return find_file_sizes(RealFileSystem(), StorePaths.of(Path(options.path), config), config, given)


def _check_one_by_one(table: Any, config: MessageStoreConfig, first: int) -> None:
    for number, message in enumerate(messages_of(table)):
        status = AppendableMessage(message).check(config, _HOST)
        if status is not PutMessageStatus.PUT_OK:
            raise _refused(message, config, f"row {first + number} of the partition is {status.value}")


def _refused(message: Message, config: MessageStoreConfig, where: str) -> ConfigError:
    """The error with the column that the store would refuse."""
    if not is_topic_storable(message.topic):
        return ConfigError("column topic", message.topic, f"a name of a topic; {where}")
    if AppendableMessage(replace(message, body=b"")).check(config, _HOST) is PutMessageStatus.PUT_OK:
        allowed = f"at most maxMessageSize, and with all that goes along what a log file holds; {where}"
        return ConfigError("column body", f"{len(message.body)} bytes", allowed)
    shown = ", ".join(message.properties) or "tags, keys"
    allowed = "names and values without 0x01, 0x02 and 512 zero bytes in a row, together below 32 KiB and a log file"
    return ConfigError("column properties", shown, f"{allowed}; {where}")


_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task staged, with the names of its writer and query."""

    app: str
    path: str
    rows: int
    query: str | None = None


class StoreBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame to a store: all of its rows, or none after a failure.

    The exception is a commit that fails while it puts rows: the next commit of any writer to that store puts the rest.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _prepare(options)
        self._options = options
        self._app = options.txn_app_id or unique_writer_name()
        self._version = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition. Raises ConfigError with column and row."""
        return _stage(self._options, self._app, self._version, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Put what was staged; with txnAppId and txnVersion only if it was not put before."""
        files = _files(_all_staged(self._options, messages))
        _sink(self._options).commit(self._app, self._version, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged. Without a txnAppId, also refuse what tasks that are still running stage."""
        if self._options.txn_app_id is None:
            _sink(self._options).give_up(self._app)
        else:
            _sink(self._options).abort(_files(messages))


class StoreStreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches to a store, each exactly once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _prepare(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition. Raises ConfigError with column and row."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        app = self._options.txn_app_id or query
        if not app:
            raise ConfigError("txnAppId", "", "a name for this query: Spark does not say which one it is")
        # A file without a number counts as of batch 0: it may be removed early, and then the batch is repeated.
        batch = (context and context.getLocalProperty(_BATCH_ID)) or 0
        return _stage(self._options, app, int(batch), iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Put what was staged, unless the ledger already has this batch of this query."""
        staged = _all_staged(self._options, messages)
        for app, query in {(message.app, message.query) for message in staged}:
            _sink(self._options).commit(app, batchId, _files(staged), query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged."""
        _sink(self._options).abort(_files(messages))


def _stage(
    options: WriteOptions, app: str, batch: int, batches: Iterator[pa.RecordBatch], query: str | None = None
) -> Staged:
    from pyspark import TaskContext

    from gantrymq.spark.write.rows import STAGED, OutgoingRows
    from gantrymq.spark.write.staging import stage

    assert options.path is not None
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    rows = OutgoingRows(
        topic=options.topic, queue_num=options.queue_num, partition=partition, born_ms=time.time_ns() // 1_000_000
    )
    path = stage(options.path, app, batch, check_rows(options, rows.staged(batches)), STAGED)
    return Staged(app, str(path), rows.count, query)


def _prepare(options: WriteOptions) -> None:
    _sink(options).make_store()


def _all_staged(options: WriteOptions, messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """The reports of all tasks. Raises StoreError if one is missing."""
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) < len(messages):
        assert options.path is not None
        missing = len(messages) - len(staged)
        raise StoreError(
            options.path, f"{missing} of {len(messages)} tasks did not report what they staged: nothing is stored"
        )
    return staged


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Path]:
    return [Path(message.path) for message in messages if isinstance(message, Staged)]


def _sink(options: WriteOptions) -> StoreSink:
    from gantrymq.spark.write.store_sink import StoreSink

    return StoreSink(options)
