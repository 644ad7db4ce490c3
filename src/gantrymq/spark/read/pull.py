"""Reads a partition of a live cluster on an executor, slice by slice (:mod:`gantrymq.tables.sources.pulled`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.calls import SUBSCRIBE_ALL
from gantrymq.errors import CorruptRecordError, GantrymqError, MQBrokerError, NoRouteError, RemotingError, StoreError
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import new_columns
from gantrymq.model.message import SCHEDULE_TOPIC
from gantrymq.spark.cluster import ATTEMPTS, client_config
from gantrymq.spark.data_loss import report
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.runs import PullRun
from gantrymq.spark.selection import RowFilter
from gantrymq.tables.sources.pulled import BATCH_RECORDS, PulledSlice
from gantrymq.tools.arrow import LogBatch
from gantrymq.tools.queue_key import QueueSlice

_LOGGER = logging.getLogger(__name__)


def read_pulls(run: PullRun, options: ReadOptions) -> Iterator[LogBatch]:
    """The messages of ``run``, slice by slice, in the order of their offsets; no batch is empty.

    Raises DataLossError, CorruptRecordError, and RemotingError, NoRouteError or MQBrokerError with the queue that was
    being read.
    """
    rows, columns = run.rows or RowFilter(), new_columns(BATCH_RECORDS)
    check = codes.CHECK_MARK if options.verify_crc else codes.CHECK_OFF
    with PullClient(client_config(options), attempts=ATTEMPTS) as client:
        for wanted in run.slices:
            losses = _Losses(wanted.name, fail=options.fail_on_data_loss)
            reading = PulledSlice(client, wanted, columns, losses, expression=_expression(wanted, rows), check=check)
            try:
                for batch in map(rows.apply, reading.batches()):
                    if batch.count:
                        yield batch
            except (RemotingError, NoRouteError, MQBrokerError) as error:
                error.args = (f"{error}, while reading {wanted.name}, offsets {wanted.low} to {wanted.high - 1}",)
                raise


class _Losses:
    """Raises, or logs what a slice lacks, as failOnDataLoss says."""

    def __init__(self, name: str, *, fail: bool) -> None:
        self._name, self._fail = name, fail

    def lost(self, low: int, high: int) -> None:
        """Raise DataLossError, or log."""
        report([f"{self._name}: the messages at offsets {low} to {high - 1} are missing"], fail=self._fail)

    def unreadable(self, after_phy_offset: int) -> None:
        """Raise StoreError, or log."""
        reason = f"the broker sent bytes that are not a record, after the message at physical offset {after_phy_offset}"
        self._lose(StoreError(self._name, reason))

    def wrong_crc(self, queue_offset: int) -> None:
        """Raise CorruptRecordError, or log."""
        self._lose(CorruptRecordError(self._name, queue_offset, "its CRC is wrong"))

    def _lose(self, error: GantrymqError) -> None:
        if self._fail:
            raise error
        _LOGGER.warning("failOnDataLoss=false, continuing after: %s", error)


def _expression(wanted: QueueSlice, rows: RowFilter) -> str:
    """The tags expression for the broker; ``rows`` applies the other conditions, and the tags again.

    Messages of the schedule topic are not filtered by the broker: their tags code is the delivery time.
    """
    tags = rows.tags[0] if rows.tags and wanted.queue.topic != SCHEDULE_TOPIC else frozenset()
    plain = all(tag and tag == tag.strip() and "|" not in tag and tag != SUBSCRIBE_ALL for tag in tags)
    return "||".join(sorted(tags)) if tags and plain else SUBSCRIBE_ALL
