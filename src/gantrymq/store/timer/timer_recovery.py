"""Recovers the files of the timers at a start: the positions to continue from, and a wheel that matches the timer log.

The checkpoint has three numbers that belong together. Every message before ``timer_queue_offset`` is in the timer log
before ``timer_log_flush_pos``, or durably delivered; every slot before ``last_read_time_ms`` is delivered. Units after
the log position were written shortly before a crash. A unit is kept if the commit log has the message that it points
to, and that message is then not put into the wheel a second time.

The wheel and the timer log can be rebuilt from the commit log, so damage to them loses no message:

- A wheel that is missing, truncated, or points after the end of the timer log is rebuilt from the whole timer log.
- A timer log that is missing, truncated or of mixed file sizes is removed with the wheel, and rebuilt from the timer
  topic. Messages before the old queue offset that were due at the old read time are delivered already, and skipped. A
  message that had rolled is in the timer topic twice, and is delivered twice.

Thread rule: one thread.

Source: TimerMessageStore.recover, recoverAndRevise, reviseQueueOffset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DuplicateFileError, MissingFileError, WrongFileSizeError
from gantrymq.format.timer import (
    MAGIC_DELETE,
    MAGIC_ROLL,
    SLOT_DTYPE,
    TIMER_UNIT_SIZE,
    Slot,
)
from gantrymq.model.java import string_hash
from gantrymq.model.message import PROPERTY_REAL_TOPIC, StoredMessage
from gantrymq.store.timer.timed_message import due_ms
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.store.timer.timer_log import TimerLog
from gantrymq.store.timer.wheel import TimerWheel

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class TimerState:
    """The positions from which the timers continue.

    ``read_ms``: slots before it are delivered. ``queue_offset``: messages of the timer topic before it are in the wheel
    or delivered. ``settled_offset`` and ``settled_ms``: messages before that offset that were due before that time are
    delivered already, although they are read again. ``known``: the sorted physical offsets of messages that are in the
    wheel already, although they may be read again.
    """

    read_ms: int
    queue_offset: int
    settled_offset: int
    settled_ms: int
    known: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends of the commit log and of the timer topic's queue at the open of the store, before the first put."""

    phy_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class RecoveredTimers:
    """What a start finds: ``state``, and the timer log from ``begin`` to ``end``, which the wheel leads to.

    With a ``reason`` the timer log cannot be used: a start rebuilds it from the timer topic, as ``state`` says.
    """

    state: TimerState
    begin: int = 0
    end: int = 0
    reason: str = ""


class TimedMessages(Protocol):
    """The commit log, as the recovery reads it."""

    @property
    def min_offset(self) -> int:
        """The first queue offset of the timer topic."""
        ...

    def read(self, phy_offset: int, size: int) -> StoredMessage | None:
        """The message at a physical offset; None unless a record of this size begins there."""
        ...


class TimerRecovery:
    """The recovery of the timers of a store. Its commit log is recovered, and ended at ``ends``."""

    def __init__(
        self,
        log: TimedMessages,
        ends: LogEnds,
        timer_log: TimerLog,
        wheel: TimerWheel,
        checkpoint: TimerCheckpointFile,
        precision_ms: int,
    ) -> None:
        self._log = log
        self._ends = ends
        self._timer_log = timer_log
        self._wheel = wheel
        self._checkpoint = checkpoint
        self._precision_ms = precision_ms

    def look(self) -> RecoveredTimers:
        """What :meth:`run` will make of the files; changes none of them. Raises DiskError."""
        self._checkpoint.load()
        page = self._checkpoint.page
        files = self._timer_log.files
        try:
            files.load()
        except (WrongFileSizeError, MissingFileError, DuplicateFileError) as error:
            return RecoveredTimers(self._from_the_topic(self._ends.queue_offset), reason=str(error))
        durable, begin = page.timer_log_flush_pos, self._scan_begin(page.timer_log_flush_pos)
        end, known, is_cut = self._find_end(begin, durable)
        if self._timer_log.next_position(end) < durable and not is_cut:
            text = f"the timer log ends at {end}, and {durable} bytes of it were durable"
            return RecoveredTimers(self._from_the_topic(self._ends.queue_offset), reason=text)
        queue_end = self._ends.queue_offset
        queue_offset = min(page.timer_queue_offset, page.master_timer_queue_offset, queue_end)
        settled_offset = min(page.master_timer_queue_offset, queue_end)
        read_ms = self._read_ms
        state = TimerState(read_ms, queue_offset, settled_offset, read_ms, known)
        return RecoveredTimers(state, self._timer_log.begin, end)

    def run(self, now_ms: int) -> TimerState:
        """Recover. Raises DiskFullError and DiskError; run it again then."""
        recovered = self.look()
        if recovered.reason:
            return self.remake(recovered.reason, now_ms)
        files = self._timer_log.files
        durable = self._checkpoint.page.timer_log_flush_pos
        begin = self._scan_begin(durable)
        files.drop_empty()
        files.truncate_dirty(recovered.end, wipe=True)
        files.mark_unflushed(min(begin, recovered.end))
        files.flush_all()
        self._fit_wheel(recovered)
        return recovered.state

    def is_wheel_wrong(self, recovered: RecoveredTimers) -> bool:
        """Whether :meth:`run` rebuilds the wheel from the timer log that :meth:`look` has found."""
        if not self._wheel.is_usable and recovered.end == recovered.begin:
            return False  # no message waits, so a wheel would only take space
        read_time, durable = recovered.state.read_ms // self._precision_ms, self._checkpoint.page.timer_log_flush_pos
        if self._is_unfit(read_time, recovered.end):
            return True
        return self._is_behind(self._slots(read_time, self._scan_begin(durable), durable))

    def remake(self, reason: str, now_ms: int, queue_end: int | None = None) -> TimerState:
        """Remove timer log and wheel, and begin with the first message of the timer topic. Raises DiskFullError.

        ``queue_end`` is the current end of the timer topic's queue; by default its end at the open.
        """
        _LOGGER.warning("the timer log is rebuilt from the timer topic: %s", reason)
        state = self._from_the_topic(self._ends.queue_offset if queue_end is None else queue_end)
        # The checkpoint first: a kill in between must not leave the position of the old log beside a new log.
        self._checkpoint.save(self._checkpoint.page.last_read_time_ms, 0, 0, state.settled_offset, now_ms)
        self._timer_log.remove_all()
        self._wheel.replace(np.empty(0, SLOT_DTYPE))
        return state

    @property
    def _read_ms(self) -> int:
        return self._checkpoint.page.last_read_time_ms // self._precision_ms * self._precision_ms

    def _from_the_topic(self, queue_end: int) -> TimerState:
        """The state without a timer log: every message of the timer topic, which ends at ``queue_end``, is read."""
        page, read_ms = self._checkpoint.page, self._read_ms
        settled = min(max(page.timer_queue_offset, page.master_timer_queue_offset), queue_end)
        return TimerState(read_ms, 0, settled, read_ms)

    # The end of the log

    def _scan_begin(self, durable: int) -> int:
        """The beginning of the file before the one with the durable end: RocketMQ may not have written older slots."""
        size = self._timer_log.files.file_size
        return max((durable - size) // size * size, self._timer_log.begin)

    def _find_end(self, begin: int, durable: int) -> tuple[int, NDArray[np.int64], bool]:
        """The end of the last valid unit, the messages of units after ``durable``, and whether a later unit is lost.

        A lost unit points after the end of the commit log: a power cut has taken its message.
        """
        end = begin
        known: list[int] = []
        for at, units in self._timer_log.units_from(begin):
            lost = np.flatnonzero(units["phy_offset"] >= self._ends.phy_offset)
            count = int(lost[0]) if len(lost) else len(units)
            first = min(max(-(-(durable - at) // TIMER_UNIT_SIZE), 0), count)
            for number in range(first, count):
                if not self._is_true(units[number]):
                    return at + number * TIMER_UNIT_SIZE, np.sort(np.array(known, np.int64)), False
                known.append(int(units[number]["phy_offset"]))
            end = at + count * TIMER_UNIT_SIZE
            if count < len(units):
                return end, np.sort(np.array(known, np.int64)), True
        return end, np.sort(np.array(known, np.int64)), False

    def _is_true(self, unit: np.void) -> bool:
        """Whether the commit log has the message that a unit points to, or has deleted it."""
        phy_offset = int(unit["phy_offset"])
        if phy_offset < self._log.min_offset:
            return True
        message = self._log.read(phy_offset, int(unit["message_size"]))
        due = due_ms(message)
        if message is None or due is None:
            return False
        if string_hash(message.properties[PROPERTY_REAL_TOPIC]) != int(unit["topic_hash"]):
            return False  # half a unit: a boundary of sectors divides it
        slot_ms = int(unit["enqueue_ms"]) + int(unit["delay_ms"])
        return bool(unit["magic"] & MAGIC_ROLL) or due // self._precision_ms == slot_ms // self._precision_ms

    # The wheel

    def _fit_wheel(self, recovered: RecoveredTimers) -> None:
        """Let the slots from the read time on point to all units of the log, and to nothing else.

        Only units after the beginning of the scan are read. The wheel must already point to those before the durable
        end.
        """
        read_time, end = recovered.state.read_ms // self._precision_ms, self._timer_log.end
        if self.is_wheel_wrong(recovered):
            _LOGGER.warning("the timer wheel is rebuilt from the timer log")
            slots = self._slots(read_time, self._timer_log.begin, end)
            self._wheel.replace(np.array(slots, SLOT_DTYPE))
            return
        durable = self._checkpoint.page.timer_log_flush_pos
        for slot in self._slots(read_time, max(self._scan_begin(durable), durable), end):
            there = self._wheel.raw_slot(slot.time)
            if there is None or there.time < slot.time:
                self._wheel.put(slot)
            elif there.time == slot.time and there.last < slot.last:
                self._wheel.put(there._replace(last=slot.last, num=there.num + slot.num))

    def _is_unfit(self, read_time: int, end: int) -> bool:
        """Whether the wheel is missing, outdated, or points after the end of the log."""
        if not self._wheel.is_usable or self._wheel.has_snapshots:
            return True
        for used in self._wheel.used_from(max(read_time, 1)):
            wrong = (used["last"] < 0) | (used["last"] + TIMER_UNIT_SIZE > end) | (used["first"] > used["last"])
            if wrong.any():
                return True
        return False

    def _is_behind(self, slots: list[Slot]) -> bool:
        """Whether the wheel lacks one of these slots or its newest unit: a part of it was zeroed or is outdated."""
        for slot in slots:
            there = self._wheel.raw_slot(slot.time)
            if there is None or there.time < slot.time or (there.time == slot.time and there.last < slot.last):
                return True
        return False

    def _slots(self, read_time: int, begin: int, end: int) -> list[Slot]:
        """The slots that the units from the position ``begin`` to ``end`` make."""
        slots: dict[int, Slot] = {}
        for times, positions, counts in self._groups(read_time, begin, end):
            for time, first, last, num in zip(times, positions[0], positions[1], counts, strict=True):
                before = slots.get(time)
                if before is not None:
                    first, num = before.first, before.num + num
                slots[time] = Slot(time, first, last, num)
        return list(slots.values())

    def _groups(self, read_time: int, begin: int, end: int) -> Iterator[tuple[list[int], list[list[int]], list[int]]]:
        """For each array of units: the times of their slots, the first and last position in each, and their numbers."""
        for at, units in self._timer_log.units_from(begin):
            times = (units["enqueue_ms"].astype(np.int64) + units["delay_ms"]) // self._precision_ms
            rows = np.flatnonzero(times >= max(read_time, 1))
            rows = rows[at + rows * TIMER_UNIT_SIZE < end]
            if at >= end:
                return
            if not len(rows):
                continue
            positions = at + rows * TIMER_UNIT_SIZE
            unique, inverse = np.unique(times[rows], return_inverse=True)
            first, last = np.full(len(unique), np.iinfo(np.int64).max), np.full(len(unique), -1)
            np.minimum.at(first, inverse, positions)
            np.maximum.at(last, inverse, positions)
            deletes = units["magic"][rows] & MAGIC_DELETE != 0
            counts = np.bincount(inverse, np.where(deletes, -1, 1), len(unique)).astype(np.int64)
            yield unique.tolist(), [first.tolist(), last.tolist()], counts.tolist()
