"""Messages that were popped and not acknowledged: those of the waiting checkpoints without an acknowledgement.

A checkpoint and its acknowledgements wait in the timer topic first. Then they wait in the revive topic, after the
offset of CID_RMQ_SYS_REVIVE_GROUP, which is that of the last decided checkpoint.

Ordered pops have no checkpoint, so their messages are not counted. A broker with enablePopBufferMerge keeps checkpoints
of the last seconds in memory.

Thread rule: one thread.

Source: PopReviveService.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.format.pop_checkpoint import PopAck, PopCheckpoint, decode_pop_record
from gantrymq.model.message import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from gantrymq.tools.pending.rules import PopRules, first_undecided
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage, WaitingTopics
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
        self._rules = PopRules()

    def records(self) -> Iterator[PopRecord]:
        """Yield the waiting records of the revive topics."""
        for queue in self._topics.queues(lambda topic: topic.startswith(REVIVE_TOPIC_PREFIX)):
            for waiting in self._topics.of_queue(
                queue, first_undecided(REVIVE_GROUP, self._topics.committed(REVIVE_GROUP, queue)), _STEP
            ):
                yield PopRecord(queue.topic, waiting.phy_offset, waiting.record)

    def add(self, record: PopRecord) -> None:
        """Note an acknowledgement, or a checkpoint in a revive topic. Call it with all records before
        :meth:`messages`.
        """
        value = self._decoded(record)
        if value is not None:
            self._rules.add(value, is_revived=record.waits_in != TIMER_TOPIC)

    def messages(self, record: PopRecord) -> Iterator[PendingMessage]:
        """Yield the messages of a checkpoint that are not acknowledged; none for another record."""
        point = self._decoded(record)
        if not isinstance(point, PopCheckpoint):
            return
        key = point.key
        if self._topics.store_reader.is_deleted(key.topic, record.phy_offset):
            self._topics.pass_over()
            return
        for offset in self._rules.open_offsets(point, is_revived=record.waits_in != TIMER_TOPIC):
            yield PendingMessage(
                *(PendingKind.POP, key.topic, key.queue_id, point.revive_time_ms, key.group, record.waits_in),
                *(record.phy_offset, offset),
            )

    def _decoded(self, record: PopRecord) -> PopCheckpoint | PopAck | None:
        if record.waits_in == TIMER_TOPIC and _REVIVES not in record.record.raw_properties:
            return None
        try:
            return decode_pop_record(record.record.properties.get(PROPERTY_TAGS, ""), record.record.body)
        except ValueError:
            self._topics.pass_over()
            return None
