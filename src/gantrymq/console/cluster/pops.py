"""Messages that were popped and are neither acknowledged nor visible again, from the records of POP in system topics.

A checkpoint and its acknowledgements wait in the timer topic, then in the revive topic after the offset of
CID_RMQ_SYS_REVIVE_GROUP. See :mod:`gantrymq.tools.pending.pops` for a store.

Source: PopReviveService.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey, decode_pop_record
from gantrymq.model.message import PROPERTY_REAL_TOPIC, REVIVE_TOPIC_PREFIX, StoredMessage
from gantrymq.model.message_queue import MessageQueue


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
        self._open: dict[tuple[PopKey, int], Popped] = {}
        self._acknowledged: set[tuple[PopKey, int]] = set()

    def add(self, message: StoredMessage, broker_name: str) -> bool:
        """Take a message of the timer topic or a revive topic. Returns False if it is not a record of POP."""
        topic = message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
        if not topic.startswith(REVIVE_TOPIC_PREFIX):
            return False
        try:
            value = decode_pop_record(message.tags, bytes(message.body))
        except ValueError:
            return True  # a broker passes over a damaged record too
        if isinstance(value, PopAck):
            self._acknowledged.update((_named(value.key, broker_name), offset) for offset in value.offsets)
        elif isinstance(value, PopCheckpoint):
            key = _named(value.key, broker_name)
            queue = MessageQueue(key.topic, key.broker_name, key.queue_id)
            for offset in value.open_offsets():
                popped = Popped(queue, offset, key.group, key.pop_time_ms, value.revive_time_ms)
                self._open[key, offset] = popped
        return True

    def in_flight(self) -> Iterator[Popped]:
        """The messages without an acknowledgement."""
        return (one for name, one in self._open.items() if name not in self._acknowledged)


def _named(key: PopKey, broker_name: str) -> PopKey:
    """The key with the name of its broker, which old brokers leave out."""
    return key if key.broker_name else key._replace(broker_name=broker_name)
