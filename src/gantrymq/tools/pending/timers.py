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

from gantrymq.format.timer import TIMER_UNIT_SIZE
from gantrymq.model.message import PROPERTY_TIMER_DEL_UNIQKEY, TIMER_TOPIC
from gantrymq.store.timer.timed_message import due_ms_in
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.store.timer.timer_log import TimerLog
from gantrymq.store.timer.timer_recovery import LogEnds, TimerRecovery
from gantrymq.store.timer.wheel import TimerWheel
from gantrymq.tools.pending.rules import TimerRules, destination
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage, WaitingTopics
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
        reader = topics.store_reader
        fs, paths, config = reader.fs, reader.paths, reader.config
        self._topics = topics
        self._queue = reader.consume_queues.get(TIMER_TOPIC, 0)
        self._timer_log = TimerLog(fs, paths.timer_log, config.mapped_file_size_timer_log)
        ends = LogEnds(reader.log.max_offset, self._queue.max_offset if self._queue is not None else 0)
        checkpoint = TimerCheckpointFile(fs, paths.timer_checkpoint)
        precision_ms = config.timer_precision_ms
        wheel = TimerWheel(fs, paths.timer_wheel)  # recovery puts all units of the timer log into the wheel
        recovery = TimerRecovery(reader.log, ends, self._timer_log, wheel, checkpoint, precision_ms)
        self._recovered = recovery.look()
        reason = self._recovered.reason
        more = "the numbers are those of the timer topic, from which a start rebuilds it"
        self.problem = f"{paths.timer_log}: {reason}; {more}" if reason else ""
        self._rules = TimerRules(precision_ms, with_topic=config.append_topic_for_timer_delete_key)

    def close(self) -> None:
        """Close the files."""
        self._timer_log.files.close()

    def add(self, timed: TimedRecord) -> None:
        """Note a recall. Call it with all records before :meth:`message`."""
        if _RECALLS in timed.record.raw_properties:
            self._rules.add(timed.record.properties, self._topics.now_ms, is_in_wheel=timed.is_in_wheel)

    def message(self, timed: TimedRecord) -> PendingMessage | None:
        """The message of a record; None if it was recalled, is a recall, or is a record of POP."""
        due_ms = self._rules.delivery_ms(timed.record.properties)
        if due_ms is None:
            return None
        to = destination(timed.record.properties)
        if to is None or self._topics.store_reader.is_deleted(to.topic, timed.phy_offset):
            self._topics.pass_over()
            return None
        return PendingMessage(PendingKind.TIMER, *to, due_ms, None, TIMER_TOPIC, timed.phy_offset)

    def records(self) -> Iterator[TimedRecord]:
        """Yield all records that wait: recalls, and those of POP too."""
        yield from self._in_the_wheel()
        state = self._recovered.state
        if self._queue is None:
            return
        for waiting in self._topics.of_queue(self._queue, state.queue_offset, _TOPIC):
            row = int(np.searchsorted(state.known, waiting.phy_offset))
            if row < len(state.known) and state.known[row] == waiting.phy_offset:
                continue
            if waiting.queue_offset < state.settled_offset:
                due_ms = due_ms_in(TIMER_TOPIC, waiting.record.properties)
                if due_ms is None or due_ms < state.settled_ms:
                    continue
            yield TimedRecord(waiting.phy_offset, waiting.record, is_in_wheel=False)

    def _in_the_wheel(self) -> Iterator[TimedRecord]:
        begin, end, read_ms = self._recovered.begin, self._recovered.end, self._recovered.state.read_ms
        for at, units in self._timer_log.units_from(begin):
            if at >= end:
                return
            units = units[: (end - at) // TIMER_UNIT_SIZE]
            units_due = units[units["enqueue_ms"].astype(np.int64) + units["delay_ms"] >= read_ms]
            for first in range(0, len(units_due), MAX_AT_ONCE):
                some = units_due[first : first + MAX_AT_ONCE]
                phy_offsets = some["phy_offset"].astype("=i8")
                for at_row, record in self._topics.at(phy_offsets, some["message_size"].astype("=i8")):
                    yield TimedRecord(int(phy_offsets[at_row]), record, is_in_wheel=True)
            self._topics.report_progress(_WHEEL, at + len(units) * TIMER_UNIT_SIZE - begin, end - begin)
