"""Which slots of a queue have been accounted for.

Records of a queue come in the order of their offsets, so this is one number as long as nothing is wrong, and grows
with what is wrong alone.
"""

from __future__ import annotations

from bisect import bisect_right

_FAR = 1 << 62


class Coverage:
    """Slots from ``first`` on; those below ``upto`` are covered but for the gaps."""

    def __init__(self, first: int) -> None:
        self.upto = first
        self._gaps: list[tuple[int, int]] = []

    def cover(self, begin: int, end: int) -> None:
        """The slots [begin, end) are accounted for."""
        if begin > self.upto:
            self._gaps.append((self.upto, begin))
        if begin < self.upto:
            self._fill(begin, min(end, self.upto))
        self.upto = max(self.upto, end)

    def _fill(self, begin: int, end: int) -> None:
        low = max(bisect_right(self._gaps, (begin, _FAR)) - 1, 0)
        high = bisect_right(self._gaps, (end, -1))
        parts = [
            part for gap in self._gaps[low:high] for part in ((gap[0], min(gap[1], begin)), (max(gap[0], end), gap[1]))
        ]
        self._gaps[low:high] = [(start, stop) for start, stop in parts if start < stop]

    def gaps(self, end: int) -> list[tuple[int, int]]:
        """The slots below ``end`` that are not covered."""
        tail = [(self.upto, end)] if self.upto < end else []
        return [*self._gaps, *tail]

    def is_covered(self, slot: int) -> bool:
        """Whether one slot is."""
        at = bisect_right(self._gaps, (slot, _FAR)) - 1
        return slot < self.upto and not (at >= 0 and slot < self._gaps[at][1])
