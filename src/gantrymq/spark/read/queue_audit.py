"""Compares the records of a run with the consume queues, and reports messages that only a queue names as lost.

A record with a damaged header, or one that other records were copied over, leaves no trace in the log: it looks like a
record of another queue, or like none. Its queue shows that it is missing: the offsets of the queue's records have a
gap, start late or end early. The unit at a missing offset then shows whether there is a message (a slot may have a
filler) and whether it lies in this run (:mod:`gantrymq.tools.audit.differences`, as in verify and rebuild). Units are
read in small blocks, only at missing offsets.

A record that is out of order may claim the offset of another record. The one to which the queue's unit points counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gantrymq.errors import StoreError
from gantrymq.format.names import COMMIT_LOG, CONSUME_QUEUE
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.message import PROPERTY_INNER_MULTI_DISPATCH, StoredMessage
from gantrymq.spark.log_file import BadSectorError, NotThereError, message_at
from gantrymq.spark.plan.remote_units import SINGLE_BLOCK_UNITS, RemoteUnits
from gantrymq.spark.runs import ENDLESS, AuditPlan, Bounds, LogRun
from gantrymq.spark.selection import with_namespace
from gantrymq.tools.arrow import LogBatch
from gantrymq.tools.audit.differences import NO_PLACE, AuditedSlots, ClaimKind, KnownLog, SlotKind, audit, judge_claim
from gantrymq.tools.audit.queue_runs import QueueRun, append_run, runs_of
from gantrymq.tools.queue_key import QueueKey

_LOGGER = logging.getLogger(__name__)
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
        phy_offsets, sizes = batch.row(codes.PHY_OFFSET), batch.row(codes.SIZE)
        for number, rows, run in runs_of(batch.queues, batch.row(codes.QUEUE_OFFSET), phy_offsets, sizes):
            queue = self._queue(*keys[number])
            if run.begin != queue.next_offset and (why := queue.why_not(run.begin, run.phy_offset)) is not None:
                doubles[int(rows[0])] = why
                if run.length == 1:
                    continue
                run = run._replace(begin=run.begin + 1, phy_offset=int(phy_offsets[rows[1]]))
            queue.note(run)
        return doubles

    def losses(self) -> list[str]:
        """The losses as texts. Call it at the end of the run."""
        losses = []
        for (topic, queue_id), bounds in sorted((self._run.bounds or {}).items()):
            if bounds.low < bounds.high:
                queue = self._queue(topic, queue_id)
                try:
                    losses += [f"{queue}: {_removed_offsets(low, high)}" for low, high in queue.missing(bounds)]
                except StoreError as error:
                    _LOGGER.warning("%s was not compared with its records: %s", queue, error)
        return losses

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
        self._runs: list[QueueRun] = []
        self._opened: RemoteUnits | None = None
        self.next_offset = -1
        """The offset that the next record should have."""

    def __str__(self) -> str:
        """The text for messages."""
        return str(self._key)

    def note(self, run: QueueRun) -> None:
        """Note that the task has these messages of the queue."""
        append_run(self._runs, run)
        self.next_offset = run.end

    def why_not(self, offset: int, phy_offset: int) -> str | None:
        """Why the record at ``phy_offset`` is not the message at ``offset`` that it claims to be; None if it is."""
        if self._is_remote and not self._runs:  # nothing contradicts it, and reading a unit is a request
            return None
        try:
            named = self._units.phy_offset_of(offset)
        except StoreError:
            return None  # reported at the end
        if named in (NO_PLACE, phy_offset):
            return None
        other = self._record(named)
        claimed = None if other is None else (other.topic, other.queue_id, other.queue_offset)
        if judge_claim((self._topic, self._key.queue_id, offset), claimed) is not ClaimKind.OWN:
            return None
        return f"it names offset {offset} of {self}, which is at {named}"

    def missing(self, bounds: Bounds) -> Iterator[tuple[int, int]]:
        """Ranges of offsets within ``bounds`` whose messages belong to this run and are not among its records."""
        runs = _joined(self._runs)
        gaps = [(run.end, other.begin) for run, other in pairwise(runs)]
        is_all = self._plan.is_first and self._plan.is_last and bounds.high != ENDLESS
        if is_all:
            first, last = (runs[0].begin, runs[-1].end) if runs else (bounds.high, bounds.high)
            gaps += [(bounds.low, first), (last, bounds.high)]
        parts = [self._of_gap(low, high, is_all=is_all) for low, high in gaps if low < high]
        if not is_all and not self._is_remote and self._units.capacity:
            parts += self._at_the_ends(bounds, runs)
        lost = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        if not len(lost) or (not runs and self._is_light(int(lost[0]))):
            return
        for part in np.split(lost, np.flatnonzero(np.diff(lost) != 1) + 1):
            yield int(part[0]), int(part[-1]) + 1

    def _of_gap(self, low: int, high: int, *, is_all: bool) -> Int64s:
        """The offsets of a gap in the records of this run at which there are messages.

        If the run is the whole stretch (``is_all``), that is every slot that is no filler. Otherwise a record with a
        wrong offset may have caused the gap, and the units show which messages lie in this run.
        """
        if is_all:
            return np.flatnonzero(~self._audited(low, high, self._start, self._stop).is_of(SlotKind.FILLED)) + low
        low, high = max(low, self._units.capacity.start), min(high, self._units.capacity.stop)
        return np.flatnonzero(self._audited(low, high, self._start, self._stop).is_of(SlotKind.EXTRA)) + low

    def _at_the_ends(self, bounds: Bounds, runs: list[QueueRun]) -> Iterator[Int64s]:
        """The offsets before the first record and after the last one whose units point into this run."""
        units = self._units
        low, high = max(bounds.low, units.capacity.start), min(bounds.high, units.capacity.stop)
        runs = [run for run in runs if run.begin < high]  # else its unit is unwritten or its offset wrong
        if not runs:
            at, behind = units.first_at(self._start), units.first_at(self._stop)
            yield self._pointing(max(low, at), min(high, behind), self._start, self._stop)
            return
        first, last = runs[0], runs[-1]
        if low < first.begin and self._may_point(first.begin - 1, self._start, first.phy_offset):
            yield self._pointing(max(low, units.first_at(self._start)), first.begin, self._start, first.phy_offset)
        if last.end < high and self._may_point(last.end, last.phy_end, self._stop):
            yield self._pointing(last.end, min(high, units.first_at(self._stop)), last.phy_end, self._stop)

    def _may_point(self, offset: int, start: int, stop: int) -> bool:
        """Whether a unit points into [start, stop), or is a filler, next to which one may."""
        return bool(self._audited(offset, offset + 1, start, stop).is_of(SlotKind.FILLED, SlotKind.EXTRA)[0])

    def _pointing(self, low: int, high: int, start: int, stop: int) -> Int64s:
        """The offsets of [low, high) whose units point into [start, stop).

        A unit that is out of order with its neighbours is damaged, so it does not show where its message lies.
        """
        if low >= high:
            return np.empty(0, np.int64)
        slots = self._audited(low - 1, high + 1, start, stop)
        phy_offsets = np.where(slots.units.is_message, slots.units.phy_offsets, NO_PLACE)
        before, phy_offset, behind = phy_offsets[:-2], phy_offsets[1:-1], phy_offsets[2:]
        is_in_order = (before < phy_offset) & ((phy_offset < behind) | (behind == NO_PLACE))
        return np.flatnonzero(slots.is_of(SlotKind.EXTRA)[1:-1] & is_in_order) + low

    def _audited(self, low: int, high: int, start: int, stop: int) -> AuditedSlots:
        """The slots [low, high), of which the task has no record, against the part [start, stop) of the log."""
        units = self._units.units(low, high)
        return audit(low, units, units.is_message, KnownLog(start, stop))

    def _is_light(self, offset: int) -> bool:
        """Whether this is a light queue, whose messages belong to other topics, so that no rows have its name."""
        message = self._record(self._units.phy_offset_of(offset))
        further = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "") if message is not None else ""
        return self._topic in further.split(",")

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
    def _units(self) -> RemoteUnits:
        if self._opened is None:
            directory = self._plan.store / CONSUME_QUEUE / self._topic / str(self._key.queue_id)
            self._opened = RemoteUnits(directory, SINGLE_BLOCK_UNITS)
        return self._opened


def _removed_offsets(low: int, high: int) -> str:
    return f"the messages at offsets {low} to {high - 1} are not at the positions in their queue"


def _joined(runs: list[QueueRun]) -> list[QueueRun]:
    """The runs sorted and without overlap."""
    joined: list[QueueRun] = []
    for run in sorted(runs):
        if not joined or joined[-1].end < run.begin:
            joined.append(run)
        elif joined[-1].end < run.end:
            joined[-1] = joined[-1]._replace(end=run.end, phy_end=run.phy_end)
    return joined
