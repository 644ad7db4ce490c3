"""Reads queues of a cluster without a consumer group: nothing is committed, and no other consumer is affected.

Each round reads from the position of every queue to its present end, with many pulls under way, a piece of one queue
after a piece of the next. Between rounds without messages the source waits for up to half a second.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from gantrymq.cli.advice import unreadable
from gantrymq.cli.streams.messages_in import QueueNumber
from gantrymq.cli.streams.positions import Position, PositionKind, PositionSpan
from gantrymq.cli.streams.sources import Arrived, Filter
from gantrymq.cli.terminal import warn
from gantrymq.client.pull.pull_client import PullClient
from gantrymq.client.requests.records import decode_records
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue

_LOOK_FOR_QUEUES_SECONDS = 30.0


class PulledSource:
    """The messages of ``topics``, or of only their queues ``numbers``. With ``exits`` it ends after one round.

    Thread rule: one thread.
    """

    def __init__(
        self,
        client: PullClient,
        topics: Sequence[str],
        numbers: Collection[QueueNumber],
        span: PositionSpan,
        wanted: Filter,
        *,
        exits: bool,
    ) -> None:
        self.lost, self.waits = False, False
        self._client, self._topics, self._numbers = client, topics, frozenset(numbers)
        self._begin, self._until_ms = span.begin or Position(PositionKind.BEGINNING), span.until_ms
        self._wanted, self._takes, self._exits = wanted, wanted.takes(), exits
        self._positions: dict[MessageQueue, int] = {}
        self._was_read: set[MessageQueue] = set()
        self._looked_s = 0.0

    def batches(self) -> Iterator[list[Arrived]]:
        """Yield pieces of the queues in turn. Raises RemotingError, NoRouteError, MQBrokerError."""
        for topic in self._topics:
            for queue in self._queues(topic):
                self._positions[queue] = self._first(queue)
        self._looked_s = time.monotonic()
        while True:
            is_last = self._exits or (self._until_ms is not None and time.time() * 1000 >= self._until_ms)
            came = False
            for batch in self._round():
                came = True
                yield batch
            if is_last:
                return
            if not came:
                yield []
            self._look_for_queues()

    def written(self, batch: Sequence[Arrived], *, whole: bool) -> None:
        """Nothing is committed."""

    def finish(self) -> None:
        """Nothing is committed."""

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _queues(self, topic: str) -> list[MessageQueue]:
        queues = self._client.queues(topic)
        if not queues:
            raise unreadable(topic)
        if not self._numbers:
            return list(queues)
        chosen = []
        for queue_id, broker in sorted(self._numbers, key=str):
            of_number = [
                queue for queue in queues if queue.queue_id == queue_id and broker in (None, queue.broker_name)
            ]
            if not of_number:
                raise MQClientError(f"topic {topic} has no queue {queue_id}{f' at broker {broker}' if broker else ''}")
            chosen += [queue for queue in of_number if queue not in chosen]
        return chosen

    def _first(self, queue: MessageQueue) -> int:
        low, high = self._client.min_offset(queue), self._client.max_offset(queue)
        first = self._begin.offset(low, high, lambda time_ms: self._client.search_offset(queue, time_ms))
        if first < low:
            warn(f"{queue} begins at offset {low}: earlier messages are deleted")
        return max(first, low)

    def _look_for_queues(self) -> None:
        """Add the queues that a topic got since the last look, from their first message on."""
        now_s = time.monotonic()
        if self._numbers or now_s - self._looked_s < _LOOK_FOR_QUEUES_SECONDS:
            return
        self._looked_s = now_s
        for topic in self._topics:
            for queue in self._client.queues(topic):
                if queue not in self._positions:
                    self._positions[queue] = self._client.min_offset(queue)

    def _round(self) -> Iterator[list[Arrived]]:
        reads = {queue: self._read(queue) for queue in self._positions}
        while reads:
            for queue, read in list(reads.items()):
                batch = next(read, None)
                if batch is None:
                    del reads[queue]
                elif batch:
                    yield batch

    def _read(self, queue: MessageQueue) -> Iterator[list[Arrived]]:
        """The messages of a queue from its position to its present end."""
        begin, end = self._positions[queue], self._client.max_offset(queue)
        if end < begin and self._begin.kind is not PositionKind.OFFSET:
            warn(f"{queue} ends at offset {end}, before {begin}: it was recreated, and is read from its beginning")
            begin = self._client.min_offset(queue)
        if self._until_ms is not None:
            end = min(end, self._client.search_offset(queue, self._until_ms))
        if end <= begin:
            return
        expression, kind = self._wanted.expression, self._wanted.kind
        for pulled in self._client.read(queue, begin, end, expression=expression, expression_type=kind):
            if pulled.lost:
                self.lost = True
                warn(f"{queue}: the messages from offset {pulled.begin_offset} to {pulled.end_offset - 1} are deleted")
            messages = [
                message for message in decode_records(pulled.records, decompressed=False) if self._takes(message)
            ]
            for message in messages:
                message.topic = queue.topic  # without the namespace
            yield [Arrived(message, queue.broker_name) for message in messages]
        self._positions[queue] = end
        self._was_read.add(queue)
