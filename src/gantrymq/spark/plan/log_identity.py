"""Recognizes a log and its queues at the next trigger, or when a query resumes from its checkpoint.

A checkpoint notes two records of each store by physical offset and fingerprint: the first one of the log, and the last
one that was read of it. If the last is still there, it is the same log. If only the first is, the log was cut after it.
Otherwise it is another log.

In the log that was read, all messages that were read lie at or before the last of them. A queue whose message before
the checkpoint's offset lies after that, or was stored later, was recreated in between.

Retention may have deleted both records. Then nothing can be compared, and the queues' first offsets show what is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from zlib import crc32

from gantrymq.model.message import StoredMessage
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.store_view import StoreView

_CRC_BITS = 20  # fits into a Java long together with a time in ms
_CRC_MASK = (1 << _CRC_BITS) - 1

Marks = dict[int, int]
"""Fingerprints of records by their physical offsets."""


class LogState(Enum):
    """The relation of a log to the one that was read."""

    SAME = "same"
    CUT = "cut"
    OTHER = "other"


def marks(view: StoreView, last_read: Iterable[int], before: Marks) -> Marks:
    """The marks of a log whose queues were read up to records at ``last_read``; empty if the last cannot be read."""
    places = [place for place in last_read if view.begin <= place < view.end]
    # Keep the earlier last record as well: the queue of that message may be missing for a while.
    places += [place for place, mark in before.items() if place == max(before) and _mark(view, place) == mark]
    last = max(places, default=-1)
    noted = {place: _mark(view, place) for place in (view.begin, last) if place >= 0}
    if noted.get(last) is None:
        return {}
    return {place: mark for place, mark in noted.items() if mark is not None}


def state_of(view: StoreView, noted: Marks) -> LogState:
    """Compare the log with the marks ``noted``."""
    first, last = min(noted), max(noted)
    if last < view.begin or _mark(view, last) == noted[last]:
        return LogState.SAME
    if first < last and _mark(view, first) == noted[first]:
        return LogState.CUT
    return LogState.OTHER


def is_recreated(view: StoreView, queue: QueueView, offset: int, noted: Marks, state: LogState) -> bool:
    """Whether the message before ``offset`` is not the one that was read there; False if unknown."""
    if not queue.min_offset < offset <= queue.max_offset:
        return False
    last = max(noted)
    place = queue.phy_offset(offset - 1)
    if state is LogState.SAME and place <= last:
        return False
    message = _record(view, place)
    if message is None or (message.topic, message.queue_id, message.queue_offset) != (
        *(queue.topic, queue.queue_id),
        offset - 1,
    ):
        return False  # a damaged unit proves nothing
    return place > last or message.store_timestamp_ms > noted[last] >> _CRC_BITS


def begins_after(queue: QueueView, noted: Marks) -> bool:
    """Whether all messages of a queue lie after what was read of its log; True for an empty queue."""
    return queue.min_offset >= queue.max_offset or queue.phy_offset(queue.min_offset) > max(noted)


def _mark(view: StoreView, phy_offset: int) -> int | None:
    message = _record(view, phy_offset)
    if message is None:
        return None
    fields = (message.topic, message.queue_id, message.queue_offset, message.body_crc, message.born_timestamp_ms)
    return message.store_timestamp_ms << _CRC_BITS | crc32(repr(fields).encode()) & _CRC_MASK


def _record(view: StoreView, phy_offset: int) -> StoredMessage | None:
    return view.message_at(phy_offset) if view.begin <= phy_offset < view.end else None
