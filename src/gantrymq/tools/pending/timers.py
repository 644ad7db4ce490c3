"""Timer messages that are not delivered: those in the timer log, and those of the timer topic after it.

They are the messages that a broker would deliver after a start. The state is that of
:class:`gantrymq.store.timer.timer_recovery.TimerRecovery`, which also describes the effect of damaged timer files. A
rolling message counts once, with its own due time. Recalled messages and their recalls are left out.

Checkpoints and acknowledgements of POP are timer messages for the revive topic; :mod:`gantrymq.tools.pending.pops`
takes them.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gantrymq.format.op_message import number
from gantrymq.format.timer import TIMER_UNIT_SIZE
from gantrymq.model.message import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    REVIVE_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from gantrymq.store.queue.consume_queues import is_topic_storable
from gantrymq.store.timer.timed_message import due_ms_in, key_of
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.store.timer.timer_log import TimerLog
from gantrymq.store.timer.timer_recovery import LogEnds, TimerRecovery
from gantrymq.store.timer.wheel import TimerWheel
from gantrymq.tools.pending.waiting import Kind, PendingMessage, WaitingTopics
from gantrymq.tools.read.record_rows import MAX_AT_ONCE, Record

_WHEEL, _TOPIC = "Reading timer messages", "Reading new timer messages"
_RECALLS = f"{PROPERTY_TIMER_DEL_UNIQKEY}\x01".encode()


class TimedRecord(NamedTuple):
    """A waiting record of the timer topic. ``is_in_wheel`` is True if the timer log leads to it."""

    phy_offset: int
    record: Record
    is_in_wheel: bool


class WaitingTimers:
    """The timer topic of a store. ``problem`` names a timer log that cannot be used; empty if it can.

    Opens the files of the timers; :meth:`close` closes them.
    """

    def __init__(self, topics: WaitingTopics) -> None:
        reader = topics.reader
        fs, paths, config = reader.fs, reader.paths, reader.config
        self._topics, self._config = topics, config
        self._queue = reader.consume_queues.get(TIMER_TOPIC, 0)
        self._timer_log = TimerLog(fs, paths.timer_log, config.mapped_file_size_timer_log)
        ends = LogEnds(reader.log.max_offset, self._queue.max_offset if self._queue is not None else 0)
        checkpoint = TimerCheckpointFile(fs, paths.timer_checkpoint)
        precision_ms = config.timer_precision_ms
        wheel = TimerWheel(fs, paths.timer_wheel)  # recovery puts all units of the timer log into the wheel
        recovery = TimerRecovery(fs, paths, reader.log, ends, self._timer_log, wheel, checkpoint, precision_ms)
        self._found = recovery.look()
        reason, more = self._found.reason, "the numbers are those of the timer topic, from which a start rebuilds it"
        self.problem = f"{paths.timer_log}: {reason}; {more}" if reason else ""
        self._recalled: set[int] = set()

    def close(self) -> None:
        """Close the files."""
        self._timer_log.files.close()

    def add(self, timed: TimedRecord) -> None:
        """Note a recall. Call it with all records before :meth:`message`.

        A recall that is read after its slot is due has no effect, nor has one in another slot than its message.
        """
        if _RECALLS not in timed.record.raw_properties:
            return
        properties = timed.record.properties
        due_ms = due_ms_in(timed.record.topic, properties)
        if due_ms is not None and (timed.is_in_wheel or self._slot(due_ms) >= self._slot(self._topics.now_ms)):
            self._recalled.add(hash((self._slot(due_ms), properties.get(PROPERTY_TIMER_DEL_UNIQKEY, ""))))

    def message(self, timed: TimedRecord) -> PendingMessage | None:
        """The message of a record; None if it was recalled, is a recall, or is a record of POP."""
        properties = timed.record.properties
        topic, due_ms = properties.get(PROPERTY_REAL_TOPIC, ""), due_ms_in(timed.record.topic, properties)
        if due_ms is None or topic.startswith(REVIVE_TOPIC_PREFIX) or PROPERTY_TIMER_DEL_UNIQKEY in properties:
            return None
        key = key_of(properties, with_topic=self._config.append_topic_for_timer_delete_key)
        if key is not None and hash((self._slot(due_ms), key)) in self._recalled:
            return None
        queue_id = number(properties.get(PROPERTY_REAL_QUEUE_ID))
        is_deleted = self._topics.reader.is_deleted(topic, timed.phy_offset)
        if queue_id < 0 or is_deleted or not is_topic_storable(topic):
            self._topics.pass_over()
            return None
        due_ms += self._config.timer_precision_ms  # a slot is delivered when the next slot begins
        return PendingMessage(Kind.TIMER, topic, queue_id, due_ms, None, TIMER_TOPIC, timed.phy_offset)

    def records(self) -> Iterator[TimedRecord]:
        """Yield all records that wait: recalls, and those of POP too."""
        yield from self._in_the_wheel()
        state = self._found.state
        if self._queue is None:
            return
        for waiting in self._topics.of_queue(self._queue, state.queue_offset, _TOPIC):
            place = int(np.searchsorted(state.known, waiting.phy_offset))
            if place < len(state.known) and state.known[place] == waiting.phy_offset:
                continue
            if waiting.queue_offset < state.settled_offset:
                due_ms = due_ms_in(TIMER_TOPIC, waiting.record.properties)
                if due_ms is None or due_ms < state.settled_ms:
                    continue
            yield TimedRecord(waiting.phy_offset, waiting.record, is_in_wheel=False)

    def _in_the_wheel(self) -> Iterator[TimedRecord]:
        begin, end, read_ms = self._found.begin, self._found.end, self._found.state.read_ms
        for at, units in self._timer_log.units_from(begin):
            if at >= end:
                return
            units = units[: (end - at) // TIMER_UNIT_SIZE]
            kept = units[units["enqueue_ms"].astype(np.int64) + units["delay_ms"] >= read_ms]
            for first in range(0, len(kept), MAX_AT_ONCE):
                some = kept[first : first + MAX_AT_ONCE]
                phy_offsets = some["phy_offset"].astype("=i8")
                for place, record in self._topics.at(phy_offsets, some["message_size"].astype("=i8")):
                    yield TimedRecord(int(phy_offsets[place]), record, is_in_wheel=True)
            self._topics.report_progress(_WHEEL, at + len(units) * TIMER_UNIT_SIZE - begin, end - begin)

    def _slot(self, time_ms: int) -> int:
        return time_ms // self._config.timer_precision_ms
