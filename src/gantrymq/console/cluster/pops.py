"""Messages that were popped and are neither acknowledged nor visible again, from the records of POP in system topics.

A checkpoint and its acknowledgements wait in the timer topic, then in the revive topic after the offset of
CID_RMQ_SYS_REVIVE_GROUP. :class:`~gantrymq.tools.pending.rules.PopRules` decides, as for a store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.format.pop_checkpoint import PopCheckpoint, decode_pop_record
from gantrymq.model.message import PROPERTY_REAL_TOPIC, REVIVE_TOPIC_PREFIX, TIMER_TOPIC, StoredMessage
from gantrymq.model.message_queue import MessageQueue
from gantrymq.tools.pending.rules import PopRules


class Popped(NamedTuple):
    """A popped message: its queue and offset, the group, when it was popped, and when it is visible again."""

    queue: MessageQueue
    queue_offset: int
    group: str
    popped_ms: int
    due_ms: int


class PopRecords:
    """The records that were read. Thread rule: one thread."""

    def __init__(self) -> None:
        self._rules = defaultdict[str, PopRules](PopRules)
        self._points: list[tuple[str, PopCheckpoint, bool]] = []

    def add(self, message: StoredMessage, broker_name: str) -> bool:
        """Take a message of the timer topic or a revive topic. Returns False if it is not a record of POP."""
        topic = message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
        if not topic.startswith(REVIVE_TOPIC_PREFIX):
            return False
        try:
            value = decode_pop_record(message.tags, bytes(message.body))
        except ValueError:
            return True  # a broker passes over a damaged record too
        if value is not None:
            is_revived = message.topic != TIMER_TOPIC
            self._rules[broker_name].add(value, is_revived=is_revived)
            if isinstance(value, PopCheckpoint):
                self._points.append((broker_name, value, is_revived))
        return True

    def in_flight(self) -> Iterator[Popped]:
        """The messages without an acknowledgement."""
        for broker_name, point, is_revived in self._points:
            key = point.key
            queue = MessageQueue(key.topic, key.broker_name or broker_name, key.queue_id)  # old brokers leave it out
            for offset in self._rules[broker_name].open_offsets(point, is_revived=is_revived):
                yield Popped(queue, offset, key.group, key.pop_time_ms, point.revive_time_ms)
