"""Reads a store directory, without its lock and without a broker: the state at the time of opening."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gantrymq.cli.opened import end_reading
from gantrymq.cli.streams.messages_in import QueueNumber
from gantrymq.cli.streams.positions import Position, PositionKind, PositionSpan
from gantrymq.cli.streams.sources import Arrived, Filter
from gantrymq.cli.terminal import warn
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.reader import StoreReader

_BATCH = 512
_NAMED = 10


class StoredSource:
    """The messages of ``topics``, or of only their queues ``numbers``, queue by queue. Thread rule: one thread."""

    def __init__(
        self,
        reader: StoreReader,
        topics: Sequence[str],
        numbers: Collection[QueueNumber],
        span: PositionSpan,
        wanted: Filter,
    ) -> None:
        self.lost, self.waits = False, False
        self._reader, self._topics = reader, topics
        self._numbers = {number.queue_id for number in numbers}
        self._begin, self._until_ms = span.begin or Position(PositionKind.BEGINNING), span.until_ms
        self._takes = wanted.evaluates()
        self._named = 0

    def batches(self) -> Iterator[list[Arrived]]:
        """Yield the messages that match. An entry that points at nothing readable sets ``lost``."""
        for topic in self._topics:
            queues = [queue for queue in self._reader.consume_queues if queue.topic == topic]
            if not queues:
                warn(f"there is no topic {topic}")
            for number in sorted(self._numbers - {queue.queue_id for queue in queues}) if queues else ():
                warn(f"topic {topic} has no queue {number}")
            for queue in queues:
                if not self._numbers or queue.queue_id in self._numbers:
                    yield from self._read(queue)

    def written(self, batch: Sequence[Arrived], *, whole: bool) -> None:
        """Nothing is committed."""

    def finish(self) -> None:
        """Warn about missing parts of the store. Raises SystemExit if there are any."""
        end_reading(self._reader.problems, notes=self._reader.notes)

    def close(self) -> None:
        """Close the store."""
        self._reader.close()

    def _read(self, queue: ConsumeQueue) -> Iterator[list[Arrived]]:
        def at_time(time_ms: int) -> int:
            return self._reader.offset_at(queue.topic, queue.queue_id, time_ms)

        begin = self._begin.offset(queue.min_offset, queue.max_offset, at_time)
        end = None if self._until_ms is None else at_time(self._until_ms)
        batch: list[Arrived] = []
        for offset, entry, message in self._reader.entries(queue, begin, end):
            if message is None:
                self._name_unreadable(queue, offset, entry.phy_offset)
            elif self._takes(message):
                batch.append(Arrived(message))
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def _name_unreadable(self, queue: ConsumeQueue, offset: int, phy_offset: int) -> None:
        self.lost = True
        self._named += 1
        if self._named <= _NAMED:
            position = f"{queue.topic}, queue {queue.queue_id}, offset {offset}"
            warn(f"{position}: no message can be read at physical offset {phy_offset}")
