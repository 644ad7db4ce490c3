"""A live cluster as the origin of a read: its queues, asked for with the pull client; no consumer group takes part.

Offsets come from the brokers, routes from a name server, both anew at each look: brokers, topics and queues may come
and go. Connections live as long as a look does, for brokers close those that idle between the triggers of a stream.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress

from gantrymq.client.calls import PullStatus
from gantrymq.client.pull_client import PullClient, pause_ms
from gantrymq.client.records import decode_records
from gantrymq.errors import ConfigError, NoRouteError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.spark.cluster import ATTEMPTS, client_config
from gantrymq.spark.data_loss import ends_before
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.origin import Extents, Marks, Offsets, QueueExtent, Resets
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.runs import PullRun, QueueSlice, plan_pulls, split_proportionally
from gantrymq.spark.selection import QueueKey, Selection, with_namespace

_LOGGER = logging.getLogger(__name__)
_SAMPLE = 32  # messages of a pull
_NEVER_MS = -(1 << 63)
# What a broker or a name server that is started anew looks like, to who has had an answer before: nobody is there, or
# the broker is no longer known, nor what was assigned of it.
_AWAY = (RemotingError, NoRouteError, ConfigError)
_PAUSES_S = tuple(pause_ms(failures) / 1000 for failures in range(1, ATTEMPTS))  # between the looks of a stream


class ClusterOrigin:
    """The cluster that the options name; see :class:`gantrymq.spark.plan.origin.Origin`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._selection = Selection.of(options)
        self._config = client_config(options)
        self._client: PullClient | None = None
        self._found: dict[QueueKey, MessageQueue] = {}
        self._extents: Extents = {}
        self._has_answered = False

    def extents(self) -> Extents:
        """The wanted queues as they are now; new brokers, topics and queues among them.

        A stream does not end because a broker or a name server is started anew: who has answered before is asked again
        for half a minute. Who never has, may be no cluster at all.
        """
        for pause_s in _PAUSES_S if self._has_answered else ():
            try:
                return self._look()
            except _AWAY as error:
                _LOGGER.warning("the cluster is asked again in %.1f s: %s", pause_s, error)
                time.sleep(pause_s)
        return self._look()

    def _look(self) -> Extents:
        self.close()
        client = self._client = PullClient(self._config)
        self._found = {key: queue for key, queue in self._queues(client) if self._selection.takes(key)}
        self._selection.require_assigned(self._found)
        self._selection.report_missing(self._found)
        self._extents = {key: _extent(client, self._found[key]) for key in sorted(self._found)}
        self._has_answered = True
        return self._extents

    def _queues(self, client: PullClient) -> Iterator[tuple[QueueKey, MessageQueue]]:
        named = self._selection.named_topics()
        for topic in client.topics() if named is None else sorted(named):
            shown = self._selection.shown_topic(topic)
            if shown is None:
                continue
            # A topic may be gone before its route is asked for, or not be there yet.
            with suppress(NoRouteError):
                for queue in client.queues(topic):
                    yield QueueKey(queue.broker_name, shown, queue.queue_id), queue

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset where there is none.

        What the broker answers is looked at: RocketMQ 4.x names the nearest message, on either side, and 5.x goes by
        the times of files, which a copy may not have kept.
        """
        client, queue, extent = self._asking(), self._found[key], self._extents[key]
        low, high = extent
        guess = min(max(client.search_offset(queue, timestamp_ms), low), high)
        if guess == high or _stored_ms(client, queue, guess) >= timestamp_ms:
            high = guess
            if high == low or _stored_ms(client, queue, high - 1) < timestamp_ms:
                return high
        else:
            low = guess + 1
        return low + bisect_left(range(low, high), timestamp_ms, key=lambda offset: _stored_ms(client, queue, offset))

    def advance(self, start: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Offsets between both with ``rows`` messages in front of them, each queue's as its share of what waits is."""
        waiting = {key: max(latest.get(key, low) - low, 0) for key, low in start.items()}
        return {key: start[key] + count for key, count in split_proportionally(waiting, rows).items()}

    def advance_bytes(self, start: Offsets, latest: Offsets, size_bytes: int) -> Offsets:
        """The same for a number of bytes, by the mean size of each queue's first messages that wait."""
        client = self._asking()
        waiting = {key: latest.get(key, low) - low for key, low in start.items() if latest.get(key, low) > low}
        sizes = {key: _mean_size(client, self._found[key], start[key]) for key in waiting if key in self._found}
        total = sum(waiting[key] * size for key, size in sizes.items()) or 1.0
        rows = max(int(sum(waiting.values()) * min(size_bytes / total, 1.0)), 1)
        return self.advance(start, latest, rows)

    def marks(self, offsets: Offsets, before: Marks) -> Marks:
        """None: a broker says nothing of its log."""
        return {}

    def resets(self, began: Offsets, marks: Marks) -> Resets:
        """The queues that end in front of what was read of them."""
        return {
            key: ends_before(offset, self._extents[key])
            for key, offset in began.items()
            if key in self._extents and offset > self._extents[key].max_offset
        }

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> list[PullRun]:
        """The partitions of what lies between both."""
        slices = [
            QueueSlice(_queue(key, self._options.namespace), key.topic, low, end[key])
            for key, low in start.items()
            if low < end.get(key, low)
        ]
        options = self._options
        return plan_pulls(
            slices, rows, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
        )

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _asking(self) -> PullClient:
        if self._client is None:
            self._client = PullClient(self._config)
        return self._client


def _queue(key: QueueKey, namespace: str | None) -> MessageQueue:
    return MessageQueue(with_namespace(key.topic, namespace), key.broker, key.queue_id)


def _extent(client: PullClient, queue: MessageQueue) -> QueueExtent:
    """A queue that was never written may say -1."""
    low, high = max(client.min_offset(queue), 0), max(client.max_offset(queue), 0)
    return QueueExtent(min(low, high), high)


def _mean_size(client: PullClient, queue: MessageQueue, offset: int) -> float:
    """How many bytes a record of the first pull has."""
    pulled = client.pull(queue, offset, _SAMPLE)
    count = pulled.next_begin_offset - offset
    return len(pulled.records) / count if pulled.status is PullStatus.FOUND and count > 0 else 1.0


def _stored_ms(client: PullClient, queue: MessageQueue, offset: int) -> int:
    """When a message was stored; for one that retention has just taken, before every time."""
    pulled = client.pull(queue, offset, 1)
    if pulled.status is not PullStatus.FOUND:
        return _NEVER_MS
    return next(decode_records(pulled.records, decompressed=False)).store_timestamp_ms
