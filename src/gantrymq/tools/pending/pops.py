"""Messages that were popped and not acknowledged: those of the waiting checkpoints without an acknowledgement.

A checkpoint and its acknowledgements wait in the timer topic first. Then they wait in the revive topic, after the
offset of CID_RMQ_SYS_REVIVE_GROUP, which is that of the last decided checkpoint. Memory holds a set entry for each
waiting acknowledgement, and for each message of a checkpoint in the revive topic.

Ordered pops have no checkpoint, so their messages are not counted. A broker with enablePopBufferMerge keeps checkpoints
of the last seconds in memory.

Thread rule: one thread.

Source: PopReviveService.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, PopKey, decode_pop_record
from gantrymq.model.message import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from gantrymq.tools.pending.waiting import Kind, PendingMessage, WaitingTopics
from gantrymq.tools.read.record_rows import Record

_STEP = "Reading checkpoints of POP"
_REVIVES = f"{PROPERTY_REAL_TOPIC}\x01{REVIVE_TOPIC_PREFIX}".encode()


class PopRecord(NamedTuple):
    """A record of the topic ``waits_in``, the timer topic or a revive topic."""

    waits_in: str
    phy_offset: int
    record: Record


class WaitingPops:
    """The checkpoints and acknowledgements of a store."""

    def __init__(self, topics: WaitingTopics) -> None:
        self._topics = topics
        self._acknowledged: set[int] = set()
        self._revived: set[int] = set()

    def records(self) -> Iterator[PopRecord]:
        """Yield the waiting records of the revive topics."""
        for queue in self._topics.queues(lambda topic: topic.startswith(REVIVE_TOPIC_PREFIX)):
            for waiting in self._topics.of_queue(queue, self._topics.committed(REVIVE_GROUP, queue) + 1, _STEP):
                yield PopRecord(queue.topic, waiting.phy_offset, waiting.record)

    def add(self, one: PopRecord) -> None:
        """Note an acknowledgement, or a checkpoint in a revive topic. Call it with all records before
        :meth:`messages`.
        """
        value = self._decoded(one)
        if isinstance(value, PopAck):
            self._acknowledged.update(_hash(value.key, offset) for offset in value.offsets)
        elif value is not None and one.waits_in != TIMER_TOPIC:
            self._revived.update(_hash(value.key, offset) for offset in value.open_offsets())

    def messages(self, one: PopRecord) -> Iterator[PendingMessage]:
        """Yield the messages of a checkpoint that are not acknowledged; none for another record."""
        point = self._decoded(one)
        if not isinstance(point, PopCheckpoint):
            return
        key = point.key
        # A checkpoint that is in the revive topic may still count as waiting in the timer topic, if timercheck is old.
        for offset in point.open_offsets():
            name = _hash(key, offset)
            if name in self._acknowledged or (one.waits_in == TIMER_TOPIC and name in self._revived):
                continue
            yield PendingMessage(
                *(Kind.POP, key.topic, key.queue_id, point.revive_time_ms, key.group, one.waits_in),
                *(one.phy_offset, offset),
            )

    def _decoded(self, one: PopRecord) -> PopCheckpoint | PopAck | None:
        if one.waits_in == TIMER_TOPIC and _REVIVES not in one.record.raw_properties:
            return None
        try:
            return decode_pop_record(one.record.properties.get(PROPERTY_TAGS, ""), one.record.body)
        except ValueError:
            self._topics.pass_over()
            return None


def _hash(key: PopKey, queue_offset: int) -> int:
    """The key of a message of a checkpoint. Some acknowledgements lack the broker's name."""
    return hash((key._replace(broker_name=""), queue_offset))
