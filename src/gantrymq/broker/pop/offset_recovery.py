"""After a kill: moves groups past the messages that they had popped when their offsets were last saved.

Offsets are saved every flushConsumerOffsetInterval (5 s). Without this, the messages popped since then would be popped
again at once, while their checkpoints make them visible a second time later. The checkpoints in the log say how far the
pops of a queue had come, so the offsets follow them. (RocketMQ delivers these messages early.)

Only the last ``_MOST_RECORDS`` timer messages are read. Pops go forward, so a checkpoint that begins before the end of
the last one is that of a reset, and what was popped before the reset does not count. One of a single message is that of
a changed invisible time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.pop.records import CHECKPOINT_TAG, Checkpoint, decode_checkpoint
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.errors import DiskError
from gantrymq.model.message import PROPERTY_REAL_TOPIC, TIMER_TOPIC
from gantrymq.store.message_store import MessageStore

_MOST_RECORDS = 4_096
_RECORDS_A_READ = 256


@dataclass(slots=True)
class _Pops:
    """The pops of a queue since the last reset: where they begin, and where the last one ends."""

    begin: int
    end: int = 0


def recover_offsets(store: MessageStore, offsets: ConsumerOffsetManager, revive_topic: str) -> int:
    """Commit the offsets that the checkpoints of a store show. Returns how many queues were moved.

    Called once, before the broker serves requests.
    """
    end = store.max_offset_in_queue(TIMER_TOPIC, 0)
    begin = max(end - _MOST_RECORDS, store.min_offset_in_queue(TIMER_TOPIC, 0))
    moved = 0
    for queue, pops in _pops(store, begin, end, revive_topic).items():
        committed = offsets.query(queue.group, queue.topic, queue.queue_id)
        is_new = committed < 0 and begin == 0
        if not is_new and not pops.begin <= committed < pops.end:
            continue
        reached = min(pops.end, store.max_offset_in_queue(queue.topic, queue.queue_id))
        if reached > committed and not offsets.has_reset(queue.group, queue.topic, queue.queue_id):
            offsets.commit(queue.group, queue.topic, queue.queue_id, reached)
            moved += 1
    return moved


def _pops(store: MessageStore, begin: int, end: int, revive_topic: str) -> dict[PoppedQueue, _Pops]:
    found: dict[PoppedQueue, _Pops] = {}
    while begin < end:
        try:
            read = store.get(TIMER_TOPIC, 0, begin, max_msgs=_RECORDS_A_READ)
        except DiskError:
            return {}
        for record in read.messages:
            if record.properties.get(PROPERTY_REAL_TOPIC) == revive_topic and record.tags == CHECKPOINT_TAG:
                _take(found, record.body)
        if read.next_begin_offset <= begin:
            break
        begin = read.next_begin_offset
    return found


def _take(found: dict[PoppedQueue, _Pops], body: bytes) -> None:
    try:
        point: Checkpoint = decode_checkpoint(body)
    except ValueError:
        return
    if not point.diffs or point.re_puts is not None:
        return
    queue, begin = PoppedQueue(point.topic, point.group, point.queue_id), point.start_offset
    pops = found.get(queue)
    if pops is None or (begin < pops.end and len(point.diffs) > 1):
        pops = found[queue] = _Pops(begin)
    pops.end = max(pops.end, begin + max(point.diffs) + 1)
