"""What a partition is made of: the places to read. Made on the driver, pickled, read on executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from gantrymq.spark.places import Place
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import Selection

QueueBounds = dict[tuple[str, int], tuple[int, int]]
"""For each (topic, queue id) the first queue offset that is wanted and the one behind the last."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The records of one commit log file from ``start`` to ``stop``, physical offsets at which records begin.

    ``base`` is the offset of the file's first byte. ``stop`` may also be the end of the file.
    """

    place: Place
    base: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LogRun:
    """Pieces to be read one after the other, and which of their records are wanted.

    Those of the queues in ``bounds``, within them; without bounds, those that ``selection`` takes. Of these, the
    ones that pass ``rows``.
    """

    pieces: tuple[LogPiece, ...]
    broker: str | None = None
    selection: Selection = field(default_factory=Selection)
    bounds: QueueBounds | None = None
    rows: RowFilter | None = None
