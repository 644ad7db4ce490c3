"""Reads a partition of a live cluster on an executor: pulled records, with many pulls in one batch.

A broker answers with the records of its log, byte for byte, so the kernels for a store's files read them too. Offsets
of a queue have no gaps, so a missing one was deleted before it could be read. If the broker filters by tags, gaps prove
nothing. Messages are deleted from the front, so the reader then checks at the end whether the first one still exists.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import numpy as np

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.pull.segments import PulledRecords
from gantrymq.client.requests.calls import SUBSCRIBE_ALL, PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import CorruptRecordError, GantrymqError, MQBrokerError, NoRouteError, RemotingError, StoreError
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import Int64s, new_columns, read_only
from gantrymq.model.message import SCHEDULE_TOPIC
from gantrymq.remoting.codes import ResponseCode
from gantrymq.spark.cluster import ATTEMPTS, client_config
from gantrymq.spark.data_loss import report
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.runs import PullRun, QueueSlice
from gantrymq.spark.selection import QueueKey, RowFilter
from gantrymq.tools.arrow import LogBatch, texts_array

BATCH_RECORDS = 16_384
CHUNK_BYTES = 4 << 20
_NO_SUCH_QUEUE = r"queueId\[\d+\] is illegal"  # PullMessageProcessor
_LOGGER = logging.getLogger(__name__)


def read_pulls(run: PullRun, options: ReadOptions) -> Iterator[LogBatch]:
    """The messages of ``run``, slice by slice, in the order of their offsets; no batch is empty.

    Raises DataLossError, CorruptRecordError, and RemotingError, NoRouteError or MQBrokerError with the queue that was
    being read.
    """
    rows, columns = run.rows or RowFilter(), new_columns(BATCH_RECORDS)
    with PullClient(client_config(options), attempts=ATTEMPTS) as client:
        for wanted in run.slices:
            reading = _SliceReader(client, wanted, rows, columns, options)
            try:
                for batch in map(rows.apply, reading.batches()):
                    if batch.count:
                        yield batch
            except (RemotingError, NoRouteError, MQBrokerError) as error:
                error.args = (f"{error}, while reading {_shown(wanted)}, offsets {wanted.low} to {wanted.high - 1}",)
                raise


def _shown(wanted: QueueSlice) -> str:
    return str(QueueKey(wanted.queue.broker_name, wanted.shown, wanted.queue.queue_id))


class _SliceReader:
    """Reads one slice, once. ``columns`` are reused for each batch."""

    def __init__(
        self, client: PullClient, wanted: QueueSlice, rows: RowFilter, columns: Int64s, options: ReadOptions
    ) -> None:
        self._client, self._wanted, self._columns = client, wanted, columns
        self._expression = _expression(wanted, rows)
        self._fail = options.fail_on_data_loss
        self._check = codes.CHECK_MARK if options.verify_crc else codes.CHECK_OFF
        self._topics = texts_array([wanted.shown])
        self._next = wanted.low
        self._is_gone = False

    def batches(self) -> Iterator[LogBatch]:
        """Yield every message; a batch is valid until the next one."""
        wanted, records, size = self._wanted, [], 0
        for pulled in self._pulled():
            records.append(pulled.records)
            size += len(pulled.records)
            if size >= CHUNK_BYTES:
                yield from self._scanned(b"".join(records))
                records, size = [], 0
        yield from self._scanned(b"".join(records))
        if self._is_gone or self._expression == SUBSCRIBE_ALL:
            self._came_to(wanted.high)
        else:
            self._look_back()

    def _pulled(self) -> Iterator[PulledRecords]:
        """Yield the broker's records; stops if the broker answers that the queue does not exist."""
        wanted = self._wanted
        try:
            yield from self._client.read(wanted.queue, wanted.low, wanted.high, expression=self._expression)
        except MQBrokerError as error:
            if not _says_gone(error):
                raise
            self._is_gone = True

    def _scanned(self, data: bytes) -> Iterator[LogBatch]:
        chunk, position = read_only(data), 0
        while position < len(chunk):
            count, code, stop = scan(chunk, position, len(chunk), len(chunk), self._check, self._columns)
            if count:
                yield self._batch(chunk, count)
            if code not in (codes.STOP_RANGE, codes.STOP_FULL):
                at = int(self._columns[codes.PHY_OFFSET, count - 1]) if count else -1
                reason = f"the broker sent bytes that are not a record, after the message at physical offset {at}"
                return self._lose(StoreError(_shown(self._wanted), reason))
            position = stop

    def _batch(self, chunk: np.ndarray, count: int) -> LogBatch:
        path, queues = _shown(self._wanted), np.zeros(count, np.int64)
        batch = LogBatch(path, 0, chunk, self._columns, count, queues, self._topics)
        self._look_for_gaps(batch.row(codes.QUEUE_OFFSET))
        if self._check != codes.CHECK_OFF and not (right := batch.row(codes.CRC_OK) != 0).all():
            for offset in batch.row(codes.QUEUE_OFFSET)[~right].tolist():
                self._lose(CorruptRecordError(path, offset, "its CRC is wrong"))
            batch = batch.take(right)
        return batch

    def _look_for_gaps(self, offsets: Int64s) -> None:
        last = int(offsets[-1])
        if self._expression == SUBSCRIBE_ALL and last + 1 - self._next != len(offsets):
            edges = np.concatenate(([self._next - 1], offsets))
            for at in np.flatnonzero(np.diff(edges) > 1).tolist():
                self._lost(int(edges[at]) + 1, int(edges[at + 1]))
        self._next = last + 1

    def _came_to(self, offset: int) -> None:
        if self._next < offset:
            self._lost(self._next, offset)

    def _look_back(self) -> None:
        first = self._client.pull(self._wanted.queue, self._wanted.low, 1)
        there = next(decode_records(first.records, decompressed=False)).queue_offset if first.records else -1
        if first.status is not PullStatus.FOUND or there != self._wanted.low:
            self._lost(self._wanted.low, max(there, first.min_offset, self._wanted.low + 1))
        elif first.max_offset < self._wanted.high:
            self._lost(first.max_offset, self._wanted.high)

    def _lost(self, low: int, high: int) -> None:
        high = min(high, self._wanted.high)
        report([f"{_shown(self._wanted)}: the messages at offsets {low} to {high - 1} are missing"], fail=self._fail)

    def _lose(self, error: GantrymqError) -> None:
        if self._fail:
            raise error
        _LOGGER.warning("failOnDataLoss=false, continuing after: %s", error)


def _says_gone(error: MQBrokerError) -> bool:
    """Whether a broker's error means that the topic or queue does not exist.

    RocketMQ 4.x and 5.x have different codes for it.
    """
    return error.response_code == ResponseCode.TOPIC_NOT_EXIST or re.match(_NO_SUCH_QUEUE, error.remark) is not None


def _expression(wanted: QueueSlice, rows: RowFilter) -> str:
    """The tags expression for the broker; ``rows`` applies the other conditions, and the tags again.

    Messages of the schedule topic are not filtered by the broker: their tags code is the delivery time.
    """
    tags = rows.tags[0] if rows.tags and wanted.queue.topic != SCHEDULE_TOPIC else frozenset()
    plain = all(tag and tag == tag.strip() and "|" not in tag and tag != SUBSCRIBE_ALL for tag in tags)
    return "||".join(sorted(tags)) if tags and plain else SUBSCRIBE_ALL
