"""A live cluster as the origin of a read. Its queues are read with the pull client, without a consumer group.

Offsets come from the brokers and routes from a name server. Both are requested at each refresh, because brokers, topics
and queues may come and go. Connections are closed after a refresh, because brokers close connections that are idle
between the triggers of a stream.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress

from gantrymq.client.pull.pull_client import PullClient, pause_ms
from gantrymq.client.requests.calls import PullStatus
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import ConfigError, NoRouteError, RemotingError
from gantrymq.model.message_queue import MessageQueue
from gantrymq.spark.cluster import ATTEMPTS, client_config
from gantrymq.spark.data_loss import ends_before
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.origin import Extents, Marks, Offsets, QueueExtent, Resets
from gantrymq.spark.runs import PullRun, plan_pulls, split_proportionally
from gantrymq.spark.selection import RowFilter, Selection, with_namespace
from gantrymq.tools.queue_key import QueueKey, QueueSlice

_LOGGER = logging.getLogger(__name__)
_SAMPLE = 32  # messages in a pull
_NEVER_MS = -(1 << 63)
# The errors of a restarting broker or name server, for a client that had an answer before: no connection, or a name
# server that does not know the broker yet, nor a queue of it that is assigned.
_AWAY = (RemotingError, NoRouteError, ConfigError)
_PAUSES_S = tuple(pause_ms(failures) / 1000 for failures in range(1, ATTEMPTS))  # between the attempts of a stream


class ClusterOrigin:
    """The cluster that the options name; implements :class:`gantrymq.spark.plan.origin.Origin`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._selection = Selection.of(options)
        self._config = client_config(options)
        self._client: PullClient | None = None
        self._queues_by_key: dict[QueueKey, MessageQueue] = {}
        self._extents: Extents = {}
        self._has_answered = False

    def extents(self) -> Extents:
        """The selected queues now, including new brokers, topics and queues.

        A stream must survive a restart of a broker or name server: a cluster that has answered before is retried for
        about 30 s. A cluster that never answered may not exist, so its error is raised at once.
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
        self._queues_by_key = {key: queue for key, queue in self._queues(client) if self._selection.takes(key)}
        self._selection.require_assigned(self._queues_by_key)
        self._selection.report_missing(self._queues_by_key)
        self._extents = {key: _extent(client, self._queues_by_key[key]) for key in sorted(self._queues_by_key)}
        self._has_answered = True
        return self._extents

    def _queues(self, client: PullClient) -> Iterator[tuple[QueueKey, MessageQueue]]:
        named = self._selection.named_topics()
        for topic in client.topics() if named is None else sorted(named):
            shown = self._selection.shown_topic(topic)
            if shown is None:
                continue
            # A topic may be deleted before its route is requested, or may not exist yet.
            with suppress(NoRouteError):
                for queue in client.queues(topic):
                    yield QueueKey(queue.broker_name, shown, queue.queue_id), queue

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none.

        The broker's answer is checked: RocketMQ 4.x returns the nearest message on either side, and 5.x uses the
        modification times of files, which a copy may not have preserved.
        """
        client, queue, extent = self._asking(), self._queues_by_key[key], self._extents[key]
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
        """The offsets after ``rows`` messages from ``start`` on, at most ``latest``.

        The messages are divided in proportion to the waiting messages of each queue.
        """
        waiting = {key: max(latest.get(key, low) - low, 0) for key, low in start.items()}
        return {key: start[key] + count for key, count in split_proportionally(waiting, rows).items()}

    def advance_bytes(self, start: Offsets, latest: Offsets, size_bytes: int) -> Offsets:
        """The offsets after ``size_bytes`` of records, estimated by the mean size of the first waiting messages."""
        client = self._asking()
        waiting = {key: latest.get(key, low) - low for key, low in start.items() if latest.get(key, low) > low}
        sizes = {
            key: _mean_size(client, self._queues_by_key[key], start[key])
            for key in waiting
            if key in self._queues_by_key
        }
        total = sum(waiting[key] * size for key, size in sizes.items()) or 1.0
        rows = max(int(sum(waiting.values()) * min(size_bytes / total, 1.0)), 1)
        return self.advance(start, latest, rows)

    def marks(self, offsets: Offsets, before: Marks) -> Marks:
        """Return nothing, because a broker gives no access to its log."""
        return {}

    def resets(self, began: Offsets, marks: Marks) -> Resets:
        """The queues that end before the offset up to which they were read."""
        return {
            key: ends_before(offset, self._extents[key])
            for key, offset in began.items()
            if key in self._extents and offset > self._extents[key].max_offset
        }

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> list[PullRun]:
        """The partitions of the messages from ``start`` to before ``end``."""
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
    """The offsets of a queue. A broker may return -1 for a queue that was never written."""
    low, high = max(client.min_offset(queue), 0), max(client.max_offset(queue), 0)
    return QueueExtent(min(low, high), high)


def _mean_size(client: PullClient, queue: MessageQueue, offset: int) -> float:
    """The mean size in bytes of the records in a pull."""
    pulled = client.pull(queue, offset, _SAMPLE)
    count = pulled.next_begin_offset - offset
    return len(pulled.records) / count if pulled.status is PullStatus.FOUND and count > 0 else 1.0


def _stored_ms(client: PullClient, queue: MessageQueue, offset: int) -> int:
    """The store timestamp of a message in ms; below every time if retention has just deleted it."""
    pulled = client.pull(queue, offset, 1)
    if pulled.status is not PullStatus.FOUND:
        return _NEVER_MS
    return next(decode_records(pulled.records, decompressed=False)).store_timestamp_ms
