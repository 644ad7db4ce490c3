"""After a kill: moves groups past the messages that they had popped when their offsets were last saved.

Offsets are saved every flushConsumerOffsetInterval (5 s). Messages that were popped after the last save would be popped
again at once, and their checkpoints would make them visible a second time later. The checkpoints in the log show how
far the pops of a queue had come, so the offsets follow them. (RocketMQ delivers these messages early.)

Only the last ``_MAX_RECORDS`` timer messages are read. An offset follows checkpoints only up to the first gap. A
filter may have skipped the messages of a gap, but their checkpoint may also have been only in memory. Pops go forward:
a checkpoint that begins before the end of the last one follows a reset of the offset, and earlier checkpoints do not
count, nor do those of a topic that was deleted since. A checkpoint of a single message is that of a changed invisible
time.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.broker.pop.buffer import PoppedQueue
from gantrymq.broker.tables.offsets import ConsumerOffsetManager
from gantrymq.errors import DiskError
from gantrymq.format.pop_checkpoint import CHECKPOINT_TAG, decode_pop_checkpoint
from gantrymq.model.message import PROPERTY_REAL_TOPIC, TIMER_TOPIC
from gantrymq.store.message_store import MessageStore

_MAX_RECORDS = 4_096
_RECORDS_A_READ = 256


class _Run(NamedTuple):
    """Pops of a queue without a gap between them."""

    begin: int
    end: int


def recover_offsets(store: MessageStore, offsets: ConsumerOffsetManager, revive_topic: str) -> int:
    """Commit the offsets that the checkpoints of a store show. Returns how many queues were moved.

    Called once, before the broker serves requests.
    """
    end = store.max_offset_in_queue(TIMER_TOPIC, 0)
    begin = max(end - _MAX_RECORDS, store.min_offset_in_queue(TIMER_TOPIC, 0))
    moved = 0
    for queue, runs in _runs(store, begin, end, revive_topic).items():
        topic, group, queue_id = queue
        committed = offsets.query(group, topic, queue_id)
        if committed < 0 and begin == 0:  # all pops of the group are here
            committed = store.min_offset_in_queue(topic, queue_id)
        reached = next((run.end for run in runs if run.begin <= committed < run.end), -1)
        reached = min(reached, store.max_offset_in_queue(topic, queue_id))
        if reached > committed and not offsets.has_reset(group, topic, queue_id):
            offsets.commit(group, topic, queue_id, reached)
            moved += 1
    return moved


def _runs(store: MessageStore, begin: int, end: int, revive_topic: str) -> dict[PoppedQueue, list[_Run]]:
    runs: dict[PoppedQueue, list[_Run]] = {}
    while begin < end:
        try:
            read = store.get(TIMER_TOPIC, 0, begin, max_msgs=_RECORDS_A_READ)
        except DiskError:
            return {}
        for record in read.messages:
            if record.properties.get(PROPERTY_REAL_TOPIC) == revive_topic and record.tags == CHECKPOINT_TAG:
                _take(runs, record.body, store, record.phy_offset)
        if read.next_begin_offset <= begin:
            break
        begin = read.next_begin_offset
    return runs


def _take(runs_of: dict[PoppedQueue, list[_Run]], body: bytes, store: MessageStore, phy_offset: int) -> None:
    try:
        point = decode_pop_checkpoint(body)
    except ValueError:
        return
    if not point.diffs or point.re_puts is not None or store.is_deleted(point.key.topic, phy_offset):
        return
    runs = runs_of.setdefault(PoppedQueue(point.key.topic, point.key.group, point.key.queue_id), [])
    run = _Run(point.key.start_offset, point.key.start_offset + max(point.diffs) + 1)
    if not runs or run.begin > runs[-1].end:
        runs.append(run)
    elif run.begin == runs[-1].end:
        runs[-1] = runs[-1]._replace(end=run.end)
    elif len(point.diffs) > 1:
        runs[:] = [run]
