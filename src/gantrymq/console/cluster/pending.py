"""Messages that wait: delay levels, timers, popped messages, open transactions and retries, by due time.

Delay levels and retries are counted from offsets. The others are counted among the newest messages of their system
topics, because a broker has no request that lists them. The page says how many it has not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.clock import Clock, SystemClock
from gantrymq.console.cluster.broker_state import whole
from gantrymq.console.cluster.browse import Budget, stored_messages
from gantrymq.console.cluster.groups import progress
from gantrymq.console.cluster.pops import Popped, PopRecords
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.view import View, get
from gantrymq.errors import GantrymqError, MQClientError, NoRouteError
from gantrymq.format.op_message import decided_offsets
from gantrymq.model.message import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    StoredMessage,
)
from gantrymq.model.message_queue import MessageQueue

T = TypeVar("T")

_OFFSETS_KEY = "scheduleMessageOffset_"
_MAX_ROWS = 100
_OF_A_LEVEL = 20
_NEWEST = 1_000  # messages of the timer and half topics that are looked at
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Waiting:
    """A message that waits. ``due_ms`` is None for a half message, which waits for its producer."""

    kind: str
    topic: str
    due_ms: int | None
    since_ms: int
    queue: MessageQueue
    queue_offset: int
    detail: str


@dataclass(frozen=True)
class Level:
    """A delay level of a broker with ``count`` messages that are not delivered yet."""

    broker: str
    level: int
    delay: str
    count: int
    first: int


@dataclass
class Older:
    """How many messages of the system topics are older than those that were looked at, and may wait."""

    timers: int = 0
    halves: int = 0


class PendingPages:
    """The messages that wait."""

    def __init__(self, source: ClusterSource, clock: Clock | None = None) -> None:
        self._source, self._clock = source, clock or SystemClock()

    def routes(self) -> list[Route]:
        """The page."""
        return [get("/pending", self.pending)]

    def pending(self, view: View) -> Response:
        """All kinds of waiting messages, those that are due first on top."""
        now_ms = self._clock.now_ms()
        with self._source.session(view) as session:
            budget = Budget(session.config.max_decompressed_body_size)
            levels, pops, older = _levels(session), PopRecords(), Older()
            rows = [
                *(row for level in levels for row in _delayed(session, level, budget)),
                *_read(session, TIMER_TOPIC, lambda queue: _timers(session, queue, budget, now_ms, pops, older)),
            ]
            _add_revives(session, budget, pops)
            popped = sorted(pops.in_flight(), key=lambda one: one.due_ms)
            rows += [_popped(one) for one in popped]
            halves = list(_read(session, TRANS_HALF_TOPIC, lambda queue: _halves(session, queue, budget, older)))
        rows.sort(key=lambda one: (one.due_ms or 0, one.queue, one.queue_offset))
        return view.page(
            "cluster/pending.html.j2",
            levels=levels, delayed=sum(one.count for one in levels), rows=rows[:_MAX_ROWS], total=len(rows),
            timers=sum(one.kind == "timer" for one in rows), halves=halves, now_ms=now_ms, looked_at=_NEWEST,
            popped=len(popped), pops=Counter((one.group, one.queue.topic) for one in popped), older=older,
            is_cut=budget.is_spent,
        )  # fmt: skip


# Delay levels


def _levels(session: ClusterSession) -> list[Level]:
    """The levels that have waiting messages. Queue N of SCHEDULE_TOPIC_XXXX is level N + 1.

    A master reports how far each level is delivered. It reports nothing of a level before its first delivery.
    """
    bounds = session.optional(SCHEDULE_TOPIC, lambda: _bounds(session)) or {}
    delivered: dict[tuple[str, int], int] = {}
    delays: dict[str, list[str]] = {}
    masters = [one for one in session.masters() if any(queue.broker_name == one.name for queue in bounds)]
    for broker, info in session.each(masters, lambda one: session.admin.broker_runtime_info(one.address)):
        delays[broker.name] = _delays(session, broker)
        for key, text in info.items():
            number, offset = whole(key.removeprefix(_OFFSETS_KEY)), whole(text.partition(",")[0])
            if key.startswith(_OFFSETS_KEY) and number is not None and offset is not None:
                delivered[broker.name, number] = offset
    levels = list[Level]()
    for queue, (first, end) in bounds.items():
        number, known = queue.queue_id + 1, delays.get(queue.broker_name, [])
        first = max(first, delivered.get((queue.broker_name, number), 0))
        if end > first:
            delay = known[queue.queue_id] if queue.queue_id < len(known) else "?"
            levels.append(Level(queue.broker_name, number, delay, end - first, first))
    return sorted(levels, key=lambda one: (one.level, one.broker))


def _bounds(session: ClusterSession) -> dict[MessageQueue, tuple[int, int]]:
    """The first and the next offset of each queue of the delay levels; empty if the topic has no route."""
    try:
        stats = session.admin.topic_stats(SCHEDULE_TOPIC)
    except MQClientError:
        return {}
    return {queue: (one.min_offset, one.max_offset) for queue, one in stats.items()}


def _delays(session: ClusterSession, broker: Broker) -> list[str]:
    """The delays of a broker by level, as ``1s``."""
    config = session.optional(broker.name, lambda: session.admin.broker_config(broker.address))
    return (config or {}).get("messageDelayLevel", "").split()


def delay_ms(text: str) -> int | None:
    """A delay of messageDelayLevel in milliseconds; None if it is not one."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    return int(found[1]) * _UNITS_MS[found[2]] if found else None


def _delayed(session: ClusterSession, level: Level, budget: Budget) -> Iterator[Waiting]:
    """The messages of a level that are due next."""
    queue, delay = MessageQueue(SCHEDULE_TOPIC, level.broker, level.level - 1), delay_ms(level.delay)
    offsets = range(level.first, level.first + min(level.count, _OF_A_LEVEL))
    for one in _safely(session, stored_messages(session, queue, offsets, budget), level.broker):
        due_ms = None if delay is None else one.store_timestamp_ms + delay
        is_retry = PROPERTY_RETRY_TOPIC in one.properties
        detail = f"level {level.level} ({level.delay})" + (f", retry {one.reconsume_times}" if is_retry else "")
        yield _waiting("retry" if is_retry else "delay", one, due_ms, queue, detail)


# Timers and half messages


def _read(session: ClusterSession, topic: str, rows: Callable[[MessageQueue], Iterator[T]]) -> Iterator[T]:
    """What ``rows`` gives for each queue of a system topic, which may not exist."""
    try:
        queues = session.pull.queues(topic)
    except NoRouteError:
        return
    for queue in queues:
        yield from _safely(session, rows(queue), queue.broker_name)


def _newest(session: ClusterSession, queue: MessageQueue) -> tuple[range, int]:
    """The offsets that are looked at, and the number of messages before them."""
    first, end = session.pull.min_offset(queue), session.pull.max_offset(queue)
    begin = max(first, end - _NEWEST)
    return range(begin, end), begin - first


def _timers(
    session: ClusterSession, queue: MessageQueue, budget: Budget, now_ms: int, pops: PopRecords, older: Older
) -> Iterator[Waiting]:
    """The timer messages whose time has not come. A recalled one is left out. Those of POP go to ``pops``."""
    offsets, before = _newest(session, queue)
    older.timers += before
    found = list(stored_messages(session, queue, offsets, budget))
    recalled = {
        one.properties[PROPERTY_TIMER_DEL_UNIQKEY] for one in found if PROPERTY_TIMER_DEL_UNIQKEY in one.properties
    }
    for one in found:
        due_ms = whole(one.properties.get(PROPERTY_TIMER_OUT_MS))
        key = one.properties.get(PROPERTY_UNIQ_KEY, "")
        is_recall = PROPERTY_TIMER_DEL_UNIQKEY in one.properties
        if (
            due_ms is not None
            and due_ms > now_ms
            and not is_recall
            and not any(key in text for text in recalled if key)
            and not pops.add(one, queue.broker_name)
        ):
            yield _waiting("timer", one, due_ms, queue, "timer")


def _add_revives(session: ClusterSession, budget: Budget, pops: PopRecords) -> None:
    """Take the records of POP that are due and not decided yet."""

    def added(queue: MessageQueue) -> Iterator[bool]:
        offsets, _ = _undecided(session, queue, REVIVE_GROUP)
        for one in stored_messages(session, queue, offsets, budget):
            yield pops.add(one, queue.broker_name)

    for topic in session.admin.topics():
        if topic.startswith(REVIVE_TOPIC_PREFIX):
            for _ in _read(session, topic, added):
                pass


def _undecided(session: ClusterSession, queue: MessageQueue, group: str) -> tuple[range, int]:
    """The newest offsets of a queue from the committed offset of a broker's group on, and how many are before them."""
    committed = progress(session, group, queue.topic).get(queue)
    newest, before = _newest(session, queue)
    begin = newest.start - before if committed is None else max(committed.consumer_offset, newest.start - before)
    return range(max(newest.start, begin), newest.stop), max(newest.start - begin, 0)


def _popped(one: Popped) -> Waiting:
    return Waiting(
        "popped", one.queue.topic, one.due_ms, one.popped_ms, one.queue, one.queue_offset, f"group {one.group}"
    )


def _halves(session: ClusterSession, queue: MessageQueue, budget: Budget, older: Older) -> Iterator[Waiting]:
    """The half messages that are neither committed nor rolled back."""
    offsets, before = _undecided(session, queue, TRANS_GROUP)
    older.halves += before
    if not offsets:
        return
    op = MessageQueue(TRANS_OP_HALF_TOPIC, queue.broker_name, queue.queue_id)
    decided = {
        offset
        for one in stored_messages(session, op, _newest(session, op)[0], budget)
        for offset in decided_offsets(one.tags, one.body)
    }
    for one in stored_messages(session, queue, offsets, budget):
        if one.queue_offset not in decided:
            group = one.properties.get(PROPERTY_PRODUCER_GROUP, "")
            yield _waiting("transaction", one, None, queue, f"producer group {group}")


def _waiting(kind: str, one: StoredMessage, due_ms: int | None, queue: MessageQueue, detail: str) -> Waiting:
    properties: Mapping[str, str] = one.properties
    topic = properties.get(PROPERTY_RETRY_TOPIC) or properties.get(PROPERTY_REAL_TOPIC) or one.topic
    return Waiting(kind, topic, due_ms, one.born_timestamp_ms, queue, one.queue_offset, detail)


def _safely(session: ClusterSession, rows: Iterator[T], name: str) -> Iterator[T]:
    """The rows up to the first error, which names the broker on the page."""
    try:
        yield from rows
    except GantrymqError as error:
        session.note_missing(name, error)
