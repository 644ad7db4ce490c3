"""The service that puts timer messages into the wheel and delivers them when their slot is due.

Each step reads the new messages of the timer topic, then delivers the slots before the write time, which is the current
time rounded down to timerPrecisionMs. A message whose slot is before the write time when it is read is delivered at
once. So a slot before the write time gets no further units. A message is never early, because its slot is at least one
precision before its due time.

A message that is due in more than timerRollWindowSlot slots rolls: it waits in a nearer slot and is put into the timer
topic again at that time, so its record never expires before it is due.

``config/timercheck`` is written after timer log and wheel, and when the commit log is durable up to the last delivery.
A message may be delivered again after a crash, but is never lost. (RocketMQ writes it at any time, so a power cut may
take deliveries that it counts.) A delivery that the store rejects for a while is retried until it succeeds; RocketMQ
drops a message after three attempts.

Memory does not grow with the waiting messages: it has only the slot that is being delivered, 8 bytes per message.

Thread rule: one runner steps. Any thread may read ``progress``, ``congestion`` and ``is_rejected``.

Source: TimerMessageStore.
"""

from __future__ import annotations

import logging
import random
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError
from gantrymq.format.names import is_topic_storable
from gantrymq.format.queue_entry import QueueEntry
from gantrymq.format.timer import (
    BLANK_SLOTS,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_POSITION,
    SLOTS,
    TIMER_UNIT_SIZE,
    Slot,
    TimerCheckpoint,
    TimerUnit,
)
from gantrymq.model.java import INT_MAX, string_hash
from gantrymq.model.message import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    TIMER_TOPIC,
    StoredMessage,
)
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.delivery import Delivery
from gantrymq.store.opening import StoreParts
from gantrymq.store.timer.former_timers import FormerTimers
from gantrymq.store.timer.redelivery import Redelivery, read_due
from gantrymq.store.timer.timed_message import NEVER_ENQUEUED_MS, due_ms, key_of, to_deliver
from gantrymq.store.timer.timer_files import TimerCheckpointFile, TimerMetrics
from gantrymq.store.timer.timer_log import BrokenChainError, TimerLog
from gantrymq.store.timer.timer_recovery import LogEnds, TimerRecovery, TimerState
from gantrymq.store.timer.wheel import TimerWheel

_MESSAGES_A_STEP = 500
_TOGETHER, _FEW = 100, 4  # an append of 100 holds the put lock for about a millisecond
_MAX_FAILED_READS = 50
_CLEAN_INTERVAL_MS = 30_000
_METRICS_INTERVAL_MS = 10_000
_REFUSED_FOR_GOOD = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
_LOGGER = logging.getLogger(__name__)


class TimerProgress(NamedTuple):
    """The progress of the timers: the read time in milliseconds, and the number of messages not in the wheel yet."""

    read_ms: int
    behind_messages: int


class _Snapshot(NamedTuple):
    """The checkpoint to write once the commit log is durable up to ``log_end``."""

    log_end: int
    read_ms: int
    timer_log_end: int
    queue_offset: int
    settled_offset: int


class TimerMessageService:
    """The timers of a store.

    A message whose topic was deleted since is not delivered, nor a record of POP for such a topic. ``has_caught_up``
    says whether all that was due was delivered once since the start.
    """

    name = "TimerMessageStore"

    def __init__(self, parts: StoreParts, config: MessageStoreConfig, delivery: Delivery) -> None:
        fs, paths, log, queues = parts.fs, parts.paths, parts.log, parts.queues
        self._log, self._queues, self._deleted = log, queues, parts.deleted
        self.config = config
        self._put, self._append, self._meter = delivery.put, delivery.append, delivery.meter
        self._is_durable, self._ask_for_flush = delivery.is_durable, delivery.ask_for_flush
        self._former = FormerTimers(delivery.former, parts.log, queues) if delivery.former is not None else None
        self._precision_ms = config.timer_precision_ms
        self._slots = SLOTS
        self._wheel = TimerWheel(fs, paths.timer_wheel, self._slots)
        self._timer_log = TimerLog(fs, paths.timer_log, config.mapped_file_size_timer_log)
        self._checkpoint = TimerCheckpointFile(fs, paths.timer_checkpoint)
        self.metrics = TimerMetrics(fs, paths.timer_metrics)
        queue = queues.get(TIMER_TOPIC, 0)
        self._ends = LogEnds(log.wrote_offset, queue.max_offset if queue is not None else 0)
        self._recovery = TimerRecovery(
            log, self._ends, self._timer_log, self._wheel, self._checkpoint, self._precision_ms
        )
        self._has_files = any(map(fs.exists, (paths.timer_wheel, paths.timer_log, paths.timer_checkpoint)))
        self._state: TimerState | None = None
        self._write_ms = 0
        # The slot that is being delivered: its positions, oldest last; the recalled messages; its time.
        self._due: array[int] = array("q")
        self._recalled: set[str] = set()
        # After the clock was set back: units before this position, in slots before this time, are delivered.
        self._floors: list[tuple[int, int]] = []
        self._unwritten: dict[int, Slot] = {}  # slots that point to units of the log, not written yet
        self._dirty = self.has_caught_up = False
        self._waiting: _Snapshot | None = None
        self._saved_ms = self._cleaned_ms = self._counted_ms = 0
        self._failed_reads = 0

    @property
    def interval_ms(self) -> int:
        """A tenth of the precision, as RocketMQ waits."""
        return max(self._precision_ms // 10, 1)

    def step(self, now_ms: int) -> bool:
        """Put some new messages into the wheel and deliver some that are due. Returns whether there are more."""
        if self._state is None and not self._begin(now_ms):
            self.has_caught_up = True
            return False
        assert self._state is not None
        state = self._state
        self._write_slots()
        self._move_write_time(state, now_ms)
        try:
            more = not self.config.timer_stop_enqueue and self._enqueue(state, now_ms)
            if not self.config.timer_stop_dequeue and not self._is_reading_all(state):
                more |= self._dequeue(state, now_ms)
        except BrokenChainError as error:
            self._state = self._recovery.remake(str(error), now_ms, state.queue_offset)
            self._due, self._unwritten, self._floors = array("q"), {}, []
            self._waiting, self._dirty = None, True
            self.metrics.clear()
            return True
        if not 0 <= now_ms - self._saved_ms < self.config.timer_flush_interval_ms:
            self._save(now_ms)
        if not 0 <= now_ms - self._cleaned_ms < _CLEAN_INTERVAL_MS:
            self._cleaned_ms = now_ms
            self._timer_log.delete_before(self._log.min_offset)
        self.has_caught_up |= not more and not self._is_reading_all(state)
        return more

    def drain(self) -> None:
        """Write the checkpoint, after a flush of the commit log, and close the files."""
        if self._state is not None:
            self._dirty = True  # the read time moved on
            for _ in range(2):  # the checkpoint that had to wait, and the one after it
                self._save(self._write_ms)
            self.metrics.save()
        self.close()

    def close(self) -> None:
        """Close the files without writing. A second call has no effect."""
        self._wheel.close()
        self._timer_log.files.close()

    # For other threads

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The last written checkpoint."""
        return self._checkpoint.page

    @property
    def progress(self) -> TimerProgress | None:
        """The progress of the timers; None if there was no timer message yet."""
        state, queue = self._state, self._queues.get(TIMER_TOPIC, 0)
        if state is None or queue is None:
            return None
        behind = max(queue.max_offset - state.queue_offset, 0) + len(self._unwritten)
        return TimerProgress(state.read_ms, behind)

    @property
    def congestion(self) -> int:
        """The number of messages in the wheel (getAllCongestNum)."""
        state = self._state
        return max(self._wheel.count_from(state.read_ms // self._precision_ms), 0) if state is not None else 0

    def due_within(self, now_ms: int, bounds_s: Sequence[int]) -> list[int]:
        """The number of messages in the wheel that are due within each bound, without those of the smaller ones.

        The bounds are in seconds from now, ascending. Thread rule: any thread.
        """
        first = now_ms // self._precision_ms
        edges = np.array([0, *bounds_s]) * 1000 // self._precision_ms + first
        counts = np.zeros(len(bounds_s), np.int64)
        for slots in self._wheel.used_from(first) if self._state is not None else ():
            numbers = np.searchsorted(edges, slots["time"], side="right") - 1
            is_near = numbers < len(bounds_s)
            np.add.at(counts, numbers[is_near], slots["num"][is_near])
        return [max(count, 0) for count in counts.tolist()]

    def is_rejected(self, slot_ms: int) -> bool:
        """Whether flow control rejects one more message for a slot: above the limit at random, above twice it always.

        (isReject)
        """
        limit = self.config.timer_congest_num_each_slot
        if limit == INT_MAX:
            return False
        slot = self._wheel.slot(slot_ms // self._precision_ms)
        num = slot.num if slot is not None else 0
        if num <= limit:
            return False
        return num >= 2 * limit or random.randrange(1000) > 1000 * (num - limit) / (limit + 0.1)

    # The start

    def _begin(self, now_ms: int) -> bool:
        """Recover, once there is a timer message or file. A store without them creates and reads none."""
        if not self._has_files and self._queues.get(TIMER_TOPIC, 0) is None:
            return False
        self.metrics.load()
        self._state = state = self._recovery.run(now_ms)
        self._correct_metrics(state)
        self._saved_ms = now_ms
        self._write_ms = self._formatted(now_ms)
        if self._checkpoint.is_missing and self._timer_log.end == 0:
            state.read_ms = state.settled_ms = self._write_ms
        return True

    def _correct_metrics(self, state: TimerState) -> None:
        """Count what a kill may have left wrong: all after a rebuild, which counts again, and deleted topics."""
        if state.queue_offset == 0 and self._timer_log.end == 0:
            self.metrics.clear()
        for topic in self.metrics.counts().keys() & self._deleted.delayed_ends.keys():
            count = self._count_in_log(topic, self._deleted.delayed_ends[topic], state.read_ms)
            self.metrics.forget(topic)
            if count:
                self.metrics.add(topic, count, state.read_ms)

    def _count_in_log(self, topic: str, from_phy_offset: int, read_ms: int) -> int:
        """The number of waiting messages of a topic that were put at or after a physical offset."""
        count, topic_hash = 0, string_hash(topic)
        for _, units in self._timer_log.units_from(self._timer_log.begin):
            slots_ms = units["enqueue_ms"].astype(np.int64) + units["delay_ms"]
            is_counted = (slots_ms >= read_ms) & (units["topic_hash"] == topic_hash)
            is_counted &= units["phy_offset"] >= from_phy_offset
            deletes = units["magic"][is_counted] & MAGIC_DELETE != 0
            count += int(np.where(deletes, -1, 1).sum())
        return count

    def _count(self, topic: str, number: int, phy_offset: int, now_ms: int) -> None:
        """Count a message that enters or leaves the wheel. One of a deleted topic was counted until the deletion.

        A record of POP counts for its revive topic, which is not deleted.
        """
        if not self._deleted.is_deleted(topic, phy_offset, b""):
            self.metrics.add(topic, number, now_ms)

    def _formatted(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms

    def _move_write_time(self, state: TimerState, now_ms: int) -> None:
        """Set the write time to now, also backwards: otherwise messages after a corrected clock would be early."""
        self._write_ms = self._formatted(now_ms)
        if state.read_ms > self._write_ms and not self._due:
            self._floors.append((state.read_ms, self._timer_log.end))
            state.read_ms = self._write_ms
            self._dirty = True

    # From the timer topic to the wheel

    def _enqueue(self, state: TimerState, now_ms: int) -> bool:
        """Read some messages of the timer topic. Returns whether there are more."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None or self._write_ms - state.read_ms > self._slots * self._precision_ms:
            return False  # after a week without a broker: old slots first, because new ones may need their places
        offset = max(state.queue_offset, queue.min_offset)
        units = queue.entries(offset, min(max(queue.max_offset - offset, 0), _MESSAGES_A_STEP))
        fresh: list[tuple[TimerUnit, str]] = []
        more, is_reading_all = False, self._is_reading_all(state)
        try:
            for unit in units.tolist():
                entry = QueueEntry(*unit)
                message, due = self._waiting_message(entry, offset, state)
                if message is not None:
                    self._note_enqueued(message)
                if message is not None and due >= (state.read_ms if is_reading_all else self._write_ms):
                    fresh.append((self._unit_of(entry, message, due), message.properties[PROPERTY_REAL_TOPIC]))
                elif message is not None:
                    self._write(fresh, offset, state)  # first: if it fails, nothing is delivered twice
                    if not self._deliver(message, NEVER_ENQUEUED_MS, now_ms, rolls=False):
                        return False
                offset += 1
            more = len(units) > 0 and offset < queue.max_offset
        finally:
            self._write(fresh, offset, state)
        return more

    def _note_enqueued(self, message: StoredMessage) -> None:
        """Measure a message with the delay that its sender asked for."""
        if self._deleted.is_deleted(message.properties[PROPERTY_REAL_TOPIC], message.phy_offset, b""):
            return
        due = due_ms(message) or 0
        self._meter.timer_enqueued(message.properties[PROPERTY_REAL_TOPIC], (due - message.born_timestamp_ms) // 1000)

    def _waiting_message(self, entry: QueueEntry, offset: int, state: TimerState) -> tuple[StoredMessage | None, int]:
        """The message of a unit of the timer topic with its slot time; None if it need not be delivered (again)."""
        if entry.is_filler or self._is_known(state, entry.phy_offset):
            return None, 0
        message = self._read(entry.phy_offset, entry.size_bytes)
        due = due_ms(message)
        if message is None or due is None or (offset < state.settled_offset and due < state.settled_ms):
            return None, 0
        if self._former is not None and self._former.has_delivered(message, due, state.settled_ms, self._window_ms):
            return None, 0
        return message, due

    def _is_reading_all(self, state: TimerState) -> bool:
        """Whether the timer topic is still read for the wheel of a promoted slave, which had none.

        Until then nothing is delivered: a message that was recalled is there before the message that recalls it. But a
        wheel has room for a week: older slots come first.
        """
        is_begun = self._former is not None and state.queue_offset < self._ends.queue_offset
        return is_begun and self._write_ms - state.read_ms <= self._slots * self._precision_ms

    def _read(self, phy_offset: int, size: int) -> StoredMessage | None:
        """Read a message; None if it was deleted. An unreadable one is dropped after 50 attempts, with an error."""
        try:
            message = self._log.read(phy_offset, size)
        except DiskError:
            self._failed_reads += 1
            if self._failed_reads < _MAX_FAILED_READS:
                raise
            _LOGGER.exception("the timer message at offset %d cannot be read, and is skipped", phy_offset)
            message = None
        self._failed_reads = 0
        return message

    @staticmethod
    def _is_known(state: TimerState, phy_offset: int) -> bool:
        known = state.known
        if not len(known):
            return False
        if phy_offset > known[-1]:
            state.known = np.empty(0, np.int64)
            return False
        row = int(np.searchsorted(known, phy_offset))
        return bool(known[row] == phy_offset)

    def _unit_of(self, entry: QueueEntry, message: StoredMessage, due: int) -> TimerUnit:
        """The unit of a message, without the position of the previous unit of its slot (doEnqueue)."""
        write_ms, window_ms = self._write_ms, self._window_ms
        magic, slot_ms, ahead_ms = MAGIC_DEFAULT, due, due - write_ms
        if ahead_ms >= window_ms:
            magic |= MAGIC_ROLL
            # Half of the window leaves enough time for the next roll.
            is_near = ahead_ms - window_ms < self._window_slots // 3 * self._precision_ms
            slot_ms = write_ms + (self._window_slots // 2 * self._precision_ms if is_near else window_ms)
        if PROPERTY_TIMER_DEL_UNIQKEY in message.properties:
            magic |= MAGIC_DELETE
        topic_hash = string_hash(message.properties[PROPERTY_REAL_TOPIC])
        return TimerUnit(
            NO_POSITION, magic, write_ms, slot_ms - write_ms, entry.phy_offset, entry.size_bytes, topic_hash
        )

    @property
    def _window_slots(self) -> int:
        wanted = self.config.timer_roll_window_slots
        max_slots = self._slots - BLANK_SLOTS
        return wanted if 2 <= wanted <= max_slots else max_slots

    @property
    def _window_ms(self) -> int:
        return self._window_slots * self._precision_ms

    def _write(self, fresh: list[tuple[TimerUnit, str]], offset: int, state: TimerState) -> None:
        """Append units to the timer log and let their slots point to them: the timer topic is read up to ``offset``.

        Raises DiskFullError. Slots that could not be written are written first by the next step.
        """
        self._write_slots()
        slots: dict[int, Slot] = {}
        units, at = [], self._timer_log.end
        for unit, _ in fresh:
            time, at = unit.slot_ms // self._precision_ms, self._timer_log.next_position(at)
            slot = slots.get(time) or self._wheel.slot(time) or Slot(time, at, NO_POSITION)
            units.append(unit._replace(prev=slot.last))
            slots[time] = slot._replace(last=at, num=slot.num + (-1 if unit.deletes else 1))
            at += TIMER_UNIT_SIZE
        self._timer_log.append(units)
        with self._deleted.guard:
            for unit, topic in fresh:
                self._count(topic, -1 if unit.deletes else 1, unit.phy_offset, unit.enqueue_ms)
        fresh.clear()
        self._unwritten = slots
        if offset != state.queue_offset:
            state.queue_offset, self._dirty = offset, True
        self._write_slots()

    def _write_slots(self) -> None:
        while self._unwritten:
            time, slot = next(iter(self._unwritten.items()))
            self._wheel.put(slot)
            del self._unwritten[time]

    # From the wheel to the real topics

    def _dequeue(self, state: TimerState, now_ms: int) -> bool:
        """Deliver some messages of the slots before the write time. Returns whether there are more."""
        budget = _MESSAGES_A_STEP
        while budget > 0:
            if not self._due and not self._next_slot(state):
                return False
            while self._due and budget > 0:
                done = self._deliver_together(now_ms)
                if not done and not self._deliver_at(self._due[-1], now_ms):
                    return False
                if not done:
                    self._due.pop()
                self._dirty = True
                budget -= max(done, 1)
            if not self._due:
                self._end_slot(state)
        return True

    def _deliver_together(self, now_ms: int) -> int:
        """Deliver the oldest messages of the slot with one append, up to the first special case (``redelivery``).

        Returns their number. Messages that the store rejected stay in the slot.
        """
        if self._recalled or self.config.enabled_append_prop_crc:
            return 0
        together: list[Redelivery] = []
        with self._deleted.guard:
            for position in reversed(self._due[-_TOGETHER:]):
                unit = self._timer_log.unit(position)
                message = read_due(self._log, unit, now_ms)
                if message is None or message.due_ms >= self._write_ms:
                    break
                if self._deleted.is_deleted(message.topic, unit.phy_offset, message.body):
                    break
                together.append(message)
            if len(together) < _FEW:
                return 0
            results = self._append(together)
            for topic, count in Counter(result.topic for result in results if result.is_stored).items():
                self.metrics.add(topic, -count, now_ms)
                self._meter.timer_dequeued(topic, count)
        first = len(self._due) - len(together)
        positions = self._due[first:][::-1]
        refused = [at for at, result in zip(positions, results, strict=True) if not result.is_stored]
        self._due = self._due[:first] + array("q", refused[::-1])
        return len(together) - len(refused)

    def _next_slot(self, state: TimerState) -> bool:
        """Read the units of the next slot that is due; False if there is none. Raises BrokenChainError."""
        precision_ms = self._precision_ms
        end = self._write_ms // precision_ms
        time = self._wheel.next_used(state.read_ms // precision_ms, end)
        state.read_ms = max(state.read_ms, time * precision_ms)
        self._floors = [floor for floor in self._floors if floor[0] > state.read_ms]
        slot = self._wheel.slot(time) if time < end else None
        if slot is None:
            return False
        floor = max((position for _, position in self._floors), default=self._timer_log.begin)
        self._due, deletions = self._timer_log.chain(slot.last, floor)
        self._recalled = set()
        for unit in deletions:
            message = self._read(unit.phy_offset, unit.message_size)
            if message is not None and due_ms(message) is not None:
                self._recalled.add(message.properties.get(PROPERTY_TIMER_DEL_UNIQKEY, ""))
                with self._deleted.guard:
                    self._count(message.properties[PROPERTY_REAL_TOPIC], 1, message.phy_offset, self._write_ms)
        if not self._due:
            self._end_slot(state)
        return True

    def _end_slot(self, state: TimerState) -> None:
        state.read_ms += self._precision_ms
        self._dirty = True

    def _deliver_at(self, position: int, now_ms: int) -> bool:
        """Deliver the message of a unit. False if it must be retried."""
        unit = self._timer_log.unit(position)
        message = self._read(unit.phy_offset, unit.message_size)
        due = due_ms(message)
        if message is None or due is None:
            return True
        if (
            self._recalled
            and key_of(message.properties, with_topic=self.config.append_topic_for_timer_delete_key) in self._recalled
        ):
            with self._deleted.guard:
                self._count(message.properties[PROPERTY_REAL_TOPIC], -1, message.phy_offset, now_ms)
            return True
        return self._deliver(message, unit.enqueue_ms, now_ms, rolls=unit.rolls or due >= self._write_ms)

    def _deliver(self, message: StoredMessage, enqueue_ms: int, now_ms: int, *, rolls: bool) -> bool:
        """Store a message in its real topic. False if it must be retried.

        A message without a topic, one that is rejected for good, and one that only recalls another are skipped.
        """
        topic = message.properties[PROPERTY_REAL_TOPIC]
        recalls = PROPERTY_TIMER_DEL_UNIQKEY in message.properties
        due = to_deliver(message, enqueue_ms, now_ms, rolls=rolls) if is_topic_storable(topic) else None
        with self._deleted.guard:
            is_deleted = self._deleted.is_deleted(topic, message.phy_offset, message.body)
            if due is not None and (rolls or not recalls) and not is_deleted:
                result = self._put(due)
                if result.status in _REFUSED_FOR_GOOD:
                    text = "the timer message at offset %d is not delivered to %s, and stays where it is: %s"
                    _LOGGER.warning(text, message.phy_offset, topic, result.status.value)
                elif not result.is_stored:
                    return False
                self._meter.timer_dequeued(topic)
            if enqueue_ms != NEVER_ENQUEUED_MS:
                self._count(topic, 1 if recalls else -1, message.phy_offset, now_ms)
        return True

    # The checkpoint

    def _save(self, now_ms: int) -> None:
        """Prepare a checkpoint if none waits, and write it once the commit log is durable up to it."""
        state = self._state
        if state is not None and self._waiting is None and self._dirty:
            is_remaking = state.queue_offset < state.settled_offset
            read_ms = min(state.settled_ms, state.read_ms) if is_remaking else state.read_ms
            settled = max(state.settled_offset, state.queue_offset)
            self._waiting = _Snapshot(self._log.wrote_offset, read_ms, self._timer_log.end, state.queue_offset, settled)
            self._dirty = False
        waiting = self._waiting
        if waiting is None:
            return
        if not self._is_durable(waiting.log_end):
            self._ask_for_flush()  # the next flush may be 10 s away, and a kill before it repeats the deliveries
            return
        self._timer_log.files.flush_all()
        self._wheel.sync()
        self._checkpoint.save(
            waiting.read_ms, waiting.timer_log_end, waiting.queue_offset, waiting.settled_offset, now_ms
        )
        if not 0 <= now_ms - self._counted_ms < _METRICS_INTERVAL_MS:
            self.metrics.save()
            self._counted_ms = now_ms
        self._saved_ms, self._waiting = now_ms, None
