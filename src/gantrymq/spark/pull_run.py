"""What a partition of a live cluster is made of: stretches of queues. Made on the driver, read on executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.model.message_queue import MessageQueue
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.shares import usable_cores

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
