"""The messages that ordered pops have delivered and not yet committed, by topic, group and queue.

An ordered pop delivers a queue's messages to one consumer at a time: the next pop of the queue is blocked until every
message of the last one is acknowledged or visible again. Ordered pops have no checkpoints: this table is their whole
state. It is saved in ``config/consumerOrderInfo.json``, in RocketMQ's format.

Two details differ from Java. The lock of a queue is free when its last message is visible, not its first: a waiting pop
that is woken earlier would be blocked again. A next visible time is kept only for an offset that was delivered, so that
forged offsets take no memory.

Thread rule: the event loop's thread.

Source: QueueLevelConsumerManager (ConsumerOrderInfoManager before 5.5.0), QueueLevelConsumerOrderInfoLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import field

from gantrymq.broker.names import require_short
from gantrymq.broker.tables.versioned_table import persisted
from gantrymq.clock import Clock
from gantrymq.model.java import LONG_MAX
from gantrymq.model.receipt_handle import offset_order_count_entry, queue_order_count_entry
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long

ILLEGAL, NOTHING_TO_COMMIT = -1, -2  # of commit_and_next
MAX_OFFSETS = 64  # of a pop: the acknowledged ones are bits of a Java long
UNUSED_MS = 24 * 3600 * 1000

_SEPARATOR = "@"

LockFree = Callable[[str, str, int, int], None]
"""Is called with topic, group, queue and the time in ms at which the queue's lock becomes free."""


class OrderInfo(Body, kw_only=True):
    """The last ordered pop of a queue. Times are in ms.

    ``offsets`` begins with the first queue offset; the others are relative to it. ``next_visible_time_ms`` and
    ``consumed_count`` are by queue offset; a message that is delivered for the first time is not in the latter. Bit i
    of ``committed`` says that message i is acknowledged.
    """

    attempt_id: str | None = field(name="a", default=None)
    committed: Long = field(name="cm", default=0)
    invisible_ms: Long | None = field(name="i", default=None)
    last_consume_ms: Long = field(name="l", default=0)
    offsets: list[Long] | None = field(name="o", default=None)
    consumed_count: dict[int, Int] | None = field(name="oc", default=None)
    next_visible_time_ms: dict[int, Long] | None = field(name="ot", default=None)
    pop_time_ms: Long = field(name="popTime", default=0)

    def __post_init__(self) -> None:
        """Raises ValueError (in a decoder: ValidationError) for more offsets than ``committed`` has bits."""
        if len(self.offsets or ()) > MAX_OFFSETS:
            raise ValueError(f"an ordered pop of {len(self.offsets or ())} messages, more than {MAX_OFFSETS}")

    def queue_offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        if not self.offsets:
            return []
        first = self.offsets[0]
        return [first, *(first + distance for distance in self.offsets[1:])]

    def commit(self, at: int) -> None:
        """Mark message ``at`` as acknowledged."""
        bits = self.committed | 1 << at
        self.committed = bits - (1 << MAX_OFFSETS) if bits >= 1 << (MAX_OFFSETS - 1) else bits  # a Java long

    def next_offset(self) -> int:
        """The offset of the first message that is not acknowledged. The group commits it."""
        pending = next(self._pending(), None)
        return self.queue_offsets()[-1] + 1 if pending is None else pending

    def is_blocked(self, attempt_id: str | None, now_ms: int) -> bool:
        """Whether another pop must wait (needBlock). A pop with the same attempt id does not wait."""
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return any(self._visible_time_ms(offset) > now_ms for offset in self._pending())

    def lock_free_timestamp(self, now_ms: int) -> int | None:
        """The time at which no message blocks the queue, at least now. None if nothing was delivered."""
        if not self.offsets:
            return None
        return max((self._visible_time_ms(offset) for offset in self._pending()), default=now_ms)

    def _pending(self) -> Iterator[int]:
        return (offset for at, offset in enumerate(self.queue_offsets()) if not self.committed >> at & 1)

    def _visible_time_ms(self, offset: int) -> int:
        usual_ms = self.pop_time_ms + (self.invisible_ms or 0)
        return (self.next_visible_time_ms or {}).get(offset, usual_ms)


class _OrderInfoTable(Body, kw_only=True):
    order_info_count: int = 0
    ordered_consumption_level: str = "QUEUE"
    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)


class ConsumerOrderInfo:
    """The table of ordered pops. ``edits`` counts changes, so that a caller can see whether to save."""

    def __init__(self, clock: Clock, on_lock_free_at: LockFree | None = None) -> None:
        self._clock, self._on_lock_free_at = clock, on_lock_free_at
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self.edits = 0

    def __len__(self) -> int:
        return len(self._table)

    def get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """The last ordered pop of a queue, or None."""
        return self._table.get(_key(topic, group), {}).get(queue_id)

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> list[str]:
        """Record the messages that a pop delivers. Returns the entries of its orderCountInfo.

        ``offsets`` are queue offsets, 1 to MAX_OFFSETS. Raises RemotingError for a long attempt id.
        """
        require_short("attempt id", attempt_id)
        first = offsets[0]
        made = OrderInfo(
            attempt_id=attempt_id,
            invisible_ms=invisible_ms,
            last_consume_ms=self._clock.now_ms(),
            offsets=[first, *(offset - first for offset in offsets[1:])],
            pop_time_ms=pop_time_ms,
        )
        queues = self._table.setdefault(_key(topic, group), {})
        last = queues.get(queue_id)
        if last is not None:
            made.consumed_count = _merged_count(last, made)
        queues[queue_id] = made
        self._changed(topic, group, queue_id, made)
        counts = made.consumed_count or {}
        min_count = min(counts.values()) if len(counts) == len(offsets) else 0
        entries = [offset_order_count_entry(topic, queue_id, offset, count) for offset, count in counts.items()]
        return [*entries, queue_order_count_entry(topic, queue_id, min_count)]

    def check_block(self, attempt_id: str | None, topic: str, group: str, queue_id: int, invisible_ms: int) -> bool:
        """Whether a pop of the queue must wait. ``invisible_ms`` is used if the last pop has no invisible time."""
        info = self.get(topic, group, queue_id)
        if info is None:
            return False
        if info.offsets and (info.invisible_ms is None or info.invisible_ms <= 0 < invisible_ms):
            info.invisible_ms = invisible_ms
            self.edits += 1
        return info.is_blocked(attempt_id, self._clock.now_ms())

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the last pop of a queue."""
        if self._table.get(_key(topic, group), {}).pop(queue_id, None) is not None:
            self.edits += 1

    def remove(self, topic: str, group: str) -> None:
        """Forget the pops of a group from a topic."""
        if self._table.pop(_key(topic, group), None) is not None:
            self.edits += 1

    def commit_and_next(self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time_ms: int) -> int:
        """Acknowledge a message. Returns the group's offset to commit, ILLEGAL or NOTHING_TO_COMMIT.

        NOTHING_TO_COMMIT means that the message was delivered again since; ILLEGAL that the pop did not deliver it.
        """
        info = self.get(topic, group, queue_id)
        if info is None:
            return queue_offset + 1
        offsets = info.queue_offsets()
        if not offsets:
            return ILLEGAL
        if pop_time_ms != info.pop_time_ms:
            return NOTHING_TO_COMMIT
        if queue_offset not in offsets:
            return ILLEGAL
        info.commit(offsets.index(queue_offset))
        self._changed(topic, group, queue_id, info)
        return info.next_offset()

    def update_next_visible_time(
        self, topic: str, group: str, queue_id: int, queue_offset: int, pop_time_ms: int, next_visible_time_ms: int
    ) -> None:
        """Set when a message is visible again. A message that was delivered again since keeps its time."""
        info = self.get(topic, group, queue_id)
        if info is None or pop_time_ms != info.pop_time_ms or queue_offset not in info.queue_offsets():
            return
        if info.next_visible_time_ms is None:
            info.next_visible_time_ms = {}
        info.next_visible_time_ms[queue_offset] = min(next_visible_time_ms, LONG_MAX)
        self._changed(topic, group, queue_id, info)

    def auto_clean(self, read_queues: Callable[[str], int | None], has_group: Callable[[str], bool]) -> None:
        """Drop the entries of deleted topics, groups and queues, and those unused for UNUSED_MS.

        ``read_queues`` returns a topic's number of queues, None if there is no such topic.
        """
        oldest_ms = self._clock.now_ms() - UNUSED_MS
        for key, queues in list(self._table.items()):
            topic, separator, group = key.partition(_SEPARATOR)
            if not separator or _SEPARATOR in group:
                continue
            count = read_queues(topic) if has_group(group) else None
            for queue_id, info in list(queues.items()):
                if count is None or queue_id >= count or info.last_consume_ms < oldest_ms:
                    del queues[queue_id]
                    self.edits += 1
            if not queues:
                del self._table[key]
                self.edits += 1

    # The file

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of consumerOrderInfo.json. It may run on any thread."""
        copied = msgspec.msgpack.encode(self._table)
        return partial(_content, copied)

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of consumerOrderInfo.json. Raises msgspec.ValidationError."""
        self._table = msgspec.convert(value, _OrderInfoTable, strict=False).table
        for key, queues in self._table.items():
            topic, _, group = key.partition(_SEPARATOR)
            for queue_id, info in queues.items():
                self._report_lock(topic, group, queue_id, info)

    def _changed(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        self.edits += 1
        self._report_lock(topic, group, queue_id, info)

    def _report_lock(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        if self._on_lock_free_at is not None:
            free_at_ms = info.lock_free_timestamp(self._clock.now_ms())
            if free_at_ms is not None:
                self._on_lock_free_at(topic, group, queue_id, free_at_ms)


def _key(topic: str, group: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


def _merged_count(last: OrderInfo, made: OrderInfo) -> dict[int, int]:
    """How often the messages of ``made`` were delivered before (mergeOffsetConsumedCount)."""
    counts = last.consumed_count or {}
    if last.attempt_id is not None and last.attempt_id == made.attempt_id:
        return counts
    before = set(last.queue_offsets())
    return {offset: counts.get(offset, 0) + 1 for offset in made.queue_offsets() if offset in before}


_decode = msgspec.msgpack.Decoder(dict[str, dict[int, OrderInfo]]).decode


def _content(copied: bytes) -> dict[str, Any]:
    table = _decode(copied)
    content: dict[str, Any] = persisted(_OrderInfoTable(order_info_count=len(table), table=table))
    return content
