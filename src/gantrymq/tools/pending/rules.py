"""Which records of the system topics are pending, decided from their fields: one answer for stores and for clusters.

``gantrymq store pending`` and the console of a store read all records. The console of a cluster pulls the newest ones
from the brokers. Both ask these rules. A rule that needs other records is an object: give it all of them first.

Thread rule: one thread.

Source: ScheduleMessageService, TimerMessageStore, PopReviveService, TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gantrymq.format.names import is_topic_storable
from gantrymq.format.op_message import number
from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey
from gantrymq.model.message import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from gantrymq.store.timer.timed_message import due_ms_in, key_of

TRANSACTION_TIMEOUT_MS = 6_000  # transactionTimeOut, for messages without a time of their own


class Destination(NamedTuple):
    """The topic and the queue id to which a waiting message goes."""

    topic: str
    queue_id: int


def destination(properties: Mapping[str, str]) -> Destination | None:
    """Where a waiting message goes; None if it does not say so, or cannot go there: no broker delivers it."""
    topic, queue_id = properties.get(PROPERTY_REAL_TOPIC, ""), number(properties.get(PROPERTY_REAL_QUEUE_ID))
    return Destination(topic, queue_id) if queue_id >= 0 and is_topic_storable(topic) else None


def first_undecided(group: str, committed_offset: int) -> int:
    """The queue offset of the first record that may be pending, after what a service's group has committed.

    The service of POP commits the last checkpoint that it has decided, other groups the record after it.
    """
    return committed_offset + (group == REVIVE_GROUP)


class TimerRules:
    """Timer messages and their recalls. Times are rounded to ``precision_ms``.

    With ``with_topic`` the key of a recall has the topic, too (appendTopicForTimerDeleteKey).
    """

    def __init__(self, precision_ms: int, *, with_topic: bool) -> None:
        self._precision_ms, self._with_topic = precision_ms, with_topic
        self._recalled: set[int] = set()

    def add(self, properties: Mapping[str, str], now_ms: int, *, is_in_wheel: bool = False) -> None:
        """Note a record of the timer topic if it is a recall.

        A recall that is read after its slot is due has no effect, nor has one in another slot than its message.
        """
        due_ms = due_ms_in(TIMER_TOPIC, properties) if PROPERTY_TIMER_DEL_UNIQKEY in properties else None
        if due_ms is not None and (is_in_wheel or self._slot(due_ms) >= self._slot(now_ms)):
            self._recalled.add(hash((self._slot(due_ms), properties[PROPERTY_TIMER_DEL_UNIQKEY])))

    def delivery_ms(self, properties: Mapping[str, str]) -> int | None:
        """The time at which a record of the timer topic is delivered, when the slot after its own begins.

        None if it was recalled, is a recall, or is a record of POP.
        """
        due_ms = due_ms_in(TIMER_TOPIC, properties)
        if due_ms is None or PROPERTY_TIMER_DEL_UNIQKEY in properties:
            return None
        if properties[PROPERTY_REAL_TOPIC].startswith(REVIVE_TOPIC_PREFIX):
            return None
        key = key_of(properties, with_topic=self._with_topic)
        if key is not None and hash((self._slot(due_ms), key)) in self._recalled:
            return None
        return due_ms + self._precision_ms

    def _slot(self, time_ms: int) -> int:
        return time_ms // self._precision_ms


class PopRules:
    """The checkpoints and acknowledgements of POP at one broker.

    Memory holds a set entry for each acknowledgement, and for each message of a checkpoint in a revive topic.
    """

    def __init__(self) -> None:
        self._acknowledged: set[int] = set()
        self._revived: set[int] = set()

    def add(self, value: PopAck | PopCheckpoint, *, is_revived: bool) -> None:
        """Note a record. ``is_revived`` says that it is in a revive topic, and not in the timer topic."""
        if isinstance(value, PopAck):
            self._acknowledged.update(_hash(value.key, offset) for offset in value.offsets)
        elif is_revived:
            self._revived.update(_hash(value.key, offset) for offset in value.open_offsets())

    def open_offsets(self, point: PopCheckpoint, *, is_revived: bool) -> Iterator[int]:
        """The queue offsets of a checkpoint that are not acknowledged.

        A checkpoint that is in the revive topic may still be in the timer topic. It counts once.
        """
        for offset in point.open_offsets():
            name = _hash(point.key, offset)
            if name not in self._acknowledged and (is_revived or name not in self._revived):
                yield offset


def _hash(key: PopKey, queue_offset: int) -> int:
    """The key of a message of a checkpoint. Some acknowledgements lack the broker's name."""
    return hash((key._replace(broker_name=""), queue_offset))


class OpenHalfMessage(NamedTuple):
    """An open half message. ``due_ms`` is when a broker may ask its producer first."""

    to: Destination
    due_ms: int
    group: str | None


def half_message(
    properties: Mapping[str, str], born_ms: int, now_ms: int, is_decided: Callable[[int], bool]
) -> OpenHalfMessage | None:
    """A half message that no op message names; None if it is decided, or does not say where it goes.

    ``is_decided(queue offset)`` says whether an op message names a record; -1 stands for no offset.
    """
    to = destination(properties)
    if to is None:
        return None
    immunity_ms = _immunity_ms(properties)
    due_ms = born_ms + (TRANSACTION_TIMEOUT_MS if immunity_ms is None else immunity_ms)
    first = number(properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET))
    if immunity_ms is not None and now_ms <= due_ms and is_decided(first):
        return None  # a copy of a half message that was decided by the offset of its first record
    return OpenHalfMessage(to, due_ms, properties.get(PROPERTY_PRODUCER_GROUP))


def _immunity_ms(properties: Mapping[str, str]) -> int | None:
    """The time after its birth during which a half message is not checked, if it has one."""
    text = properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    return seconds * 1000 if (seconds := number(text)) >= 0 else TRANSACTION_TIMEOUT_MS
