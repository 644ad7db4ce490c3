"""Reads a slice of a live cluster's queue: pulled records, with many pulls in one batch.

A broker answers with the records of its log, byte for byte, so the kernels for a store's files read them too. Offsets
of a queue have no gaps, so a missing one was deleted before it could be read. If the broker filters by tags, gaps prove
nothing. Messages are deleted from the front, so the reader then checks at the end whether the first one still exists.

Thread rule: one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.pull.segments import PulledRecords
from gantrymq.client.requests.calls import SUBSCRIBE_ALL, PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import MQBrokerError
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import Bytes, Int64s, read_only
from gantrymq.remoting.codes import ResponseCode
from gantrymq.tools.arrow import LogBatch, texts_array
from gantrymq.tools.queue_key import QueueSlice

BATCH_RECORDS = 16_384
_CHUNK_BYTES = 4 << 20
_NO_SUCH_QUEUE = r"queueId\[\d+\] is illegal"  # PullMessageProcessor


class SliceLosses(Protocol):
    """Learns what a slice lacks. It may raise, to end the reading."""

    def lost(self, low: int, high: int) -> None:
        """The messages at the offsets from ``low`` to before ``high`` are missing."""
        ...

    def unreadable(self, after_phy_offset: int) -> None:
        """The broker sent bytes that are no record, after that physical offset; the rest of the slice is not read."""
        ...

    def wrong_crc(self, queue_offset: int) -> None:
        """The message at a queue offset has a wrong CRC, and is left out."""
        ...


class PulledSlice:
    """The messages of ``wanted``; read once.

    ``columns`` are reused for each batch. ``expression`` lets the broker filter by tags. ``check`` is CHECK_MARK or
    CHECK_OFF of the kernels' codes.
    """

    def __init__(
        self,
        client: PullClient,
        wanted: QueueSlice,
        columns: Int64s,
        losses: SliceLosses,
        *,
        expression: str = SUBSCRIBE_ALL,
        check: int = codes.CHECK_MARK,
    ) -> None:
        self._client, self._columns, self._losses = client, columns, losses
        self._queue, self._low, self._high, self._name = wanted.queue, wanted.low, wanted.high, wanted.name
        self._expression, self._check = expression, check
        self._topics = texts_array([wanted.shown])
        self._next = self._low
        self._is_gone = False

    def batches(self) -> Iterator[LogBatch]:
        """Yield every message; a batch is valid until the next one."""
        records, size = [], 0
        for pulled in self._pulled():
            records.append(pulled.records)
            size += len(pulled.records)
            if size >= _CHUNK_BYTES:
                yield from self._scanned(b"".join(records))
                records, size = [], 0
        yield from self._scanned(b"".join(records))
        if self._is_gone or self._expression == SUBSCRIBE_ALL:
            self._came_to(self._high)
        else:
            self._look_back()

    def _pulled(self) -> Iterator[PulledRecords]:
        """Yield the broker's records; stops if the broker answers that the queue does not exist."""
        try:
            yield from self._client.read(self._queue, self._low, self._high, expression=self._expression)
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
                self._losses.unreadable(int(self._columns[codes.PHY_OFFSET, count - 1]) if count else -1)
                return
            position = stop

    def _batch(self, chunk: Bytes, count: int) -> LogBatch:
        batch = LogBatch(self._name, 0, chunk, self._columns, count, np.zeros(count, np.int64), self._topics)
        self._look_for_gaps(batch.row(codes.QUEUE_OFFSET))
        if self._check != codes.CHECK_OFF and not (right := batch.row(codes.CRC_OK) != 0).all():
            for offset in batch.row(codes.QUEUE_OFFSET)[~right].tolist():
                self._losses.wrong_crc(offset)
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
        first = self._client.pull(self._queue, self._low, 1)
        there = next(decode_records(first.records, decompressed=False)).queue_offset if first.records else -1
        if first.status is not PullStatus.FOUND or there != self._low:
            self._lost(self._low, max(there, first.min_offset, self._low + 1))
        elif first.max_offset < self._high:
            self._lost(first.max_offset, self._high)

    def _lost(self, low: int, high: int) -> None:
        self._losses.lost(low, min(high, self._high))


def _says_gone(error: MQBrokerError) -> bool:
    """Whether a broker's error means that the topic or queue does not exist.

    RocketMQ 4.x and 5.x have different codes for it.
    """
    return error.response_code == ResponseCode.TOPIC_NOT_EXIST or re.match(_NO_SUCH_QUEUE, error.remark) is not None
