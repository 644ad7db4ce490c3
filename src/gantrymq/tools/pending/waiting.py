"""The records that wait in RocketMQ's system topics, and the committed offsets of the services that read them.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_units import Units
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.group_offsets import read_group_offsets
from gantrymq.store.reader import StoreReader
from gantrymq.tools.read.record_rows import MAX_AT_ONCE, Record, RecordRows

# report(step, done, total), in messages
Report = Callable[[str, int, int], None]


class PendingKind(StrEnum):
    """The event that a message waits for: its delay, its due time, the end of its transaction, or its
    acknowledgement.
    """

    DELAY = "delay"
    TIMER = "timer"
    HALF = "half"
    POP = "pop"


class PendingMessage(NamedTuple):
    """One message that is pending for ``topic``.

    ``due_ms`` is the time of its delivery; for a half message, of its first check; for a popped message, when it is
    visible again. ``group`` is the producer group of a half message, or the consumer group of a popped message.
    ``phy_offset`` is that of the waiting record in the topic ``waits_in``; for a popped message, of its checkpoint.
    ``queue_offset`` is that of a popped message in its queue. It is -1 for others, which have none yet.
    """

    kind: PendingKind
    topic: str
    queue_id: int
    due_ms: int
    group: str | None
    waits_in: str
    phy_offset: int
    queue_offset: int = -1


class WaitingRecord(NamedTuple):
    """A waiting record. ``queue_offset`` is -1 if the record was found through the timer log."""

    queue_offset: int
    phy_offset: int
    tags_code: int
    record: Record


class WaitingTopics:
    """The records of one view of a store. ``now_ms`` is the time that counts as now.

    ``unreadable`` counts units that point to no readable record, ``passed_over`` records that no broker will deliver:
    their topic was deleted, or they do not name one. With ``counts`` False neither is counted, for records that are
    read a second time.
    """

    def __init__(
        self, reader: StoreReader, now_ms: int, report_error: Callable[[str], None], report: Report | None = None
    ) -> None:
        self.store_reader, self.now_ms, self.report = reader, now_ms, report
        self.unreadable = self.passed_over = 0
        self.counts = True
        self._rows = RecordRows(reader.log, report_error)
        self._committed: dict[tuple[str, str, int], int] = {}
        for group, topic, offsets in read_group_offsets(reader.fs, reader.paths):
            for queue_id, offset in offsets:
                self._committed.setdefault((group, topic, queue_id), offset)

    def queues(self, is_wanted: Callable[[str], bool]) -> list[ConsumeQueue]:
        """The queues of all topics for which ``is_wanted`` returns True, sorted."""
        return [queue for queue in self.store_reader.consume_queues if is_wanted(queue.topic)]

    def committed(self, group: str, queue: ConsumeQueue) -> int:
        """The offset that a group has committed; -1 if it has none. A delay level has the group ``""``."""
        return self._committed.get((group, queue.topic, queue.queue_id), -1)

    def of_queue(self, queue: ConsumeQueue, begin: int, step: str) -> Iterator[WaitingRecord]:
        """The readable records of a queue from the offset ``begin`` on, without those before the begin of the log."""
        begin = offset = min(max(begin, queue.min_offset), queue.max_offset)
        while offset < queue.max_offset:
            units = queue.entries(offset, min(queue.max_offset - offset, MAX_AT_ONCE))
            if not len(units):
                return
            rows = np.flatnonzero(~Units(units).is_filler)
            some = units[rows]
            for at, record in self.at(some["phy_offset"].astype("=i8"), some["size"].astype("=i8")):
                number = int(rows[at])
                code = queue.tags_code(int(units["tags_code"][number]))
                yield WaitingRecord(offset + number, int(units["phy_offset"][number]), code, record)
            offset += len(units)
            self.report_progress(step, offset - begin, queue.max_offset - begin)

    def at(self, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[tuple[int, Record]]:
        """Yield (index, record) for each readable record of these sizes at physical offsets, MAX_AT_ONCE at most."""
        begin = self.store_reader.log.min_offset
        for number, record in enumerate(self._rows.read(phy_offsets)):
            if record is not None and record.size == sizes[number]:
                yield number, record
            elif phy_offsets[number] >= begin:
                self.unreadable += self.counts

    def pass_over(self) -> None:
        """Count a record that no broker will deliver."""
        self.passed_over += self.counts

    def report_progress(self, step: str, done: int, total: int) -> None:
        """Report the progress of a step."""
        if self.report is not None:
            self.report(step, done, total)
