"""Compares the records of a run with the consume queues, and reports messages that only a queue names as lost.

A record with a damaged header, or one that other records were copied over, leaves no trace in the log: it looks like a
record of another queue, or like none. Its queue shows that it is missing: the offsets of the queue's records have a
gap, start late or end early. The unit at a missing offset then shows whether there is a message (a slot may be empty)
and whether it lies in this run. Units are read in small blocks, only at missing offsets.

A record that is out of order may claim the offset of another record. The one to which the queue's unit points counts.
Salvage and rebuild use the same rules (:mod:`gantrymq.tools.loss.loss`).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import COMMIT_LOG, CONSUME_QUEUE
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.kernels import codes
from gantrymq.model.message import PROPERTY_INNER_MULTI_DISPATCH, StoredMessage
from gantrymq.spark.locations import Location
from gantrymq.spark.log_file import BadSectorError, LogFile, NotThereError, message_at
from gantrymq.spark.plan.remote_store import files_in
from gantrymq.spark.runs import ENDLESS, AuditPlan, Bounds, LogRun
from gantrymq.spark.selection import QueueKey, with_namespace
from gantrymq.store.queue.consume_queue import UNIT_DTYPE
from gantrymq.tools.arrow import LogBatch

_BLOCK_UNITS = 204  # 4 KiB: most reads need one unit
_BLOCKS_KEPT = 64
_BEHIND_ALL = (1 << 63) - 1
NOWHERE = -1
"""The place of a slot that is empty or not written."""


class QueueUnits:
    """The units in ``directory``. Raises StoreError if they cannot be read."""

    def __init__(self, directory: Location) -> None:
        self._files = files_in(directory)
        self._begins = [file.begin for file in self._files]
        self._block = lru_cache(_BLOCKS_KEPT)(self._read_block)
        self.slots = range(0)
        """The offsets that the files have room for."""
        if self._files:
            last = self._files[-1]
            self.slots = range(self._begins[0] // UNIT_SIZE, (last.begin + last.size_bytes) // UNIT_SIZE)

    def places(self, low: int, high: int) -> NDArray[np.int64]:
        """The physical offsets of the messages [low, high) (int64); -1 for a slot that is empty or not written."""
        parts, at = [np.empty(0, np.int64)], low
        while at < high:
            number, first = divmod(at, _BLOCK_UNITS)
            units = self._block(number)[first : first + high - at]
            is_real = (units["size"] > 0) & (units["size"] != BLANK_UNIT_SIZE)
            parts.append(np.where(is_real, units["phy_offset"].astype(np.int64), NOWHERE))
            at += len(units)
        return np.concatenate(parts)

    def is_blank(self, offset: int) -> bool:
        """Whether a slot is empty, so that it has no message."""
        number, at = divmod(offset, _BLOCK_UNITS)
        return int(self._block(number)[at]["size"]) == BLANK_UNIT_SIZE

    def first_at(self, phy_offset: int) -> int:
        """The first offset whose message lies at or after ``phy_offset``; after all slots if there is none."""
        return self.slots.start + bisect_left(self.slots, phy_offset, key=self._order)

    def _order(self, offset: int) -> int:
        """The place of a message; for an empty slot, of the one before it; after everything if not written."""
        while offset >= self.slots.start and self.is_blank(offset):
            offset -= 1
        if offset < self.slots.start:
            return NOWHERE
        place = int(self.places(offset, offset + 1)[0])
        return _BEHIND_ALL if place == NOWHERE else place

    def _read_block(self, number: int) -> NDArray[np.void]:
        """The units of a block; zeros where there is no file."""
        data = bytearray(_BLOCK_UNITS * UNIT_SIZE)
        begin, end = number * len(data), (number + 1) * len(data)
        for file in self._files[max(bisect_right(self._begins, begin) - 1, 0) : bisect_left(self._begins, end)]:
            low, high = max(file.begin, begin), min(file.begin + file.size_bytes, end)
            if low < high:
                with LogFile(file.location) as opened:
                    opened.read_into(memoryview(data)[low - begin : high - begin], low - file.begin)
        return np.frombuffer(data, UNIT_DTYPE)


_LOGGER = logging.getLogger(__name__)
_NUMBERS_OF_TWO_BYTES = 1 << 15
Offsets = NDArray[np.int64]
Keys = list[tuple[str | None, int]]


class QueueAudit:
    """Notes the records of a run, batch by batch, and reports at the end what is missing."""

    def __init__(self, run: LogRun, plan: AuditPlan) -> None:
        self._run, self._plan = run, plan
        self._queues: dict[tuple[str | None, int], _Queue] = {}

    def take(self, keys: Keys, batch: LogBatch) -> dict[int, str]:
        """Note the records of a batch, whose queues are indexes into ``keys``.

        Returns the rows that do not count, with the reasons.
        """
        doubles = {}
        places, sizes = batch.row(codes.PHY_OFFSET), batch.row(codes.SIZE)
        # NumPy sorts 16-bit integers with a radix sort, in a tenth of the time.
        numbers = batch.queues.astype(np.int16) if len(keys) < _NUMBERS_OF_TWO_BYTES else batch.queues
        order = np.argsort(numbers, kind="stable")
        of_queue, at = batch.queues[order], batch.row(codes.QUEUE_OFFSET)[order]
        begins = np.flatnonzero((np.diff(of_queue, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 1))
        ends = [*begins[1:].tolist(), len(order)]
        for begin, end in zip(begins.tolist(), ends, strict=True):
            queue = self._queue(*keys[of_queue[begin]])
            low, high = int(at[begin]), int(at[end - 1]) + 1
            first, last = int(places[order[begin]]), int(places[order[end - 1]] + sizes[order[end - 1]])
            if low != queue.next_offset and (why := queue.why_not(low, first)) is not None:
                doubles[int(order[begin])] = why
                if end == begin + 1:
                    continue
                low, first = low + 1, int(places[order[begin + 1]])
            queue.note(low, high, first, last)
        return doubles

    def losses(self) -> list[str]:
        """The losses as texts. Call it at the end of the run."""
        found = []
        for (topic, queue_id), bounds in sorted((self._run.bounds or {}).items()):
            if bounds.low < bounds.high:
                queue = self._queue(topic, queue_id)
                try:
                    found += [f"{queue}: {_gone(low, high)}" for low, high in queue.missing(bounds)]
                except StoreError as error:
                    _LOGGER.warning("%s was not compared with its records: %s", queue, error)
        return found

    def _queue(self, topic: str | None, queue_id: int) -> _Queue:
        key = topic, queue_id
        if key not in self._queues:
            queue = self._queues[key] = _Queue(self._run, self._plan, topic or "", queue_id)
            bounds = (self._run.bounds or {}).get((topic or "", queue_id))
            if bounds is not None and bounds.high != ENDLESS and self._plan.is_first:
                queue.next_offset = bounds.low  # so that a stream's batch reads no unit
        return self._queues[key]


class _Queue:
    """One queue: the records that the run has of it, and its units."""

    def __init__(self, run: LogRun, plan: AuditPlan, shown: str, queue_id: int) -> None:
        self._plan = plan
        self._key = QueueKey(run.broker or "", shown, queue_id)
        self._topic = with_namespace(shown, run.selection.namespace)
        self._start, self._stop = run.pieces[0].start, run.pieces[-1].stop
        self._segments: list[_Segment] = []
        self._opened: QueueUnits | None = None
        self.next_offset = NOWHERE
        """The offset that the next record should have."""

    def __str__(self) -> str:
        """The text for messages."""
        return str(self._key)

    def note(self, low: int, high: int, begin: int, end: int) -> None:
        """Note that the run has the messages [low, high), which lie from ``begin`` to ``end`` of the log."""
        if self._segments and self._segments[-1].high == low:
            self._segments[-1] = self._segments[-1]._replace(high=high, end=end)
        else:
            self._segments.append(_Segment(low, high, begin, end))
        self.next_offset = high

    def why_not(self, offset: int, place: int) -> str | None:
        """Why the record at ``place`` is not the message at ``offset`` that it claims to be; None if it is."""
        if self._is_remote and not self._segments:  # nothing contradicts it, and reading a unit is a request
            return None
        try:
            (named,) = self._units.places(offset, offset + 1).tolist()
        except StoreError:
            return None  # reported at the end
        if named in (NOWHERE, place):
            return None
        other = self._record(named)
        if other is None or other.queue_offset != offset or not self._has(other):
            return None
        return f"it names offset {offset} of {self}, which is at {named}"

    def missing(self, bounds: Bounds) -> Iterator[tuple[int, int]]:
        """Ranges of offsets within ``bounds`` whose messages belong to this run and are not among its records."""
        segments = _joined(self._segments)
        gaps = [(one.high, other.low) for one, other in pairwise(segments)]
        is_all = self._plan.is_first and self._plan.is_last and bounds.high != ENDLESS
        if is_all:
            first, last = (segments[0].low, segments[-1].high) if segments else (bounds.high, bounds.high)
            gaps += [(bounds.low, first), (last, bounds.high)]
        parts = [self._of_gap(low, high, is_all=is_all) for low, high in gaps if low < high]
        if not is_all and not self._is_remote and self._units.slots:
            parts += self._at_the_ends(bounds, segments)
        lost = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        if not len(lost) or (not segments and self._is_light(int(lost[0]))):
            return
        for part in np.split(lost, np.flatnonzero(np.diff(lost) != 1) + 1):
            yield int(part[0]), int(part[-1]) + 1

    def _of_gap(self, low: int, high: int, *, is_all: bool) -> Offsets:
        """The offsets of a gap in the records of this run at which there are messages.

        If the run is the whole stretch (``is_all``), that is every slot that is not empty. Otherwise a record with a
        wrong offset may have caused the gap, and the units show which messages lie in this run.
        """
        if not is_all:
            low, high = max(low, self._units.slots.start), min(high, self._units.slots.stop)
        places = self._units.places(low, high)
        if not is_all:
            return np.flatnonzero((self._start <= places) & (places < self._stop)) + low
        is_blank = [place == NOWHERE and self._units.is_blank(low + at) for at, place in enumerate(places.tolist())]
        return np.flatnonzero(~np.array(is_blank, np.bool_)) + low

    def _at_the_ends(self, bounds: Bounds, segments: list[_Segment]) -> Iterator[Offsets]:
        """The offsets before the first record and after the last one whose units point into this run."""
        units = self._units
        low, high = max(bounds.low, units.slots.start), min(bounds.high, units.slots.stop)
        segments = [one for one in segments if one.low < high]  # else its unit is unwritten or its offset wrong
        if not segments:
            at, behind = units.first_at(self._start), units.first_at(self._stop)
            yield self._pointing(max(low, at), min(high, behind), self._start, self._stop)
            return
        first, last = segments[0], segments[-1]
        if low < first.low and self._may_point(first.low - 1, self._start, first.begin):
            yield self._pointing(max(low, units.first_at(self._start)), first.low, self._start, first.begin)
        if last.high < high and self._may_point(last.high, last.end, self._stop):
            yield self._pointing(last.high, min(high, units.first_at(self._stop)), last.end, self._stop)

    def _may_point(self, offset: int, start: int, stop: int) -> bool:
        """Whether a unit points into [start, stop), or is of an empty slot, next to which one may."""
        (place,) = self._units.places(offset, offset + 1).tolist()
        return start <= place < stop or self._units.is_blank(offset)

    def _pointing(self, low: int, high: int, start: int, stop: int) -> Offsets:
        """The offsets of [low, high) whose units point into [start, stop).

        A unit that is out of order with its neighbours is damaged, so it does not show where its message lies.
        """
        if low >= high:
            return np.empty(0, np.int64)
        at = low - 1
        places = self._units.places(at, high + 1)
        before, place, behind = places[:-2], places[1:-1], places[2:]
        wanted = (start <= place) & (place < stop) & (before < place) & ((place < behind) | (behind == NOWHERE))
        return np.flatnonzero(wanted) + low

    def _is_light(self, offset: int) -> bool:
        """Whether this is a light queue, whose messages belong to other topics, so that no rows have its name."""
        message = self._record(int(self._units.places(offset, offset + 1)[0]))
        further = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "") if message is not None else ""
        return self._topic in further.split(",")

    def _has(self, message: StoredMessage) -> bool:
        return (message.topic, message.queue_id) == (self._topic, self._key.queue_id)

    def _record(self, phy_offset: int) -> StoredMessage | None:
        try:
            return message_at(self._plan.store / COMMIT_LOG, self._plan.log_file_size, phy_offset)
        except (NotThereError, BadSectorError):
            return None

    @property
    def _is_remote(self) -> bool:
        """Whether every read of a unit is a request to another machine."""
        return self._plan.store.uri is not None

    @property
    def _units(self) -> QueueUnits:
        if self._opened is None:
            directory = self._plan.store / CONSUME_QUEUE / self._topic / str(self._key.queue_id)
            self._opened = QueueUnits(directory)
        return self._opened


def _gone(low: int, high: int) -> str:
    return f"the messages at offsets {low} to {high - 1} are not at the positions in their queue"


class _Segment(NamedTuple):
    """Messages [low, high), from ``begin`` to ``end`` of the log."""

    low: int
    high: int
    begin: int
    end: int


def _joined(segments: list[_Segment]) -> list[_Segment]:
    """The segments sorted and without overlap."""
    found: list[_Segment] = []
    for one in sorted(segments):
        if not found or found[-1].high < one.low:
            found.append(one)
        elif found[-1].high < one.high:
            found[-1] = found[-1]._replace(high=one.high, end=one.end)
    return found
