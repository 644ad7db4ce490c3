"""What a partition is made of: pieces of a log, or stretches of a live cluster's queues.

Runs are made on the driver, pickled, and read on executors.
:func:`split_proportionally` divides a limit of rows between queues.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from gantrymq.model.message_queue import MessageQueue
from gantrymq.spark.locations import Location
from gantrymq.spark.log_mark import LogEnd, LogMark
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import Selection

K = TypeVar("K")


def usable_cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_proportionally(waiting: Mapping[K, int], rows: int) -> dict[K, int]:
    """How many of ``rows`` each gives: as its share of what waits is, rounded down, but at least one.

    So whoever has something waiting is read from at every trigger, as with Kafka's connector, and all of them together
    may give more than ``rows`` where they are many.
    """
    total = sum(waiting.values())
    return {key: min(max(rows * count // total, 1), count) if count else 0 for key, count in waiting.items()}


ENDLESS = (1 << 63) - 1


class Bounds(NamedTuple):
    """What is wanted of a queue: the offsets from ``low`` to before ``high``, at or behind ``begin`` in the log.

    In front of that the log may have the same offsets once more, of a topic of that name that was deleted. Of a queue
    that is wanted as a whole ``high`` is ENDLESS.

    ``end`` is the offset at which the queue ended when this was planned, and ``last`` where its last message lies.
    """

    low: int
    high: int
    begin: int
    end: int = ENDLESS
    last: int = ENDLESS


QueueBounds = dict[tuple[str, int], Bounds]
"""For each (topic, queue id) what is wanted of it."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The records of one commit log file from ``start`` to ``stop``, physical offsets at which records begin.

    ``base`` is the offset of the file's first byte. ``stop`` may also be the end of the file. ``marks`` say what the
    file held when the piece was planned.
    """

    location: Location
    base: int
    start: int
    stop: int
    marks: tuple[LogMark, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How a run is compared with the queues of ``store``, of which it is one part of a stretch of the log.

    ``is_first`` and ``is_last`` say which part.
    """

    store: Location
    log_file_size: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogRun:
    """Pieces to be read one after the other, and which of their records are wanted.

    Those of the queues in ``bounds``, within them; without bounds, those that ``selection`` takes. Of these, the
    ones that pass ``rows``. ``log_end`` is where the log ended when the run was planned. Without an ``audit`` (where
    only parts of the log are read) the records are not compared with the queues.
    """

    pieces: tuple[LogPiece, ...]
    broker: str | None = None
    selection: Selection = field(default_factory=Selection)
    bounds: QueueBounds | None = None
    rows: RowFilter | None = None
    log_end: LogEnd | None = None
    audit: AuditPlan | None = None


# A task costs Spark some 75 ms whatever it does, in which a core pulls some 40,000 small messages.
LARGEST_RUN_ROWS = 500_000
SMALLEST_RUN_ROWS = 20_000


class QueueSlice(NamedTuple):
    """The messages of a queue from offset ``low`` to before ``high``; ``shown`` is the topic as rows have it."""

    queue: MessageQueue
    shown: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PullRun:
    """Slices of queues of one broker, to be read one after the other; wanted are the messages that pass ``rows``."""

    broker: str
    slices: tuple[QueueSlice, ...]
    rows: RowFilter | None = None


def plan_pulls(
    slices: list[QueueSlice], rows: RowFilter | None, *, min_partitions: int, max_records: int | None
) -> list[PullRun]:
    """The partitions that hold ``slices``: laid one behind the other, and cut into equal parts.

    A small queue is no partition of its own, for a task costs Spark more than some thousand messages do; a large one
    is several, which executors read at the same time.
    """
    wanted = [one for one in sorted(slices, key=_order) if one.low < one.high]
    total = sum(one.high - one.low for one in wanted)
    cores = usable_cores()
    count = max(min_partitions, -(-total // LARGEST_RUN_ROWS), min(cores, -(-total // SMALLEST_RUN_ROWS)), 1)
    if max_records is not None:
        count = max(count, -(-total // max_records))
    runs: dict[tuple[int, str], list[QueueSlice]] = {}
    begin = 0
    for one in wanted:
        for part, low, high in _parts(begin, begin + one.high - one.low, total, count):
            run = runs.setdefault((part, one.queue.broker_name), [])
            run.append(one._replace(low=one.low + low - begin, high=one.low + high - begin))
        begin += one.high - one.low
    return [PullRun(broker, tuple(run), rows) for (_, broker), run in runs.items()]


def _parts(begin: int, end: int, total: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Which of ``count`` equal parts of [0, total) [begin, end) lies in: (part, from, to)."""
    while begin < end:
        part = ((begin + 1) * count - 1) // total
        stop = min(end, (part + 1) * total // count)
        yield part, begin, stop
        begin = stop


def _order(one: QueueSlice) -> tuple[str, str, int, int]:
    return one.queue.broker_name, one.queue.topic, one.queue.queue_id, one.low
