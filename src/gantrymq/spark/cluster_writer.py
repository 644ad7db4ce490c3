"""The writers into a live cluster, batch and streaming: executors send, and the driver has nothing left to commit.

Delivery is at least once. A batch or task that Spark repeats sends its rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from gantrymq.spark.pyspark_api import DataSourceStreamArrowWriter
from gantrymq.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task sent; every row was acknowledged."""

    rows: int


class ClusterBatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        _check(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a partition; raises what :func:`gantrymq.spark.cluster_sink.send_rows` raises."""
        return _send(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say how many rows were sent."""
        _LOGGER.info("%d messages sent to %s", _rows(messages), self._options.nameserver)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what has been sent all the same: nobody can take a message back."""
        _say_what_stays(messages)


class ClusterStreamWriter(DataSourceStreamArrowWriter):
    """Sends micro-batches; one that Spark repeats is sent again."""

    def __init__(self, options: WriteOptions) -> None:
        _check(options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a partition; raises what :func:`gantrymq.spark.cluster_sink.send_rows` raises."""
        return _send(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Say how many rows were sent."""
        _LOGGER.info("batch %d: %d messages sent to %s", batchId, _rows(messages), self._options.nameserver)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Say what has been sent all the same: nobody can take a message back."""
        _say_what_stays(messages)


def _check(options: WriteOptions) -> None:
    """Raise ConfigError for what the producer would not take."""
    from gantrymq.spark.cluster import require_certificates
    from gantrymq.spark.cluster_sink import producer_config

    require_certificates(producer_config(options))


def _send(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Sent:
    from gantrymq.spark.cluster_sink import send_rows

    return Sent(send_rows(options, batches))


def _rows(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Sent))


def _say_what_stays(messages: list[WriterCommitMessage | None]) -> None:
    _LOGGER.warning("the write failed; at least %d of its messages have been sent, and stay", _rows(messages))
