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

from gantrymq.model.message import StoredMessage
from gantrymq.spark.plan.queue_view import QueueView
from gantrymq.spark.plan.store_view import StoreView
from gantrymq.tools.read.log_fingerprint import LogState, compare_log, fingerprint, stored_ms_of

Marks = dict[int, int]
"""Fingerprints of records by their physical offsets."""


def marks(view: StoreView, last_read: Iterable[int], before: Marks) -> Marks:
    """The marks of a log whose queues were read up to records at ``last_read``; empty if the last cannot be read."""
    phy_offsets = [offset for offset in last_read if view.begin <= offset < view.end]
    # Keep the earlier last record as well: the queue of that message may be missing for a while.
    phy_offsets += [offset for offset, mark in before.items() if offset == max(before) and _mark(view, offset) == mark]
    last = max(phy_offsets, default=-1)
    noted = {offset: _mark(view, offset) for offset in (view.begin, last) if offset >= 0}
    if noted.get(last) is None:
        return {}
    return {offset: mark for offset, mark in noted.items() if mark is not None}


def state_of(view: StoreView, noted: Marks) -> LogState:
    """Compare the log with the marks ``noted``."""
    return compare_log(view.begin, lambda offset: _mark(view, offset), noted)


def is_recreated(view: StoreView, queue: QueueView, offset: int, noted: Marks, state: LogState) -> bool:
    """Whether the message before ``offset`` is not the one that was read there; False if unknown."""
    if not queue.min_offset < offset <= queue.max_offset:
        return False
    last = max(noted)
    phy_offset = queue.phy_offset(offset - 1)
    if state is LogState.SAME and phy_offset <= last:
        return False
    message = _record(view, phy_offset)
    if message is None or (message.topic, message.queue_id, message.queue_offset) != (
        *(queue.topic, queue.queue_id),
        offset - 1,
    ):
        return False  # a damaged unit proves nothing
    return phy_offset > last or message.store_timestamp_ms > stored_ms_of(noted[last])


def is_past(queue: QueueView, noted: Marks) -> bool:
    """Whether all messages of a queue lie after what was read of its log; True for an empty queue."""
    return queue.min_offset >= queue.max_offset or queue.phy_offset(queue.min_offset) > max(noted)


def _mark(view: StoreView, phy_offset: int) -> int | None:
    message = _record(view, phy_offset)
    return None if message is None else fingerprint(message)


def _record(view: StoreView, phy_offset: int) -> StoredMessage | None:
    return view.message_at(phy_offset) if view.begin <= phy_offset < view.end else None
