"""What each topic of a store takes on each day: messages and bytes of records, counted from the units of its queues.

The log is not read, except for the heads of some records, which say on which day a stretch of the log was stored
(:mod:`gantrymq.tools.read.store_days`). Memory does not grow with the number of messages: a block of units is counted
and forgotten. :class:`Growth` is what the last days of the log added; :mod:`gantrymq.tools.disk_outlook` extends it.

A unit counts if it points into the log, at a higher place than the unit before it. All other slots that are no fillers
are damaged, and :attr:`Usage.problems` names them.

Thread rule: one thread, and no other may use the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.queue_units import Units
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.texts import count_text
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.reader import StoreReader
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.read.store_days import DAY_MS, SPREAD_RECORDS, StoreDays

_BLOCK_UNITS = 1 << 16
_WINDOW_DAYS = 7
_LEAST_WINDOW_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Growth:
    """What was stored from ``begin_ms`` to ``end_ms``: ``messages``, and ``log_bytes`` of the commit log."""

    begin_ms: int
    end_ms: int
    messages: int
    log_bytes: int

    def a_day(self, amount: int) -> int:
        """An amount of this time, for a day."""
        return round(amount * DAY_MS / (self.end_ms - self.begin_ms))


@dataclass(slots=True)
class Usage:
    """``rows`` has (messages, bytes of records) by topic and day (a number since 1970).

    A topic with queues and without messages is in ``topics`` only. ``problems`` name what could not be counted;
    ``notes`` are remarks without effect on the numbers. ``growth`` is None if the log covers less than an hour.
    """

    topics: list[str] = field(default_factory=list)
    rows: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    growth: Growth | None = None

    @property
    def messages(self) -> int:
        """The number of messages of all topics."""
        return sum(messages for messages, _ in self.rows.values())

    @property
    def record_bytes(self) -> int:
        """The bytes of all records."""
        return sum(size for _, size in self.rows.values())


def usage_of(reader: StoreReader, now_ms: int, progress: Progress | None = None) -> Usage:
    """Count the store that ``reader`` has open. ``now_ms`` ends the time of its growth if a writer has it open."""
    return _Count(reader, progress).run(now_ms)


class _Count:
    def __init__(self, reader: StoreReader, progress: Progress | None) -> None:
        self._reader = reader
        self._progress = progress
        self._days = StoreDays(reader.log)
        self._usage = Usage()
        self._queues = list(reader.consume_queues)
        self._total = sum(queue.max_offset - queue.min_offset for queue in self._queues)
        self._done = 0

    def run(self, now_ms: int) -> Usage:
        days, usage = self._days, self._usage
        usage.topics = sorted({queue.topic for queue in self._queues})
        days.read_files()
        days.read_spread(self._spread_phy_offsets(), lambda done: self._report("Reading store times", done, 0))
        spread = days.phy_offsets, days.times_ms
        for queue in self._queues:
            self._count(queue)
        if days.unreadable:
            count = count_text(len(days.unreadable), "record")
            text = f"{count} of the log cannot be read, the first at {min(days.unreadable)}"
            usage.problems.append(f"{text}: counted on the day of the record before")
        usage.notes += _clock_notes(*spread)
        usage.growth = self._growth(now_ms)
        return usage

    def _report(self, step: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(step, done, total)

    def _spread_phy_offsets(self) -> Iterator[int]:
        """The physical offsets of messages that are spread evenly over all queues."""
        step = -(-self._total // SPREAD_RECORDS)
        behind = 0  # the slots of earlier queues after the last chosen one
        for queue in self._queues:
            begin, end = queue.min_offset, queue.max_offset
            for slot in range(begin + behind, end, step) if step > 1 else ():
                if (unit := queue.entry(slot)) is not None and self._is_in_log(unit.phy_offset) and unit.is_message:
                    yield unit.phy_offset
            if step > 1:
                behind = (behind - (end - begin)) % step
                continue
            for _, units in self._blocks(queue):
                yield from units.phy_offsets[units.is_message & self._in_log(units)].tolist()

    def _is_in_log(self, phy_offset: int) -> bool:
        return self._reader.min_phy_offset <= phy_offset < self._reader.max_phy_offset

    def _in_log(self, units: Units) -> NDArray[np.bool_]:
        begins, ends = units.phy_offsets, units.phy_offsets + units.sizes
        inside: NDArray[np.bool_] = (begins >= self._reader.min_phy_offset) & (ends <= self._reader.max_phy_offset)
        for low, high in self._days.empty:
            inside &= (begins < low) | (begins >= high)
        return inside

    def _blocks(self, queue: ConsumeQueue) -> Iterator[tuple[int, Units]]:
        """Yield (first slot, units) of a queue. Names the rest of a queue that cannot be read."""
        slot, end = queue.min_offset, queue.max_offset
        while slot < end:
            try:
                rows = queue.entries(slot, min(end - slot, _BLOCK_UNITS))
            except StoreError as error:
                self._miss(queue, end - slot, slot, end - 1, str(error))
                return
            if not len(rows):
                self._miss(queue, end - slot, slot, end - 1, "the file is gone")
                return
            yield slot, Units(rows)
            slot += len(rows)

    def _count(self, queue: ConsumeQueue) -> None:
        highest = -1
        damaged: list[int] = []
        damaged_count = 0
        for first, units in self._blocks(queue):
            is_right = units.is_message & self._in_log(units)
            right = np.flatnonzero(is_right)
            rises = _rising(units.phy_offsets[right], units.sizes[right], highest)
            is_right[right[~rises]] = False
            phy_offsets, sizes = units.phy_offsets[is_right], units.sizes[is_right]
            if len(phy_offsets):
                highest = int(phy_offsets[-1])
                self._add(queue.topic, phy_offsets, sizes)
            wrong = np.flatnonzero(~is_right & ~units.is_filler)
            if len(wrong):
                damaged = [*damaged[:1], first + int(wrong[0]), first + int(wrong[-1])]
                damaged_count += len(wrong)
            self._done += len(units)
            self._report("Counting messages", self._done, self._total)
        if damaged:
            self._miss(queue, damaged_count, damaged[0], damaged[-1], "they point to no place in the log")

    def _miss(self, queue: ConsumeQueue, count: int, first: int, last: int, reason: str) -> None:
        units = f"{count_text(count, 'unit')} of topic {queue.topic}, queue {queue.queue_id}, offsets {first} to {last}"
        self._usage.problems.append(f"not counted: {units}: {reason}; `gantrymq store verify` says what is damaged")

    def _add(self, topic: str, phy_offsets: Int64s, sizes: Int64s) -> None:
        days = self._days.days_of(phy_offsets)
        if days[0] == days[-1] and (len(days) < 3 or not np.any(days != days[0])):
            self._add_row(topic, int(days[0]), len(days), int(sizes.sum()))
            return
        distinct_days, number = np.unique(days, return_inverse=True)
        messages, size = np.bincount(number), np.bincount(number, sizes).astype(np.int64)
        for row, day in enumerate(distinct_days.tolist()):
            self._add_row(topic, day, int(messages[row]), int(size[row]))

    def _add_row(self, topic: str, day: int, messages: int, size: int) -> None:
        before = self._usage.rows.get((topic, day), (0, 0))
        self._usage.rows[topic, day] = before[0] + messages, before[1] + size

    def _growth(self, now_ms: int) -> Growth | None:
        """What the last days of the log added. A clock that was set back counts as standing still."""
        phy_offsets, times = self._days.phy_offsets, np.maximum.accumulate(self._days.times_ms)
        if not len(phy_offsets):
            return None
        end_ms = max(now_ms, int(times[-1])) if now_ms else int(times[-1])
        begin_ms = max(int(times[0]), end_ms - _WINDOW_DAYS * DAY_MS)
        if end_ms - begin_ms < _LEAST_WINDOW_MS:
            return None
        begin = phy_offsets[min(int(np.searchsorted(times, begin_ms)), len(phy_offsets) - 1)]
        log_bytes = self._reader.max_phy_offset - int(begin) if times[-1] >= begin_ms else 0
        share = log_bytes / max(self._reader.max_phy_offset - self._reader.min_phy_offset, 1)
        return Growth(begin_ms, end_ms, round(self._usage.messages * share), log_bytes)


def _rising(phy_offsets: Int64s, sizes: Int64s, highest: int) -> NDArray[np.bool_]:
    """Which offsets are above ``highest`` and all earlier ones. A single offset that is too high hides no later one."""
    rises = np.diff(phy_offsets, prepend=highest) > 0
    if rises.all():
        return rises
    is_rising = np.zeros(len(phy_offsets), np.bool_)
    following = [*phy_offsets[1:].tolist(), 1 << 62]
    for row, (phy_offset, size) in enumerate(zip(phy_offsets.tolist(), sizes.tolist(), strict=True)):
        is_before_next = (
            following[row] >= phy_offset + size or following[row] <= highest
        )  # the next may be the wrong one
        if phy_offset > highest and is_before_next:
            is_rising[row] = True
            highest = phy_offset
    return is_rising


def _clock_notes(phy_offsets: Int64s, times_ms: Int64s) -> list[str]:
    """A remark if the store times of the log go back to an earlier day."""
    days = times_ms // DAY_MS
    back = np.flatnonzero(np.diff(days) < 0)
    if not len(back):
        return []
    at, span_days = int(phy_offsets[back[0] + 1]), int((np.maximum.accumulate(days) - days).max())
    text = f"the store's clock was set back by up to {count_text(span_days, 'day')}, first at {at} of the log"
    return [f"{text}: a stretch of less than 1/{SPREAD_RECORDS:,} of the messages may count on a neighbouring day"]
