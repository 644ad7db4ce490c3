"""What a log has of each queue: runs of consecutive queue offsets, and which of them are messages of the queue.

A queue of a healthy log is one run. Every fault of the log adds runs: a damaged record leaves a gap between two runs, a
flipped queue offset makes a run of one record, and a topic that was recreated begins a run at 0. Memory therefore grows
only with the number of faults, and several readers, each of a part of the log, can join their results.

Thread rule: plain values, and a collector that belongs to one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Int64s

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


Bools = NDArray[np.bool_]
QueueName = tuple[str, int]
PlaceOf = Callable[[int], int]
_MOST_IN_A_HOLE = 16  # runs that are put into a hole between two others: flipped bits, not another order
_WILD_STEP = 4096
_OFFSET_BITS = 40


class QueueRun(NamedTuple):
    """Records of one queue, in the order of the log, that say the queue offsets [begin, end).

    The first lies at ``phy_offset``, the last one ends at ``phy_end``. ``moved``: each says that it lies elsewhere.
    """

    begin: int
    end: int
    phy_offset: int
    phy_end: int
    moved: bool

    @property
    def length(self) -> int:
        """How many records it has."""
        return self.end - self.begin


class QueueRuns:
    """The runs of each queue, batch by batch in the order of the log."""

    def __init__(self) -> None:
        self.by_queue: dict[QueueName, list[QueueRun]] = {}

    def add(self, names: Sequence[QueueName], queues: Int64s, rows: tuple[Int64s, Int64s, Int64s, Bools]) -> None:
        """Take some records.

        ``queues`` says for each which of ``names`` it is of; ``rows`` are queue offsets, places, sizes and whether the
        record says that it lies elsewhere.
        """
        if not len(queues):
            return
        order = np.argsort(queues, kind="stable")
        queues = queues[order]
        offsets, places, sizes, moved = (row[order] for row in rows)
        cuts = (np.diff(queues) != 0) | (np.diff(offsets) != 1) | (np.diff(moved.astype(np.int8)) != 0)
        bounds = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(queues)]
        for first, stop in pairwise(bounds):
            last = stop - 1
            run = QueueRun(
                int(offsets[first]),
                int(offsets[last]) + 1,
                int(places[first]),
                int(places[last] + sizes[last]),
                bool(moved[first]),
            )
            self._append(names[int(queues[first])], run)

    def join(self, others: Mapping[QueueName, Iterable[QueueRun]]) -> None:
        """Take what was found in the next part of the log."""
        for name, runs in others.items():
            for run in runs:
                self._append(name, run)

    def _append(self, name: QueueName, run: QueueRun) -> None:
        runs = self.by_queue.setdefault(name, [])
        if runs and runs[-1].end == run.begin and runs[-1].moved == run.moved:
            before = runs[-1]
            runs[-1] = QueueRun(before.begin, run.end, before.phy_offset, run.phy_end, run.moved)
        else:
            runs.append(run)


@dataclass(slots=True)
class QueueChoice:
    """Which records of a queue count, and under which offset.

    Those in front of ``begin`` in the log are of an older topic of that name. Of the runs in ``dropped`` the slots
    [from, to) are those of other records. ``renumbered`` are (run, true offset of its first record), ``moved`` the runs
    that count though they say that they lie elsewhere, ``duplicates`` single records that say the slot of another.
    ``covered`` are the slots with a message. ``only`` is the one record of a queue that should have had others.
    """

    begin: int = 0
    dropped: list[tuple[QueueRun, int, int]] = field(default_factory=list)
    renumbered: list[tuple[QueueRun, int]] = field(default_factory=list)
    moved: list[QueueRun] = field(default_factory=list)
    duplicates: list[QueueRun] = field(default_factory=list)
    only: QueueRun | None = None
    covered: Coverage = field(default_factory=lambda: Coverage(0))

    def is_trivial(self, runs: Sequence[QueueRun]) -> bool:
        """Whether every record counts as it is."""
        is_older = any(run.phy_offset < self.begin for run in runs)
        return not (is_older or self.dropped or self.renumbered)

    def takes(self, queue_offset: int, place: int) -> bool:
        """Whether the record at a place, which says this offset, counts as that."""
        offsets = np.array([queue_offset], np.int64)
        keep = self.apply(offsets, np.array([place], np.int64))
        return self.only is None and bool(keep[0]) and int(offsets[0]) == queue_offset

    def apply(self, offsets: Int64s, places: Int64s) -> Bools:
        """Which records of the queue count; ``offsets``, which they say, become what is true."""
        keep: Bools = places >= self.begin
        for run, begin, end in self.dropped:
            keep &= ~(_within(run, places) & (offsets >= begin) & (offsets < end))
        for run, first in self.renumbered:
            rows = _within(run, places)
            offsets[rows] = offsets[rows] - run.begin + first
        return keep


def _within(run: QueueRun, places: Int64s) -> Bools:
    return (places >= run.phy_offset) & (places < run.phy_end)


def choose(runs: Sequence[QueueRun], begin: int | None, place_of: PlaceOf) -> QueueChoice:
    """Decide which records of a queue count.

    ``begin`` is the place of the queue's first record where its unit 0 says so; None: the records have to say it. A
    topic was then recreated where offsets 0 and 1 stand behind others of their queue. ``place_of`` says where the unit
    of a queue offset leads.
    """
    placed = [run for run in runs if not run.moved]
    if begin is None:
        begins = [run.phy_offset for run in placed[1:] if run.begin == 0 and run.end > 1]
        begin = begins[-1] if begins else 0
    choice = QueueChoice(begin)
    placed = [run for run in placed if run.phy_offset >= begin]
    firsts = _true_firsts(placed, place_of)
    alone = []
    twice = _slots_of_two([run for run, first in zip(placed, firsts, strict=True) if run.begin == first])
    for at, (run, first) in enumerate(zip(placed, firsts, strict=True)):
        if first != run.begin:
            choice.renumbered.append((run, first))
            choice.covered.cover(first, first + run.length)
        elif run.length == 1:
            alone.append(at)
        else:
            _take_run(choice, run, twice, place_of)
    if len(placed) == len(alone) == 1 and placed[0].begin > 0:
        choice.only = placed[0]
    for at in alone:
        _take_alone(choice, placed[at], joins=_stands_between(placed, firsts, at))
    for run in runs:
        if run.moved and run.phy_offset >= begin:
            _take_moved(choice, run)
    return choice


def _slots_of_two(runs: Iterable[QueueRun]) -> list[tuple[int, int]]:
    """The slots [from, to) that two of the runs have, each with others beside it: one is of another queue."""
    found, reached = [], 0
    for run in sorted(run for run in runs if run.length > 1):
        if run.begin < reached:
            found.append((run.begin, min(run.end, reached)))
        reached = max(reached, run.end)
    return found


def _take_run(choice: QueueChoice, run: QueueRun, twice: Iterable[tuple[int, int]], place_of: PlaceOf) -> None:
    """A run counts for its slots, but for those in ``twice``: there the queue's own unit says which one is the message.

    Where none does, neither of the two counts.
    """
    begin = run.begin
    for low, high in sorted((max(low, run.begin), min(high, run.end)) for low, high in twice):
        if low < high and not run.phy_offset <= place_of(low) < run.phy_end:
            choice.covered.cover(begin, max(low, begin))
            choice.dropped.append((run, low, high))
            begin = max(begin, high)
    choice.covered.cover(begin, max(run.end, begin))


def _take_alone(choice: QueueChoice, run: QueueRun, *, joins: bool) -> None:
    """One record by itself: with a slot that is another's it is a message of another queue, by a flipped bit.

    Where those around it join without it (``joins``), nothing says that its queue has that slot. Offset 0 may be that
    of a topic that was recreated.
    """
    if run.begin == 0 and not joins:
        choice.covered.cover(0, 1)
    elif choice.covered.is_covered(run.begin):
        choice.duplicates.append(run)
        choice.dropped.append((run, run.begin, run.end))
    elif not joins and run.begin >= 0:
        choice.covered.cover(run.begin, run.end)


def _stands_between(runs: Sequence[QueueRun], firsts: Sequence[int], at: int) -> bool:
    """Whether a run stands between two others that join without it."""
    return 0 < at < len(runs) - 1 and firsts[at - 1] + runs[at - 1].length == firsts[at + 1]


def _take_moved(choice: QueueChoice, run: QueueRun) -> None:
    """Records that say they lie elsewhere count for the slots that no other record is of."""
    free = [(max(begin, run.begin), min(end, run.end)) for begin, end in choice.covered.gaps(run.end)]
    free = [(begin, end) for begin, end in free if begin < end]
    taken_from = run.begin
    for begin, end in [*free, (run.end, run.end)]:
        if taken_from < begin:
            choice.dropped.append((run, taken_from, begin))
        taken_from = end
    for begin, end in free:
        choice.covered.cover(begin, end)
    if free:
        choice.moved.append(run)


def _true_firsts(runs: Sequence[QueueRun], place_of: PlaceOf) -> list[int]:
    """The offset of the first record of each run, those mended that can only be wrong.

    No CRC covers a queue offset. Runs that exactly fill the hole between the one in front and the next one belong
    there; so does a run of which the queue's own unit says it, and one at the end that says something far away.
    """
    firsts = [run.begin for run in runs]
    if len(runs) == 1 and runs[0].length == 1:
        return [_of_only(runs[0], place_of)]
    if len(runs) > 1 and runs[0].length == 1 and place_of(runs[1].begin - 1) == runs[0].phy_offset:
        firsts[0] = runs[1].begin - 1
    for at in range(1, len(runs)):
        expected = firsts[at - 1] + runs[at - 1].length
        if runs[at].begin == expected or firsts[at] != runs[at].begin:
            continue
        if runs[at].length <= _MOST_IN_A_HOLE and place_of(expected) == runs[at].phy_offset:
            firsts[at] = expected
            continue
        behind = _filled_up_to(runs, at, expected)
        if behind is None and at + 1 == len(runs) and abs(runs[at].begin - expected) > _WILD_STEP:
            behind = at + 1
        for number in range(at, behind or at):
            firsts[number] = expected
            expected += runs[number].length
    return firsts


def _of_only(run: QueueRun, place_of: PlaceOf) -> int:
    """The offset of the only record of a queue: the one whose unit leads to it, if that differs in one bit, or is 0."""
    offsets = (run.begin, 0, *(run.begin ^ 1 << bit for bit in range(_OFFSET_BITS)))
    return next((offset for offset in offsets if place_of(offset) == run.phy_offset), run.begin)


def _filled_up_to(runs: Sequence[QueueRun], at: int, expected: int) -> int | None:
    """The number of the run in front of which those from ``at`` on fill the hole exactly; None where none is."""
    for behind in range(at + 1, min(at + 1 + _MOST_IN_A_HOLE, len(runs))):
        expected += runs[behind - 1].length
        if runs[behind - 1].length > _MOST_IN_A_HOLE:
            return None
        if runs[behind].begin == expected:
            return behind
    return None
