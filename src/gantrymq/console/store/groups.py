"""Groups of a store and how far they are behind: the committed offsets of ``config/consumerOffset.json``.

A broker writes this file every few seconds, so the last commits of a running broker are missing. The offsets of pulls
without a commit, of light queues and of static topics are left out.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.group_offsets import GroupTable


@dataclass(frozen=True, slots=True)
class StoreQueueLag:
    """The progress of a group in one queue. ``offset`` is its next message; ``end`` is None if there is no queue."""

    topic: str
    queue_id: int
    offset: int
    begin: int | None
    end: int | None

    @property
    def behind(self) -> int:
        """How many messages the group has not consumed. Those that retention has deleted do not count."""
        return max(self.end - max(self.offset, self.begin or 0), 0) if self.end is not None else 0

    @property
    def remark(self) -> str:
        """What is odd about the offset; empty if nothing is."""
        if self.end is None:
            return "the store has no such queue"
        if self.offset > self.end:
            return f"past the end of the queue: the next {self.offset - self.end:,} messages would be skipped"
        if self.begin is not None and self.offset < self.begin:
            return f"{self.begin - self.offset:,} messages were deleted before they were consumed"
        return ""


@dataclass(slots=True)
class StoreGroupLag:
    """The progress of a group over all its queues, in messages."""

    group: str
    behind: int = 0
    queues: list[StoreQueueLag] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        """The topics that the group consumes, sorted."""
        return sorted({queue.topic for queue in self.queues})


def lags_of(tables: Iterable[GroupTable], queues: Mapping[str, list[ConsumeQueue]]) -> dict[str, StoreGroupLag]:
    """The progress of each group, by name. A queue that occurs twice in a table counts once."""
    lags: dict[str, StoreGroupLag] = {}
    seen: set[tuple[str, str, int]] = set()
    for group, topic, offsets in tables:
        lag = lags.setdefault(group, StoreGroupLag(group))
        known = {queue.queue_id: queue for queue in queues.get(topic, ())}
        for queue_id, offset in offsets:
            if (group, topic, queue_id) in seen:
                continue
            seen.add((group, topic, queue_id))
            queue = known.get(queue_id)
            ends = (queue.min_offset, queue.max_offset) if queue is not None else (None, None)
            queue_lag = StoreQueueLag(topic, queue_id, offset, *ends)
            lag.queues.append(queue_lag)
            lag.behind += queue_lag.behind
    for lag in lags.values():
        lag.queues.sort(key=lambda queue_lag: (queue_lag.topic, queue_lag.queue_id))
    return lags
