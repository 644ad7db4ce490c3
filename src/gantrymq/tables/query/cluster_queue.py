"""A queue of a live cluster, read with pulls without a consumer group.

The offsets of a queue are counted from what its broker says: its minimum and maximum. Messages that retention deletes
during the query are named.

Thread rule: a source belongs to one thread, and so does its client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gantrymq.client.pull.pull_client import PullClient
from gantrymq.format.record import read_head
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import Int64s, new_columns, read_only
from gantrymq.model.message_queue import MessageQueue
from gantrymq.tables.query.topic_scan import BLOCK_MESSAGES, QueueGroup, QueuePart, QueueSource, SkippedMessages
from gantrymq.tools.arrow import LogBatch, texts_array

_CHUNK_BYTES = 4 << 20


class ClusterQueue(QueueSource):
    """A queue whose broker ``client`` asks. Raises what PullClient raises."""

    def __init__(self, client: PullClient, queue: MessageQueue, skipped: SkippedMessages) -> None:
        self._client, self._queue, self._skipped = client, queue, skipped
        self.broker = queue.broker_name
        self.queue_id = queue.queue_id
        self.low, self.high = client.min_offset(queue), client.max_offset(queue)
        self._topics = texts_array([queue.topic])
        self._columns = new_columns(BLOCK_MESSAGES)

    def offsets(self, low: int, high: int) -> Int64s:
        """All offsets: the broker does not say which of them are gaps."""
        return np.arange(low, high)

    def times_ms(self, offsets: Sequence[int]) -> list[int | None]:
        """The store times of single messages, each of which is pulled."""
        heads = [read_head(self._client.pull(self._queue, offset, 1).records) for offset in offsets]
        return [head.store_timestamp_ms if head is not None else None for head in heads]

    def records(self, low: int, high: int, check: int) -> Iterator[LogBatch]:
        """Yield the records that the broker sends, with many pulls in one batch."""
        pieces: list[bytes] = []
        size = 0
        for pulled in self._client.read(self._queue, low, high):
            if pulled.lost:
                count = pulled.end_offset - pulled.begin_offset
                self._lose(count, f"offsets {pulled.begin_offset} to {pulled.end_offset - 1}: the broker deleted them")
            pieces.append(pulled.records)
            size += len(pulled.records)
            if size >= _CHUNK_BYTES:
                yield from self._scanned(b"".join(pieces), check)
                pieces, size = [], 0
        yield from self._scanned(b"".join(pieces), check)

    def _lose(self, count: int, reason: str) -> None:
        where = f"topic {self._queue.topic}, broker {self.broker}, queue {self.queue_id}"
        self._skipped.add(count, f"{where}, {reason}")

    def _scanned(self, data: bytes, check: int) -> Iterator[LogBatch]:
        chunk, position = read_only(data), 0
        while position < len(chunk):
            count, code, stop = scan(chunk, position, len(chunk), len(chunk), check, self._columns)
            if count:
                zeros = np.zeros(count, np.int64)
                yield self._whole(LogBatch(self.broker, 0, chunk, self._columns, count, zeros, self._topics), check)
            if code not in (codes.STOP_RANGE, codes.STOP_FULL):
                at = int(self._columns[codes.QUEUE_OFFSET, count - 1]) if count else -1
                self._lose(1, f"after offset {at}: the broker sent bytes that are not a record")
                return
            position = stop

    def _whole(self, batch: LogBatch, check: int) -> LogBatch:
        if check != codes.CHECK_MARK:
            return batch
        is_whole = batch.row(codes.CRC_OK) != 0
        for offset in batch.row(codes.QUEUE_OFFSET)[~is_whole].tolist():
            self._lose(1, f"offset {offset}: the CRC of the record is wrong")
        return batch.take(is_whole)


class ClusterGroup(QueueGroup):
    """The queues of a topic at one broker of a cluster."""

    def __init__(self, broker: str, queues: Sequence[ClusterQueue]) -> None:
        self.broker = broker
        self._queues = {queue.queue_id: queue for queue in queues}
        self.queues: list[QueueSource] = list(queues)

    def records(self, parts: Sequence[QueuePart], *, checks_bodies: bool) -> Iterator[LogBatch]:
        """Yield the messages queue by queue. Parts that follow each other are one read."""
        check = codes.CHECK_MARK if checks_bodies else codes.CHECK_OFF
        joined: list[QueuePart] = []
        for part in parts:
            if joined and joined[-1].queue is part.queue and joined[-1].high == part.low:
                part = QueuePart(part.queue, joined.pop().low, part.high)
            joined.append(part)
        for part in joined:
            yield from self._queues[part.queue.queue_id].records(part.low, part.high, check)
