"""What a former master has delivered already, found in the log that a slave has copied from it.

A slave's progress of deliveries is seconds older than its log. The obvious way, to deliver from there on, delivers the
messages of those seconds twice. But their deliveries are in the log, in the queues that consumers read. So a message
that was due before the log's end is looked for at the end of its queue first.

A delivery has no reference to the message that waited. It is recognised by what both have in common: time of birth,
unique key, body, the number of retries, and the properties that say where and when it was due.
Each delivery counts once, and only for a message before it in the log that was due by then. So two messages that are
alike in all of that are delivered as often as they were sent. A committed half message is recognised by its offset,
which its final message has.

Thread rule: one thread. Only records that were in the log when it was opened count.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from gantrymq.model.message import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQ_KEY,
    Message,
    StoredMessage,
)
from gantrymq.store.opening import StoreParts
from gantrymq.store.queue.consume_queue import ConsumeQueue

_UNITS_A_READ = 256
_MAX_RECORDS = 1_000_000  # about 500 bytes of memory each
_CLOCK_SLACK_MS = 60_000  # a clock that was set back meanwhile
_PROPERTIES = (PROPERTY_UNIQ_KEY, PROPERTY_REAL_TOPIC, PROPERTY_TIMER_OUT_MS, PROPERTY_FIRST_POP_TIME)
_Key = tuple[int, int, int, tuple[str | None, ...]]
_LOGGER = logging.getLogger(__name__)


class _Delivery(NamedTuple):
    phy_offset: int
    store_ms: int


@dataclass(slots=True)
class _Known:
    """The deliveries in a queue from its offset ``begin`` on, newest first; the oldest record is of ``oldest_ms``."""

    begin: int
    oldest_ms: int
    by_key: dict[_Key, list[_Delivery]] = field(default_factory=dict)
    finals: set[int] = field(default_factory=set)


class FormerDeliveries:
    """The deliveries in the log of a store that has just been opened.

    ``log_ms`` is the store time of its newest message: what was due later was not delivered by the former master.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._log, self._queues = parts.log, parts.queues
        self._end = parts.log.wrote_offset
        newest = parts.log.read(parts.queues.last_phy_offset)
        self.log_ms = newest.store_timestamp_ms if newest is not None else 0
        self._known: dict[tuple[str, int], _Known] = {}
        self._left = _MAX_RECORDS

    def take(
        self, due: StoredMessage | Message, queue: tuple[str, int], *, after: int, due_ms: int, since_ms: int
    ) -> bool:
        """Whether ``queue`` has the delivery of a message. It then counts as found, and not for another one.

        The message waited at the physical offset ``after``, and was due at ``due_ms``. Its delivery, if it was not
        counted, was stored after ``since_ms``.
        """
        known = self._known_of(queue, since_ms)
        deliveries = known.by_key.get(_key(due), [])
        for number in range(len(deliveries) - 1, -1, -1):
            if deliveries[number].phy_offset > after and deliveries[number].store_ms >= due_ms:
                del deliveries[number]
                return True
        return False

    def has_final(self, half: StoredMessage, queue: tuple[str, int], *, since_ms: int) -> bool:
        """Whether ``queue`` has the message that a commit of ``half`` has put, after ``since_ms``."""
        return half.phy_offset in self._known_of(queue, since_ms).finals

    def _known_of(self, queue: tuple[str, int], since_ms: int) -> _Known:
        units = self._queues.get(*queue)
        known = self._known.get(queue)
        if known is None:
            end = units.max_offset if units is not None else 0
            known = self._known[queue] = _Known(end, self.log_ms + 1)
        if units is not None:
            self._extend(known, units, since_ms - _CLOCK_SLACK_MS)
        return known

    def _extend(self, known: _Known, units: ConsumeQueue, since_ms: int) -> None:
        """Read a queue backwards, until its records are older than ``since_ms``."""
        while known.oldest_ms >= since_ms and known.begin > units.min_offset:
            begin = max(known.begin - _UNITS_A_READ, units.min_offset)
            for phy_offset, size in reversed(_units_of(units, begin, known.begin)):
                if self._left <= 0:
                    return
                record = self._log.read(phy_offset, size) if phy_offset < self._end else None
                if record is not None:
                    self._note(known, record)
            known.begin = begin

    def _note(self, known: _Known, record: StoredMessage) -> None:
        known.oldest_ms = record.store_timestamp_ms
        delivery = _Delivery(record.phy_offset, record.store_timestamp_ms)
        known.by_key.setdefault(_key(record), []).append(delivery)
        if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            known.finals.add(record.prepared_transaction_offset)
        self._left -= 1
        if not self._left:
            text = "the former master's progress is so old that some of its deliveries may be delivered again: %d read"
            _LOGGER.warning(text, _MAX_RECORDS)


def _units_of(queue: ConsumeQueue, begin: int, end: int) -> list[tuple[int, int]]:
    """Physical offset and size of the units in [begin, end)."""
    units: list[tuple[int, int]] = []
    while begin < end:
        rows = list(queue.units(begin, end - begin))  # up to the end of a file
        if not rows:
            break
        units += [(phy_offset, size) for phy_offset, size, _ in rows]
        begin += len(rows)
    return units


def _key(message: StoredMessage | Message) -> _Key:
    properties = message.properties
    values = tuple(properties.get(name) for name in _PROPERTIES)
    return message.born_timestamp_ms, message.reconsume_times, hash(bytes(message.body)), values
