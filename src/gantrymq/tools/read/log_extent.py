"""The part of a log that a result was made of, and the ranges in it without a whole record.

Thread rule: plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Int64s
from gantrymq.tools.reports import LostRange

FURTHEST = 1 << 53


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The part of the log that a result was made of: whole records up to ``end``, except the ranges in ``lost``.

    Retention has deleted the log before ``begin``. ``begins_too_late`` says that the messages there were too young for
    that, so they count as lost. ``behind`` is the reason for messages after ``end``. Nothing at or after ``limit`` was
    read.
    """

    begin: int
    end: int
    lost: Sequence[LostRange]
    limit: int = FURTHEST
    behind: str = "it was after the end of the log"
    begins_too_late: bool = False

    @property
    def is_from_start(self) -> bool:
        """Whether the log has its first file, so that a missing message is lost and not expired."""
        return self.begin == 0


class Suspect(NamedTuple):
    """A unit of an old queue that points to a whole record, while the new queue has no message at this offset."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int


class LostPlaces:
    """Ranges of the log, which may overlap, in arrays: their starts, and the furthest end up to each."""

    def __init__(self, ranges: Sequence[LostRange]) -> None:
        self._ranges = sorted(ranges, key=lambda gap: gap.start)
        self._starts = np.array([gap.start for gap in self._ranges], np.int64)
        self._ends = np.maximum.accumulate(np.array([gap.end for gap in self._ranges], np.int64))

    def numbers(self, offsets: Int64s) -> Int64s:
        """For each physical offset the number of the last range that starts at or before it; -1 outside of all."""
        if not len(self._starts):
            return np.full(len(offsets), -1, np.int64)
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        return np.where((at >= 0) & (offsets < self._ends[at]), at, -1)

    def has(self, offsets: Int64s) -> NDArray[np.bool_]:
        """Which of the physical offsets lie in a range."""
        return self.numbers(offsets) >= 0

    def has_between(self, low: int, high: int) -> bool:
        """Whether a range overlaps [low, high)."""
        return bool(((self._starts < high) & (self._ends > low)).any())

    def reason(self, offset: int) -> str | None:
        """The reason for which the log has no whole record at a physical offset; None outside of all ranges."""
        number = int(self.numbers(np.array([offset], np.int64))[0])
        return next((gap.reason for gap in self._ranges[number::-1] if offset < gap.end), None) if number >= 0 else None
