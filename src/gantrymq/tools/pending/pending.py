"""All pending messages of a store, and their totals.

A message is pending if a broker would deliver it after a kill at this moment. The tables of ``config/`` say what was
delivered. A broker that has the store open writes them every few seconds, so its last deliveries still count as
pending.

Memory grows with the number of topics and groups, with one byte for each half message after the committed offset, and
with a set entry for each recall and acknowledgement that waits. It does not grow with the other messages that wait.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest

from gantrymq.errors import StoreError
from gantrymq.format.names import CONSUMER_OFFSET, DELAY_OFFSET
from gantrymq.model.message import (
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.reader import StoreReader
from gantrymq.tools.pending.delays import delayed_messages
from gantrymq.tools.pending.half_messages import half_messages
from gantrymq.tools.pending.pops import PopRecord, WaitingPops
from gantrymq.tools.pending.timers import WaitingTimers
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage, Report, WaitingTopics

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HORIZONS_MS = (0, MINUTE_MS, HOUR_MS, DAY_MS)  # due now, within a minute, an hour, a day; all others are later


_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)


def holds_pending(queue: ConsumeQueue) -> bool:
    """Whether pending messages wait in the topic of this queue."""
    return queue.topic in _WAITING_TOPICS or queue.topic.startswith(REVIVE_TOPIC_PREFIX)


class PendingMessages:
    """The messages of ``kinds`` that wait in the store of ``reader`` at ``now_ms``; only those to ``topic`` if it is
    given, and only those that are due before ``due_before_ms``.

    ``problems`` are texts about damaged files; ``unreadable`` and ``passed_over`` are those of :class:`WaitingTopics`.
    All three are complete after all messages were yielded.
    """

    def __init__(
        self,
        reader: StoreReader,
        now_ms: int,
        kinds: Collection[PendingKind] = tuple(PendingKind),
        topic: str | None = None,
        due_before_ms: int | None = None,
        report: Report | None = None,
    ) -> None:
        self.problems: dict[str, None] = {}
        self._topics = WaitingTopics(reader, now_ms, self._note, report)
        self._kinds, self._topic, self._due_before_ms = kinds, topic, due_before_ms

    @property
    def unreadable(self) -> int:
        """How many units point to no readable record."""
        return self._topics.unreadable

    @property
    def passed_over(self) -> int:
        """How many records no broker will deliver."""
        return self._topics.passed_over

    def __iter__(self) -> Iterator[PendingMessage]:
        """Yield the messages kind by kind, timers and pops mixed. They are not sorted by time."""
        self._check_tables()
        for message in self._all():
            is_wanted = message.kind in self._kinds and self._topic in (None, message.topic)
            if is_wanted and (self._due_before_ms is None or message.due_ms < self._due_before_ms):
                yield message

    def _all(self) -> Iterator[PendingMessage]:
        if PendingKind.DELAY in self._kinds:
            yield from delayed_messages(self._topics)
        if {PendingKind.TIMER, PendingKind.POP} & {*self._kinds}:
            yield from self._timed()
        if PendingKind.HALF in self._kinds:
            yield from half_messages(self._topics)

    def _timed(self) -> Iterator[PendingMessage]:
        """Timer messages and popped ones. Their records are read twice: recalls and acknowledgements come later."""
        timers, pops = WaitingTimers(self._topics), WaitingPops(self._topics)
        try:
            if timers.problem:
                self._note(timers.problem)
            self._topics.counts = False
            for timed in timers.records():
                timers.add(timed)
                pops.add(PopRecord(TIMER_TOPIC, timed.phy_offset, timed.record))
            for popped in pops.records():
                pops.add(popped)
            self._topics.counts = True
            for timed in timers.records():
                if (message := timers.message(timed)) is not None:
                    yield message
                else:
                    yield from pops.messages(PopRecord(TIMER_TOPIC, timed.phy_offset, timed.record))
            for popped in pops.records():
                yield from pops.messages(popped)
        finally:
            timers.close()

    def _check_tables(self) -> None:
        """Note a table that cannot be used. All its messages then count as pending."""
        fs, paths = self._topics.store_reader.fs, self._topics.store_reader.paths
        for name in (DELAY_OFFSET, CONSUMER_OFFSET):
            file = ConfigFile(fs, paths.config / name)
            try:
                file.read(dict, keeps_edits=True)
            except StoreError as error:
                self._note(str(error))

    def _note(self, text: str) -> None:
        self.problems[text] = None


@dataclass(slots=True)
class Total:
    """The number of pending messages of one kind, topic and group, by their due times.

    ``within`` has one number more than ``HORIZONS_MS``: each message counts once, in the first horizon that has it.
    """

    kind: PendingKind
    topic: str
    group: str | None
    within: list[int] = field(default_factory=lambda: [0] * (len(HORIZONS_MS) + 1))
    first_due_ms: int = -1
    last_due_ms: int = -1

    @property
    def messages(self) -> int:
        """The number of messages, whenever they are due."""
        return sum(self.within)

    def add(self, due_ms: int, now_ms: int) -> None:
        """Count one message."""
        horizon = next((number for number, ms in enumerate(HORIZONS_MS) if due_ms <= now_ms + ms), len(HORIZONS_MS))
        self.within[horizon] += 1
        self.first_due_ms = due_ms if self.first_due_ms < 0 else min(self.first_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms, due_ms)


class Totals:
    """The totals of messages by kind, topic and group; the group only of popped messages."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._by_name: dict[tuple[PendingKind, str, str], Total] = {}

    def counted(self, messages: PendingMessages) -> Iterator[PendingMessage]:
        """Yield the messages, and count each."""
        for message in messages:
            group = message.group if message.kind is PendingKind.POP else None
            name = (message.kind, message.topic, group or "")
            total = self._by_name.get(name)
            if total is None:
                total = self._by_name[name] = Total(message.kind, message.topic, group)
            total.add(message.due_ms, self._now_ms)
            yield message

    def __iter__(self) -> Iterator[Total]:
        """Yield the totals, sorted by kind, topic and group."""
        for _, total in sorted(self._by_name.items()):
            yield total


def first_due(messages: Iterator[PendingMessage], count: int) -> list[PendingMessage]:
    """The ``count`` messages that are due first, sorted by due time. All are read, ``count`` are in memory."""
    return nsmallest(count, messages, key=lambda message: (message.due_ms, message.phy_offset))
