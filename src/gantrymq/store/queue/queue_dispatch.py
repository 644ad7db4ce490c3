"""Turns records of the log into units of the consume queues, and decides which queue offsets to accept.

Recovery, rebuild and :mod:`gantrymq.store.reput` give :class:`QueueDispatcher` batch after batch, in the order of the
log.

No CRC covers the queue offset of a record. One flipped bit of it must neither shift the messages after it nor create a
queue of a billion empty slots. The rules, in the order of the log:

- The offsets of a queue rise by one. A record that breaks the order while the next one does not is wrong. If the next
  one agrees with it, records are missing or repeated, and the offsets stand.
- A record that steps forward (or says 0) while the next one has the offset that was due is of another queue. It gets
  the slot of the record before it, which is taken: otherwise it would keep all later records out of the queue.
- A restart at 0 (topic deleted and recreated) is accepted only when two consecutive records show it, so that one
  flipped bit cannot drop a queue.
- At the end of a run, where no next record is known, a large step is not accepted.
- No offset is larger than the number of records that fit into the log before it.
- The first record of a queue has none before it. Two consecutive records overrule it, unless the log has room for the
  records that would be missing in between.

Thread rule: one dispatcher, used by one thread at a time.

Source: CommitLogDispatcherBuildConsumeQueue and ConsumeQueue.putMessagePositionInfoWrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import is_topic_storable
from gantrymq.format.queue_entry import UNIT_SIZE, decode_entry
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.api import missing_units
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.java import decode_utf8
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_units import PassedOver, QueueNumbers, QueueUnits, QueueUnitsEncoder, Renumbered

_PLAUSIBLE_STEP = 4096
_RANKS = np.arange(4096)


def repaired_offsets(offsets: Int64s, phy_offsets: Int64s, expected: int | None) -> Int64s:
    """Return the queue offsets (int64) of consecutive records of one queue, with impossible ones repaired.

    ``phy_offsets`` has the records' physical offsets. ``expected`` is the next offset of the queue, None if it is
    empty. If nothing is repaired, ``offsets`` itself is returned.
    """
    count = len(offsets)
    first = int(offsets[0]) if expected is None else expected
    ranks = _RANKS[:count] if count <= len(_RANKS) else np.arange(count)
    # The offset of the first record that follows from each record's own offset.
    origins = offsets - ranks
    if (origins == first).all() and 0 <= first <= int(phy_offsets[0]) // MIN_RECORD_SIZE:
        return offsets
    # The obvious way: believe each record, since the broker numbered them one by one. It fails on one flipped bit. A
    # bit of the high bytes makes a queue of a billion empty slots; a bit of the low bytes gives the message the slot of
    # another one, which then has none; a bit that makes 0 of the offset looks like a recreated topic, and the whole
    # queue before it is dropped. The second obvious way, to count and ignore what records say, fails as well: a topic
    # that was deleted and created again does begin at 0, retention and lost log files do leave gaps, and a counted
    # number behind a gap gives every later message a wrong offset for ever, so that consumers skip or repeat.
    #
    # A record alone proves nothing, but two that agree do: a flipped bit hits one of them. So each record is read
    # together with its successor. "Origin" is a record's offset minus its rank in this run: records that follow each
    # other without a gap have one origin, and the comparison of a record with its successor is one of two numbers.
    #
    # Records of a queue that breaks its order, in the order in which the readings are tried:
    #
    #   due  own  next   verdict
    #    7    9    7     a stranger: the next record has the offset that was due. It gets the slot of the record before
    #                    it, which is taken, so it enters no slot, and the queue goes on with 7.
    #    7    0    8     one flipped bit: a restart at 0 needs a second record that says 1. Use 7.
    #    7    9    8     a flipped bit: nothing continues from 9. Use 7.
    #    7    9   10     a real step: 9 and 10 agree. Two messages are missing; the slots of 7 and 8 stay empty.
    #    7    5    6     a real step back: 5 and 6 agree. They repeat slots that are taken.
    #    7    0    1     a restart: the topic was deleted and created again. The queue begins at 0 again.
    #    7    9    -     the end of the run: a small step is believed, one above _PLAUSIBLE_STEP is not. The next run
    #                    decides when it comes (QueueDispatcher keeps the possible restart and the stray record).
    #    -    5    6     the first record of a queue: nothing is due. _origin_of_first lets the next two records vote.
    #    7  10^9   8     impossible: 10^9 records do not fit into the log before this one. Use 7.
    #
    # What is wrong here is not lost: a record without a slot is named by verify and quarantined by a rebuild.
    possible = (offsets >= 0) & (offsets <= phy_offsets // MIN_RECORD_SIZE)
    before = _origin_of_first(origins, possible, phy_offsets) if expected is None else expected
    for i in range(count):
        origin = int(origins[i])
        after = int(origins[i + 1]) if i + 1 < count and possible[i + 1] else None
        is_single_zero = offsets[i] == 0 and after != origin
        if (is_single_zero or origin > before) and _is_of_another(offsets, i, before + int(ranks[i])):
            origins[i] = before - 1
            before -= 1
            continue
        if origin != before and (
            is_single_zero or not possible[i] or after == before or _is_implausible(origin - before, after)
        ):
            origin = before
        elif origin != before:
            before = origin
        origins[i] = before
    return origins + ranks


def continuing(offsets: Int64s, phy_offsets: Int64s, begins: Int64s, expected: Int64s) -> NDArray[np.bool_]:
    """Return which of many queues simply continue, so that :func:`repaired_offsets` would repair nothing (bool).

    The records are grouped by queue; queue i begins at index ``begins[i]``. A queue with ``expected`` -1 never
    qualifies.
    """
    lengths = np.diff(begins, append=len(offsets))
    as_expected = offsets - np.arange(len(offsets)) == np.repeat(expected - begins, lengths)
    is_possible = (expected >= 0) & (expected <= phy_offsets[begins] // MIN_RECORD_SIZE)
    return is_possible & np.logical_and.reduceat(as_expected, begins)


def _origin_of_first(origins: Int64s, possible: NDArray[np.bool_], phy_offsets: Int64s) -> int:
    """Decide the offset of a queue's first record by the next two."""
    own = int(origins[0])
    if len(origins) == 1 or not possible[1]:
        return own if possible[0] else 0
    after = int(origins[1])
    if after < 0:  # the second record restarts the queue, so no record can precede it
        return own if possible[0] else 0
    is_outvoted = len(origins) > 2 and after == origins[2]
    most_missing = (phy_offsets[1] - phy_offsets[0]) // MIN_RECORD_SIZE - 1
    is_gap = 0 < after - own <= most_missing
    return after if not possible[0] or (is_outvoted and not is_gap) else own


def _is_of_another(offsets: Int64s, row: int, expected: int) -> bool:
    """Whether the record at ``row`` is of another queue: after it, the queue continues with ``expected``.

    The record and those that continue its offsets are skipped. If the queue continues their offsets later, they are
    right, and the record with ``expected`` is the misplaced one.
    """
    behind = row + 1
    while behind < len(offsets) and offsets[behind] == offsets[behind - 1] + 1:
        behind += 1
    if behind == len(offsets) or offsets[behind] != expected or expected == 0:
        return False
    if behind + 1 < len(offsets):
        return bool(offsets[behind + 1] == expected + 1)
    return bool(offsets[row] != expected + 1)


def _is_implausible(step: int, after: int | None) -> bool:
    """Whether a step that no next record confirms is too large."""
    return after is None and abs(step) > _PLAUSIBLE_STEP


_MANY_QUEUES = 16  # from this number of queues on, they are checked together
Arrival = Callable[[str, int, int], None]
BeginOf = Callable[[str, int], int]


class QueueGapError(Exception):
    """A queue's next unit is missing before the batch. The log may have its record from ``from_offset`` on."""

    def __init__(self, from_offset: int) -> None:
        super().__init__(f"units are missing from physical offset {from_offset} on")
        self.from_offset = from_offset


class QueueDispatcher:
    """Puts every consumable record into its queue.

    ``on_arrival(topic, queue_id, max_offset)`` is called for each queue that grew. ``added`` counts units. ``begin_of``
    is that of :func:`append_units`. ``deleted_ends()`` maps a topic to the physical offset before which its records are
    deleted. The records at the physical offsets in ``left_out`` enter no queue.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        delay_levels_ms: Sequence[int],
        checkpoint: StoreCheckpoint,
        on_arrival: Arrival | None = None,
        begin_of: BeginOf | None = None,
        deleted_ends: Callable[[], Mapping[str, int]] = dict,
        left_out: Collection[int] = (),
    ) -> None:
        self._queues, self._deleted_ends = queues, deleted_ends
        self._left_out = np.array(sorted(left_out), np.int64)
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._checkpoint = checkpoint
        self._on_arrival = on_arrival
        self._begin_of = begin_of
        self._numbers = QueueNumbers()
        self._encoder = QueueUnitsEncoder()
        self._by_number: list[ConsumeQueue | None] = []
        self._ends: Int64s = np.empty(0, np.int64)
        self._wanted: Int64s = np.empty(0, np.int64)
        self.added = 0

    def dispatch(self, batch: RecordBatch, *, fill_gaps: bool = True) -> None:
        """Dispatch one batch. Units that exist already are skipped.

        With ``fill_gaps`` slots whose records the log no longer has become pre-blanks. Otherwise a gap raises
        QueueGapError before anything is written to its queue. Raises DiskFullError; the same batch may be dispatched
        again.
        """
        batch.trust_positions()
        wanted, last = self._missing(batch)
        if last < 0:
            return
        grouped = self._encoder.encode(batch, wanted, len(self._by_number), self._delay_levels_ms)
        starts = grouped.starts
        numbers = np.flatnonzero(starts[1:] != starts[:-1])
        if len(numbers) >= _MANY_QUEUES:
            numbers = self._go_on(grouped, numbers)
        for number in numbers.tolist():
            queue = self._by_number[number]
            if queue is not None:
                self._append(queue, grouped, int(starts[number]), int(starts[number + 1]), fill_gaps)
        self._checkpoint.note_queue_entry(
            int(batch.columns[codes.STORE_TIMESTAMP, last]), int(batch.columns[codes.PHY_OFFSET, last])
        )

    def _missing(self, batch: RecordBatch) -> tuple[Int64s, int]:
        """Return the queue number of each record, and the row of the last record to dispatch (-1: none).

        The number is -1 for a record that is not consumable or has its unit already.
        """
        ordinals, numbers = self._numbers.find(batch, self._add_queue)
        if batch.count > len(self._wanted):
            self._wanted = np.empty(batch.count, np.int64)
        is_small = batch.count < len(self._by_number)
        self._note_ends(set(numbers[ordinals].tolist()) - {-1} if is_small else range(len(self._by_number)))
        last: int = missing_units(batch.columns, batch.count, ordinals, numbers, self._ends, self._wanted)
        if len(self._left_out):
            phy_offsets = batch.columns[codes.PHY_OFFSET, : batch.count]
            self._wanted[: batch.count][np.isin(phy_offsets, self._left_out)] = -1
        return self._wanted, last

    def _note_ends(self, numbers: Iterable[int]) -> None:
        """Read where the units of these queues end, since recovery may have cut them.

        Reading this for every queue costs O(queues) a batch.
        """
        if len(self._ends) < len(self._by_number):
            self._ends = np.full(2 * len(self._by_number), -1, np.int64)
        deleted = self._deleted_ends()
        for number in numbers:
            queue = self._by_number[number]
            self._ends[number] = queue.max_physic_offset if queue else -1
            if deleted and queue:
                self._ends[number] = max(queue.max_physic_offset, deleted.get(queue.topic, -1))

    def _go_on(self, grouped: QueueUnits, numbers: Int64s) -> Int64s:
        """Append the units of queues that simply continue, checked together.

        Returns the numbers of the other queues.
        """
        begins, ends = grouped.starts[numbers], grouped.starts[numbers + 1]
        queues = [self._by_number[number] for number in numbers.tolist()]
        expected = np.array([queue.next_offset if queue else -1 for queue in queues], np.int64)
        plain = continuing(grouped.queue_offsets, grouped.phy_offsets, begins, expected)
        reached = grouped.phy_offsets[ends - 1] + grouped.sizes[ends - 1]
        units = grouped.units.data
        rows = np.stack((numbers, expected, begins * UNIT_SIZE, ends * UNIT_SIZE, reached), axis=1)[plain]
        for number, before, begin, end, max_physic_offset in rows.tolist():
            queue = self._by_number[number]
            if queue is not None:
                queue.go_on(units[begin:end], max_physic_offset, before)
                self._note(queue, before)
        return numbers[~plain]

    def _append(self, queue: ConsumeQueue, grouped: QueueUnits, begin: int, end: int, fill_gaps: bool) -> None:
        before = queue.max_offset
        append_units(queue, grouped, begin, end, fill_gaps=fill_gaps, begin_of=self._begin_of)
        self._note(queue, before)

    def _note(self, queue: ConsumeQueue, before: int) -> None:
        after = queue.max_offset
        self.added += after - before
        if self._on_arrival is not None:
            self._on_arrival(queue.topic, queue.queue_id, after)

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        storable = is_topic_storable(name) and queue_id >= 0
        self._by_number.append(self._queues.get_or_create(name, queue_id) if storable else None)


def append_units(
    queue: ConsumeQueue,
    grouped: QueueUnits,
    begin: int,
    end: int,
    *,
    fill_gaps: bool,
    begin_of: BeginOf | None = None,
) -> None:
    """Append units ``begin`` to ``end``, all of ``queue`` and of one batch, run by run of consecutive queue offsets.

    ``begin_of(topic, queue_id)`` returns where unit 0 points in the old files that a rebuild replaces. It is called if
    a record says offset 0 and the next one does not say 1: if it returns that record's offset, the queue restarted
    there.

    Raises DiskFullError, and QueueGapError without ``fill_gaps``.
    """
    claimed, phy_offsets = grouped.queue_offsets[begin:end], grouped.phy_offsets[begin:end]
    if claimed[0] == 1:
        queue.restart_at_zero()
    queue.possible_restart = None
    if queue.stray_candidate is not None and claimed[0] == queue.stray_candidate[0]:
        queue.take_back_stray()
    queue.stray_candidate = None
    expected = queue.max_offset if queue.max_physic_offset >= 0 else None
    offsets = repaired_offsets(claimed, phy_offsets, expected)
    if begin_of is not None and offsets is not claimed and (claimed[offsets != 0] == 0).any():
        restarts = np.flatnonzero((claimed == 0) & (phy_offsets == begin_of(queue.topic, queue.queue_id)))
        if len(restarts):
            queue.destroy()
            append_units(queue, grouped, begin + int(restarts[0]), end, fill_gaps=fill_gaps)
            return
    if offsets is claimed and expected is not None:  # all offsets continue from the end of the queue
        cuts = [begin, end]
    else:
        cuts = [begin, *(np.flatnonzero(np.diff(offsets) != 1) + begin + 1).tolist(), end]
    for start, stop in pairwise(cuts):
        first = int(offsets[start - begin])
        # the record is of another queue and gets no unit
        if first == queue.max_offset - 1 and claimed[start - begin] != first:
            queue.passed_over += _passed_over(grouped, start, start + 1, int(claimed[start - begin]))
            start, first = start + 1, first + 1
            if start == stop:
                continue
        if not fill_gaps and first > queue.max_offset:
            raise QueueGapError(queue.max_physic_offset)
        added_from = start
        if 0 < first < queue.max_offset:
            added_from = min(stop, start + queue.max_offset - first)
            queue.passed_over += _passed_over(grouped, start, added_from, first)
        if stop == end == start + 1 and queue.max_physic_offset >= 0 and first > queue.max_offset:
            queue.stray_candidate = queue.max_offset, next(_passed_over(grouped, start, stop, first))
        queue.append_units(first, *_units(grouped, start, stop))
        if offsets is not claimed:
            queue.renumbered += _renumbered(grouped, added_from, stop, first + added_from - start)
    if claimed[-1] == 0 != offsets[-1]:
        unit, store_times_ms, max_physic_offset = _units(grouped, end - 1, end)
        # Copied, because the next batch is encoded into the same memory.
        queue.possible_restart = memoryview(bytes(unit)), store_times_ms.copy(), max_physic_offset


def _renumbered(grouped: QueueUnits, start: int, stop: int, first: int) -> Iterator[Renumbered]:
    """Yield the records of a run whose own queue offset is impossible. Their units begin at ``first``.

    An offset of 0 is left out: the topic may have been recreated, which no other data shows (``queue-entry-anew`` of
    verify).
    """
    claimed = grouped.queue_offsets[start:stop]
    for row in np.flatnonzero((claimed - np.arange(stop - start) != first) & (claimed != 0)).tolist():
        yield Renumbered(int(grouped.phy_offsets[start + row]), int(grouped.sizes[start + row]), first + row)


def _passed_over(grouped: QueueUnits, start: int, stop: int, first: int) -> Iterator[PassedOver]:
    for row in range(start, stop):
        tags_code = decode_entry(grouped.units.data, row * UNIT_SIZE).tags_code
        yield PassedOver(int(grouped.phy_offsets[row]), int(grouped.sizes[row]), tags_code, first + row - start)


def _units(grouped: QueueUnits, start: int, stop: int) -> tuple[memoryview, Int64s, int]:
    """Return the units, the store times of their records, and the physical offset after the last of these."""
    units = grouped.units[start * UNIT_SIZE : stop * UNIT_SIZE].data
    return units, grouped.store_times_ms[start:stop], int(grouped.phy_offsets[stop - 1] + grouped.sizes[stop - 1])
