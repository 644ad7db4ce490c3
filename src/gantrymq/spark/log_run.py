"""What a partition is made of: the places to read. Made on the driver, pickled, read on executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gantrymq.spark.log_mark import LogEnd, LogMark
from gantrymq.spark.places import Place
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import Selection

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

    place: Place
    base: int
    start: int
    stop: int
    marks: tuple[LogMark, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How a run is compared with the queues of ``store``, of which it is one part of a stretch of the log.

    ``is_first`` and ``is_last`` say which part.
    """

    store: Place
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
