"""Messages that wait: delay levels, timers, popped messages, open transactions and retries, by due time.

Delay levels and retries are counted from offsets. The others are counted among the newest messages of their system
topics, because a broker has no request that lists them. The page says how many it has not looked at. The rules of
:mod:`gantrymq.tools.pending.rules` decide which of them are pending, as for a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.clock import Clock, SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.console.cluster.broker_state import whole
from gantrymq.console.cluster.browse import Budget, stored_messages
from gantrymq.console.cluster.groups import progress
from gantrymq.console.cluster.pops import Popped, PopRecords
from gantrymq.console.cluster.source import ClusterSession, ClusterSource
from gantrymq.console.page_request import PageRequest, get
from gantrymq.errors import GantrymqError, MQClientError, NoRouteError
from gantrymq.format.op_message import decided_offsets
from gantrymq.model.message import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
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
from gantrymq.model.spans import parse_delay_ms
from gantrymq.store.timer.timed_message import due_ms_in
from gantrymq.tools.pending.rules import TimerRules, destination, first_undecided, half_message

T = TypeVar("T")

_OFFSETS_KEY = "scheduleMessageOffset_"
_PRECISION_KEY, _WITH_TOPIC_KEY = "timerPrecisionMs", "appendTopicForTimerDeleteKey"
_PRECISION_MS = MessageStoreConfig().timer_precision_ms  # of a broker that does not tell its own
_MAX_ROWS = 100
_OF_A_LEVEL = 20
_NEWEST = 1_000  # messages of the timer and half topics that are looked at


@dataclass(frozen=True)
class PendingRow:
    """A message that waits. ``due_ms`` is None for a half message, which waits for its producer."""

    kind: str
    topic: str
    due_ms: int | None
    since_ms: int
    queue: MessageQueue
    queue_offset: int
    detail: str


@dataclass(frozen=True)
class DelayLevelCount:
    """A delay level of a broker with ``count`` messages that are not delivered yet."""

    broker: str
    level: int
    delay: str
    count: int
    first: int


@dataclass
class OlderMessages:
    """How many messages of the system topics are older than those that were looked at, and may wait."""

    timers: int = 0
    halves: int = 0


class PendingPages:
    """The page of the messages that wait in a cluster."""

    def __init__(self, source: ClusterSource, clock: Clock | None = None) -> None:
        self._source, self._clock = source, clock or SystemClock()

    def routes(self) -> list[Route]:
        """The route of the page."""
        return [get("/pending", self.pending)]

    def pending(self, request: PageRequest) -> Response:
        """All kinds of waiting messages, those that are due first on top."""
        now_ms = self._clock.now_ms()
        with self._source.session(request) as session:
            budget = Budget(session.config.max_decompressed_body_size)
            levels, pops, older = _levels(session), PopRecords(), OlderMessages()
            rows = [
                *(row for level in levels for row in _delayed(session, level, budget)),
                *_read(session, TIMER_TOPIC, lambda queue: _timers(session, queue, budget, now_ms, pops, older)),
            ]
            _add_revives(session, budget, pops)
            popped = sorted(pops.in_flight(), key=lambda pop: pop.due_ms)
            rows += [_popped(pop) for pop in popped]
            halves = list(
                _read(session, TRANS_HALF_TOPIC, lambda queue: _halves(session, queue, budget, now_ms, older))
            )
        rows.sort(key=lambda row: (row.due_ms or 0, row.queue, row.queue_offset))
        return request.page(
            "cluster/pending.html.j2",
            levels=levels,
            delayed=sum(level.count for level in levels),
            rows=rows[:_MAX_ROWS],
            total=len(rows),
            timers=sum(row.kind == "timer" for row in rows),
            halves=halves,
            now_ms=now_ms,
            looked_at=_NEWEST,
            popped=len(popped),
            pops=Counter((pop.group, pop.queue.topic) for pop in popped),
            older=older,
            is_cut=budget.is_spent,
        )


# Delay levels


def _levels(session: ClusterSession) -> list[DelayLevelCount]:
    """The levels that have waiting messages. Queue N of SCHEDULE_TOPIC_XXXX is level N + 1.

    A master reports how far each level is delivered. It reports nothing of a level before its first delivery.
    """
    bounds = session.optional(SCHEDULE_TOPIC, lambda: _bounds(session)) or {}
    delivered: dict[tuple[str, int], int] = {}
    delays: dict[str, list[str]] = {}
    masters = [master for master in session.masters() if any(queue.broker_name == master.name for queue in bounds)]
    for broker, info in session.each(masters, lambda master: session.admin.broker_runtime_info(master.address)):
        delays[broker.name] = _config(session, broker.name).get("messageDelayLevel", "").split()
        for key, text in info.items():
            number, offset = whole(key.removeprefix(_OFFSETS_KEY)), whole(text.partition(",")[0])
            if key.startswith(_OFFSETS_KEY) and number is not None and offset is not None:
                delivered[broker.name, number] = offset
    levels = list[DelayLevelCount]()
    for queue, (first, end) in bounds.items():
        number, known = queue.queue_id + 1, delays.get(queue.broker_name, [])
        first = max(first, delivered.get((queue.broker_name, number), 0))
        if end > first:
            delay = known[queue.queue_id] if queue.queue_id < len(known) else "?"
            levels.append(DelayLevelCount(queue.broker_name, number, delay, end - first, first))
    return sorted(levels, key=lambda level: (level.level, level.broker))


def _bounds(session: ClusterSession) -> dict[MessageQueue, tuple[int, int]]:
    """The first and the next offset of each queue of the delay levels; empty if the topic has no route."""
    try:
        stats = session.admin.topic_stats(SCHEDULE_TOPIC)
    except MQClientError:
        return {}
    return {queue: (stat.min_offset, stat.max_offset) for queue, stat in stats.items()}


def _config(session: ClusterSession, broker_name: str) -> Mapping[str, str]:
    """The settings of a master; empty if it does not answer."""
    addresses = [master.address for master in session.masters() if master.name == broker_name]
    config = session.optional(broker_name, lambda: session.admin.broker_config(addresses[0])) if addresses else None
    return config or {}


def _delayed(session: ClusterSession, level: DelayLevelCount, budget: Budget) -> Iterator[PendingRow]:
    """The messages of a level that are due next."""
    queue, delay = MessageQueue(SCHEDULE_TOPIC, level.broker, level.level - 1), parse_delay_ms(level.delay)
    offsets = range(level.first, level.first + min(level.count, _OF_A_LEVEL))
    for message in _safely(session, stored_messages(session, queue, offsets, budget), level.broker):
        if destination(message.properties) is None:
            continue
        due_ms = None if delay is None else message.store_timestamp_ms + delay
        is_retry = PROPERTY_RETRY_TOPIC in message.properties
        detail = f"level {level.level} ({level.delay})" + (f", retry {message.reconsume_times}" if is_retry else "")
        yield _waiting("retry" if is_retry else "delay", message, due_ms, queue, detail)


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
    session: ClusterSession, queue: MessageQueue, budget: Budget, now_ms: int, pops: PopRecords, older: OlderMessages
) -> Iterator[PendingRow]:
    """The timer messages whose time has not come. A recalled one is left out. Those of POP go to ``pops``."""
    offsets, before = _newest(session, queue)
    older.timers += before
    messages = list(stored_messages(session, queue, offsets, budget))
    config = _config(session, queue.broker_name)
    precision_ms = whole(config.get(_PRECISION_KEY)) or _PRECISION_MS
    rules = TimerRules(precision_ms, with_topic=config.get(_WITH_TOPIC_KEY) == "true")
    for message in messages:
        rules.add(message.properties, now_ms)
    for message in messages:
        due_ms = rules.delivery_ms(message.properties)
        if due_ms is None:
            slot_ms = due_ms_in(TIMER_TOPIC, message.properties)
            if slot_ms is not None and slot_ms + precision_ms > now_ms:
                pops.add(message, queue.broker_name)
        elif due_ms > now_ms and destination(message.properties) is not None:
            yield _waiting("timer", message, due_ms, queue, "timer")


def _add_revives(session: ClusterSession, budget: Budget, pops: PopRecords) -> None:
    """Take the records of POP that are due and not decided yet."""

    def added(queue: MessageQueue) -> Iterator[bool]:
        offsets, _ = _undecided(session, queue, REVIVE_GROUP)
        for message in stored_messages(session, queue, offsets, budget):
            yield pops.add(message, queue.broker_name)

    for topic in session.admin.topics():
        if topic.startswith(REVIVE_TOPIC_PREFIX):
            for _ in _read(session, topic, added):
                pass


def _undecided(session: ClusterSession, queue: MessageQueue, group: str) -> tuple[range, int]:
    """The newest offsets of a queue from the committed offset of a broker's group on, and how many are before them."""
    committed = progress(session, group, queue.topic).get(queue)
    newest, before = _newest(session, queue)
    begin = (
        newest.start - before
        if committed is None
        else max(first_undecided(group, committed.consumer_offset), newest.start - before)
    )
    return range(max(newest.start, begin), newest.stop), max(newest.start - begin, 0)


def _popped(pop: Popped) -> PendingRow:
    return PendingRow(
        "popped", pop.queue.topic, pop.due_ms, pop.popped_ms, pop.queue, pop.queue_offset, f"group {pop.group}"
    )


def _halves(
    session: ClusterSession, queue: MessageQueue, budget: Budget, now_ms: int, older: OlderMessages
) -> Iterator[PendingRow]:
    """The half messages that are neither committed nor rolled back."""
    offsets, before = _undecided(session, queue, TRANS_GROUP)
    older.halves += before
    if not offsets:
        return
    op = MessageQueue(TRANS_OP_HALF_TOPIC, queue.broker_name, queue.queue_id)
    decided = {
        offset
        for message in stored_messages(session, op, _newest(session, op)[0], budget)
        for offset in decided_offsets(message.tags, message.body)
    }
    for message in stored_messages(session, queue, offsets, budget):
        if message.queue_offset in decided:
            continue
        half = half_message(message.properties, message.born_timestamp_ms, now_ms, decided.__contains__)
        if half is not None:
            yield _waiting("transaction", message, None, queue, f"producer group {half.group or ''}")


def _waiting(kind: str, message: StoredMessage, due_ms: int | None, queue: MessageQueue, detail: str) -> PendingRow:
    properties: Mapping[str, str] = message.properties
    topic = properties.get(PROPERTY_RETRY_TOPIC) or properties.get(PROPERTY_REAL_TOPIC) or message.topic
    return PendingRow(kind, topic, due_ms, message.born_timestamp_ms, queue, message.queue_offset, detail)


def _safely(session: ClusterSession, rows: Iterator[T], name: str) -> Iterator[T]:
    """The rows up to the first error, which names the broker on the page."""
    try:
        yield from rows
    except GantrymqError as error:
        session.note_missing(name, error)
