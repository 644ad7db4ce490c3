"""What a log has of each queue: runs of consecutive queue offsets, and which of them are messages of the queue.

A queue of a healthy log is one run. Every fault of the log adds runs: a damaged record leaves a gap between two runs, a
flipped queue offset makes a run of one record, and a topic that was recreated begins a run at 0. Memory therefore grows
only with the number of faults. Several readers can each read a part of the log and join their results.

Thread rule: plain values, and a collector that belongs to one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Int64s
from gantrymq.tools.reports import Quarantined

_FAR = 1 << 62
_MAX_IN_A_HOLE = 16  # the most runs that are moved into a hole: more are another order, not flipped bits
_WILD_STEP = 4096
_NUMBERS_OF_TWO_BYTES = 1 << 15


class Coverage:
    """The slots of a queue from ``first`` on. All slots below ``upto`` are covered, except the gaps."""

    def __init__(self, first: int) -> None:
        self.upto = first
        self._gaps: list[tuple[int, int]] = []

    def cover(self, begin: int, end: int) -> None:
        """Mark the slots [begin, end) as covered."""
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
        """Whether one slot is covered."""
        at = bisect_right(self._gaps, (slot, _FAR)) - 1
        return slot < self.upto and not (at >= 0 and slot < self._gaps[at][1])


Bools = NDArray[np.bool_]
QueueName = tuple[str, int]
PlaceOf = Callable[[int], int]


class QueueRun(NamedTuple):
    """Records of one queue, consecutive in the log, with the queue offsets [begin, end).

    The first record begins at ``phy_offset``, the last one ends at ``phy_end``. ``moved``: every record of the run
    carries another physical offset than its own.
    """

    begin: int
    end: int
    phy_offset: int
    phy_end: int
    moved: bool

    @property
    def length(self) -> int:
        """The number of records."""
        return self.end - self.begin


class QueueRuns:
    """The runs of each queue. Add batches in the order of the log."""

    def __init__(self) -> None:
        self.by_queue: dict[QueueName, list[QueueRun]] = {}

    def add(self, names: Sequence[QueueName], queues: Int64s, rows: tuple[Int64s, Int64s, Int64s, Bools]) -> None:
        """Add some records.

        ``queues`` has for each record the number of its queue in ``names``. ``rows`` are the records' queue offsets,
        physical offsets, sizes in bytes, and whether each record carries another physical offset than its own.
        """
        for number, _, run in runs_of(queues, *rows):
            append_run(self.by_queue.setdefault(names[number], []), run)

    def join(self, others: Mapping[QueueName, Iterable[QueueRun]]) -> None:
        """Add the runs of the next part of the log."""
        for name, runs in others.items():
            for run in runs:
                append_run(self.by_queue.setdefault(name, []), run)


def append_run(runs: list[QueueRun], run: QueueRun) -> None:
    """Append a run, joined with the last one if it continues that."""
    if runs and runs[-1].end == run.begin and runs[-1].moved == run.moved:
        runs[-1] = runs[-1]._replace(end=run.end, phy_end=run.phy_end)
    else:
        runs.append(run)


def runs_of(
    queues: Int64s, offsets: Int64s, phy_offsets: Int64s, sizes: Int64s, moved: Bools | None = None
) -> Iterator[tuple[int, Int64s, QueueRun]]:
    """The runs of some records, in the order of the log within each queue: (number of the queue, rows, run).

    Each record has the number of its queue, its queue offset, its physical offset and size, and whether it carries
    another physical offset than its own.
    """
    # NumPy sorts 16-bit integers with a radix sort, in a tenth of the time.
    is_small = len(queues) > 0 and int(queues.max()) < _NUMBERS_OF_TWO_BYTES
    order = np.argsort(queues.astype(np.int16) if is_small else queues, kind="stable")
    of_queue, at = queues[order], offsets[order]
    is_begin = (np.diff(of_queue, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 1)
    if moved is not None:
        is_begin |= np.diff(moved[order].astype(np.int8), prepend=0) != 0
    begins = np.flatnonzero(is_begin).tolist()
    for begin, end in pairwise([*begins, len(order)]) if begins else ():
        rows = order[begin:end]
        slots = int(at[begin]), int(at[end - 1]) + 1
        span = int(phy_offsets[rows[0]]), int(phy_offsets[rows[-1]] + sizes[rows[-1]])
        yield int(of_queue[begin]), rows, QueueRun(*slots, *span, moved is not None and bool(moved[rows[0]]))


@dataclass(slots=True)
class QueueChoice:
    """Which records of a queue count, and under which queue offset.

    Records before the physical offset ``begin`` belong to an older topic of the same name. ``dropped`` has (run, from,
    to): these slots of the run belong to other records. ``renumbered`` has (run, true offset of its first record).
    ``moved`` are runs that count although their records carry another physical offset. ``duplicates`` are single
    records that claim the slot of another. ``covered`` are the slots with a message. ``only`` is the single record of a
    queue that must have had others, because its offset is above 0. It is ``quarantined`` if another queue lacks it.
    """

    begin: int = 0
    dropped: list[tuple[QueueRun, int, int]] = field(default_factory=list)
    renumbered: list[tuple[QueueRun, int]] = field(default_factory=list)
    moved: list[QueueRun] = field(default_factory=list)
    duplicates: list[QueueRun] = field(default_factory=list)
    only: QueueRun | None = None
    quarantined: Quarantined | None = None
    covered: Coverage = field(default_factory=lambda: Coverage(0))

    def is_trivial(self, runs: Sequence[QueueRun]) -> bool:
        """Whether every record counts as it is."""
        is_older = any(run.phy_offset < self.begin for run in runs) or self.quarantined is not None
        return not (is_older or self.dropped or self.renumbered)

    def quarantine(self, record: Quarantined) -> None:
        """Do not count the only record."""
        assert self.only is not None
        self.quarantined = record
        self.dropped.append((self.only, self.only.begin, self.only.end))
        self.covered = Coverage(0)

    def takes(self, queue_offset: int, phy_offset: int) -> bool:
        """Whether the record at the physical offset ``phy_offset`` counts under the queue offset that it carries."""
        offsets = np.array([queue_offset], np.int64)
        keep = self.apply(offsets, np.array([phy_offset], np.int64))
        return self.only is None and bool(keep[0]) and int(offsets[0]) == queue_offset

    def apply(self, offsets: Int64s, phy_offsets: Int64s) -> Bools:
        """Return which records of the queue count, and correct ``offsets`` in place to the true queue offsets."""
        keep: Bools = phy_offsets >= self.begin
        for run, begin, end in self.dropped:
            keep &= ~(_within(run, phy_offsets) & (offsets >= begin) & (offsets < end))
        for run, first in self.renumbered:
            rows = _within(run, phy_offsets)
            offsets[rows] = offsets[rows] - run.begin + first
        return keep


def _within(run: QueueRun, phy_offsets: Int64s) -> Bools:
    return (phy_offsets >= run.phy_offset) & (phy_offsets < run.phy_end)


def choose(runs: Sequence[QueueRun], begin: int | None, place_of: PlaceOf) -> QueueChoice:
    """Decide which records of a queue count.

    ``begin`` is the physical offset of the queue's first record if unit 0 gives it. With None it is derived from the
    records: the topic was recreated where offsets 0 and 1 follow other records of the queue. ``place_of`` returns the
    physical offset that the unit of a queue offset points to.
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
    """The slots [from, to) that two longer runs share. One of the two belongs to another queue."""
    shared, reached = [], 0
    for run in sorted(run for run in runs if run.length > 1):
        if run.begin < reached:
            shared.append((run.begin, min(run.end, reached)))
        reached = max(reached, run.end)
    return shared


def _take_run(choice: QueueChoice, run: QueueRun, twice: Iterable[tuple[int, int]], place_of: PlaceOf) -> None:
    """Cover the slots of a run. For slots in ``twice`` the queue's own unit decides which record is the message.

    If no unit decides, neither of the two records counts.
    """
    begin = run.begin
    for low, high in sorted((max(low, run.begin), min(high, run.end)) for low, high in twice):
        if low < high and not run.phy_offset <= place_of(low) < run.phy_end:
            choice.covered.cover(begin, max(low, begin))
            choice.dropped.append((run, low, high))
            begin = max(begin, high)
    choice.covered.cover(begin, max(run.end, begin))


def _take_alone(choice: QueueChoice, run: QueueRun, *, joins: bool) -> None:
    """Judge a run of one record. If another record has its slot, a flipped bit made it look like this queue's.

    With ``joins`` the runs on both sides join without it, so nothing confirms that its queue has that slot. A record
    with offset 0 may be the first of a recreated topic.
    """
    if run.begin == 0 and not joins:
        choice.covered.cover(0, 1)
    elif choice.covered.is_covered(run.begin):
        choice.duplicates.append(run)
        choice.dropped.append((run, run.begin, run.end))
    elif not joins and run.begin >= 0:
        choice.covered.cover(run.begin, run.end)


def _stands_between(runs: Sequence[QueueRun], firsts: Sequence[int], at: int) -> bool:
    """Whether the runs on both sides of a run join without it."""
    return 0 < at < len(runs) - 1 and firsts[at - 1] + runs[at - 1].length == firsts[at + 1]


def _take_moved(choice: QueueChoice, run: QueueRun) -> None:
    """Let records that carry another physical offset count for the slots that no other record has."""
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
    """The true queue offset of the first record of each run, corrected where the record's own can only be wrong.

    No CRC covers a queue offset. Runs that exactly fill the hole between their neighbours belong there. So does a run
    that the queue's own unit confirms, and a last run whose offset is far away from the expected one.
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
        if place_of(runs[at].begin) == runs[at].phy_offset:
            continue
        if runs[at].length <= _MAX_IN_A_HOLE and place_of(expected) == runs[at].phy_offset:
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
    """The true offset of a queue's only record.

    It is 0 if the first unit of the queue points to the record, and that of the record does not. Otherwise it is the
    record's own.
    """
    return next((offset for offset in (run.begin, 0) if place_of(offset) == run.phy_offset), run.begin)


def _filled_up_to(runs: Sequence[QueueRun], at: int, expected: int) -> int | None:
    """The number of the run before which the runs from ``at`` on exactly fill the hole, or None."""
    for behind in range(at + 1, min(at + 1 + _MAX_IN_A_HOLE, len(runs))):
        expected += runs[behind - 1].length
        if runs[behind - 1].length > 1:  # its records agree with each other
            return None
        if runs[behind].begin == expected:
            return behind
    return None
