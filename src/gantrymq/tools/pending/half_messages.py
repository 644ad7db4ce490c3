"""Half messages that no op message names: their transactions are neither committed nor rolled back.

The group CID_RMQ_SYS_TRANS has a committed offset in each half queue: all half messages before it are decided. It also
has one in the op queue: no op message before it names an undecided half message. The reader needs one byte of memory
for each half message after the first offset, and a set entry for each earlier one that an op message names.

Source: TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from gantrymq.format.op_message import decided_offsets
from gantrymq.kernels import codes
from gantrymq.model.message import PROPERTY_TAGS, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.tools.pending.rules import destination, half_message
from gantrymq.tools.pending.waiting import PendingKind, PendingMessage, WaitingTopics

_OPS, _HALVES = "Reading op messages", "Reading half messages"


def half_messages(topics: WaitingTopics) -> Iterator[PendingMessage]:
    """Yield the open half messages. ``due_ms`` is when a broker may ask their producer first."""
    for queue in topics.queues(TRANS_HALF_TOPIC.__eq__):
        begin = min(max(topics.committed(TRANS_GROUP, queue), queue.min_offset), queue.max_offset)
        decided = _Decided(topics, queue, begin)
        for waiting in topics.of_queue(queue, begin, _HALVES):
            if decided.names(waiting.queue_offset):
                continue
            properties, born_ms = waiting.record.properties, waiting.record.row[codes.BORN_TIMESTAMP]
            if destination(properties) is None:
                topics.pass_over()
                continue
            half = half_message(properties, born_ms, topics.now_ms, decided.names)
            if half is not None:
                yield PendingMessage(
                    PendingKind.HALF, *half.to, half.due_ms, half.group, TRANS_HALF_TOPIC, waiting.phy_offset
                )


class _Decided:
    """The queue offsets of a half queue that op messages name; those before ``begin`` too."""

    def __init__(self, topics: WaitingTopics, half: ConsumeQueue, begin: int) -> None:
        self._begin, self._later = begin, bytearray(half.max_offset - begin)
        earlier = array("q")
        op = topics.store_reader.consume_queues.get(TRANS_OP_HALF_TOPIC, half.queue_id)
        if op is not None:
            for waiting in topics.of_queue(op, topics.committed(TRANS_GROUP, op), _OPS):
                tags = waiting.record.properties.get(PROPERTY_TAGS, "")
                for offset in decided_offsets(tags, waiting.record.body):
                    if offset < begin:
                        earlier.append(offset)
                    elif offset < half.max_offset:
                        self._later[offset - begin] = 1
        self._earlier = frozenset(earlier)

    def names(self, offset: int) -> bool:
        """Whether an op message names a queue offset; -1 stands for no offset."""
        return bool(self._later[offset - self._begin]) if offset >= self._begin else offset in self._earlier
