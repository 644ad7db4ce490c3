"""The contents of a partition: pieces of a log, or slices of a live cluster's queues.

Runs are made on the driver, pickled, and read on executors. :func:`split_proportionally` divides a limit of rows
between queues.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from gantrymq.spark.log_file import LogEnd, LogMark
from gantrymq.spark.pending_rows import PendingRows
from gantrymq.spark.selection import RowFilter, Selection
from gantrymq.tools.locations import Location
from gantrymq.tools.queue_key import QueueSlice

K = TypeVar("K")
# A task costs Spark about 75 ms, in which a core pulls about 40,000 small messages.
LARGEST_RUN_ROWS = 500_000
SMALLEST_RUN_ROWS = 20_000


def usable_cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split_proportionally(waiting: Mapping[K, int], rows: int) -> dict[K, int]:
    """Divide ``rows`` in proportion to the waiting rows of each key, rounded down, but at least one row each.

    So every key with waiting rows is read at every trigger, as with Kafka's connector. With many keys the sum may
    exceed ``rows``.
    """
    total = sum(waiting.values())
    return {key: min(max(rows * count // total, 1), count) if count else 0 for key, count in waiting.items()}


ENDLESS = (1 << 63) - 1


class Bounds(NamedTuple):
    """The selected messages of a queue: offsets from ``low`` to before ``high``, at or after ``begin`` in the log.

    Before ``begin`` the log may have the same offsets of a deleted topic of that name. ``high`` is ENDLESS if the
    queue is selected as a whole. ``end`` is the offset at which the queue ended at planning, and ``last`` the physical
    offset of its last message.
    """

    low: int
    high: int
    begin: int
    end: int = ENDLESS
    last: int = ENDLESS


QueueBounds = dict[tuple[str, int], Bounds]
"""The bounds of each (topic, queue id)."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The records of one commit log file from ``start`` to ``stop``, both physical offsets of record boundaries.

    ``base`` is the physical offset of the file's first byte. ``stop`` may also be the end of the file. ``marks`` are
    fingerprints of the file at planning.
    """

    location: Location
    base: int
    start: int
    stop: int
    marks: tuple[LogMark, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How a run is compared with the queues of ``store``. The run is one part of a stretch of the log.

    ``is_first`` and ``is_last`` say whether it is the first or last part.
    """

    store: Location
    log_file_size: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogRun:
    """Pieces to read in order, and the selection of their records.

    Selected are the records of the queues in ``bounds``, within them, or without bounds those that ``selection`` takes;
    of these, the ones that pass ``rows`` and are in ``pending``, if it is given. ``log_end`` is the end of the log at
    planning. Without an ``audit`` (when only parts of the log are read) the records are not compared with the queues.
    """

    pieces: tuple[LogPiece, ...]
    broker: str | None = None
    selection: Selection = field(default_factory=Selection)
    bounds: QueueBounds | None = None
    rows: RowFilter | None = None
    log_end: LogEnd | None = None
    audit: AuditPlan | None = None
    pending: PendingRows | None = None


@dataclass(frozen=True, slots=True)
class PullRun:
    """Slices of queues of one broker, to read in order. Messages must pass ``rows``."""

    broker: str
    slices: tuple[QueueSlice, ...]
    rows: RowFilter | None = None


def plan_pulls(
    slices: list[QueueSlice], rows: RowFilter | None, *, min_partitions: int, max_records: int | None
) -> list[PullRun]:
    """Divide ``slices`` into partitions: laid end to end and cut into equal parts.

    A small queue does not get a partition of its own, because a task costs Spark more than a few thousand messages. A
    large queue becomes several partitions, which executors read in parallel.
    """
    wanted = [slice_ for slice_ in sorted(slices, key=_order) if slice_.low < slice_.high]
    total = sum(slice_.high - slice_.low for slice_ in wanted)
    cores = usable_cores()
    count = max(min_partitions, -(-total // LARGEST_RUN_ROWS), min(cores, -(-total // SMALLEST_RUN_ROWS)), 1)
    if max_records is not None:
        count = max(count, -(-total // max_records))
    runs: dict[tuple[int, str], list[QueueSlice]] = {}
    begin = 0
    for slice_ in wanted:
        for part, low, high in _parts(begin, begin + slice_.high - slice_.low, total, count):
            run = runs.setdefault((part, slice_.queue.broker_name), [])
            run.append(slice_._replace(low=slice_.low + low - begin, high=slice_.low + high - begin))
        begin += slice_.high - slice_.low
    return [PullRun(broker, tuple(run), rows) for (_, broker), run in runs.items()]


def _parts(begin: int, end: int, total: int, count: int) -> Iterator[tuple[int, int, int]]:
    """The parts of [begin, end) in ``count`` equal parts of [0, total): (part, from, to)."""
    while begin < end:
        part = ((begin + 1) * count - 1) // total
        stop = min(end, (part + 1) * total // count)
        yield part, begin, stop
        begin = stop


def _order(slice_: QueueSlice) -> tuple[str, str, int, int]:
    return slice_.queue.broker_name, slice_.queue.topic, slice_.queue.queue_id, slice_.low
