"""Reads messages by queue offset, physical offset, message id, key and time, for the writer and the reader.

Thread rule: any number of threads, while one writer appends and dispatches.

Source: DefaultMessageStore.getMessage, lookMessageByOffset, queryMessage and ConsumeQueue.getOffsetInQueueByTime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import has_index_key
from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry
from gantrymq.format.queue_ext import MAX_ADDRESS
from gantrymq.model.message import StoredMessage, parse_message_id, tag_code
from gantrymq.model.status import GetMessageStatus
from gantrymq.store.index.index_service import EVERYTHING_MS, IndexService
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.consume_queues import ConsumeQueues

MAX_PULL_BYTES = 128 << 20
_ENTRIES_A_READ = 512

T = TypeVar("T")


@dataclass(slots=True)
class GetMessageResult:
    """The result of a get: ``messages`` in queue order, and the queue offset at which to continue."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    messages: list[StoredMessage] = field(default_factory=list)


class TagFilter:
    """A tag expression: ``*``, or tags joined by ``||``. Hash codes are compared first, then the text."""

    def __init__(self, expression: str) -> None:
        self._tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        self.codes = frozenset(tag_code(tag) for tag in self._tags)
        self.matches_all = not self._tags or "*" in self._tags

    def matches_tags(self, tags: str) -> bool:
        """Whether a message with these tags matches."""
        return self.matches_all or tags in self._tags


class MessageLookup:
    """Reads from a log and its queues. ``index()`` is called only when a query comes."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Callable[[], IndexService | None],
        config: MessageStoreConfig,
    ) -> None:
        self.log = log
        self.queues = queues
        self._index = index
        self.config = config

    def get(
        self, topic: str, queue_id: int, offset: int, max_msgs: int, max_bytes: int, tags: TagFilter | None
    ) -> GetMessageResult:
        """Return messages of a queue from ``offset`` on (DefaultMessageStore.getMessage)."""
        queue, result = self.begin(topic, queue_id, offset)
        if queue is not None:
            self._fill(queue, result, max_msgs, min(max(max_bytes, 100), MAX_PULL_BYTES), tags)
        return result

    def begin(self, topic: str, queue_id: int, offset: int) -> tuple[ConsumeQueue | None, GetMessageResult]:
        """Return the queue if it has a unit at ``offset``, and a result with the queue's bounds.

        Without such a unit the queue is None, and the status of the result has the reason.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return None, GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return None, GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return None, GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return None, GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return None, GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        return queue, GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, low, high)

    def _fill(
        self, queue: ConsumeQueue, result: GetMessageResult, max_msgs: int, max_bytes: int, tags: TagFilter | None
    ) -> None:
        total_bytes, tags = 0, None if tags is None or tags.matches_all else tags
        if tags is None:
            total_bytes = self._fill_together(queue, result, max_msgs, max_bytes)
            if len(result.messages) >= max(max_msgs, 1) or result.next_begin_offset >= result.max_offset:
                return
        # The number of examined units is limited: a filter that matches nothing must not hold a caller for ever.
        look_at = max(self.config.max_filter_message_size_bytes // UNIT_SIZE, max_msgs)
        gone_until = -1
        # Without a filter, read only the units that are returned and one more, which shows whether the queue continues.
        at_once = _ENTRIES_A_READ if tags is not None else min(max(max_msgs, 0) + 1, _ENTRIES_A_READ)
        for offset, entry in self.iterate(queue, result.next_begin_offset, result.max_offset, at_once):
            full = len(result.messages) >= max_msgs or total_bytes + entry.size_bytes > max_bytes
            if look_at <= 0 or (full and result.messages):
                return
            look_at -= 1
            result.next_begin_offset = offset + 1
            if entry.phy_offset < gone_until or (tags is not None and not queue.may_be(entry.tags_code, tags.codes)):
                continue
            message = self.log.read(entry.phy_offset, entry.size_bytes)
            if message is None:
                if not result.messages:
                    result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                if entry.phy_offset < self.log.min_offset:
                    gone_until = self.log.roll_next_file(entry.phy_offset)
            elif tags is None or tags.matches_tags(message.tags):
                result.messages.append(message)
                result.status = GetMessageStatus.FOUND
                total_bytes += entry.size_bytes

    def _fill_together(self, queue: ConsumeQueue, result: GetMessageResult, max_msgs: int, max_bytes: int) -> int:
        """Read the next messages without a filter in one step, if all of them are there. Returns their size in bytes.

        If one is missing, the result does not change, and the units are read one by one.
        """
        begin = result.next_begin_offset
        wanted = min(max(max_msgs, 1), _ENTRIES_A_READ, result.max_offset - begin)
        units = list(queue.units(begin, wanted))
        if not units:
            return 0
        sizes = [size for _, size, _ in units]
        total_bytes = sum(sizes)
        while total_bytes > max_bytes and len(sizes) > 1:
            total_bytes -= sizes.pop()
        offsets = [phy_offset for phy_offset, _, _ in units[: len(sizes)]]
        messages = self.log.read_each(offsets, sizes)
        if not all(messages):
            return 0
        result.messages, result.status = cast(list[StoredMessage], messages), GetMessageStatus.FOUND
        result.next_begin_offset = begin + len(messages)
        return total_bytes

    def iterate(
        self, queue: ConsumeQueue, begin: int, end: int, at_once: int = _ENTRIES_A_READ
    ) -> Iterator[tuple[int, QueueEntry]]:
        """Yield (queue offset, unit) from ``begin`` up to ``end`` or the end of the queue, read ``at_once`` a time."""
        while begin < end:
            units = queue.entries(begin, min(end - begin, at_once))
            if not len(units):
                return
            for unit in units.tolist():
                yield begin, QueueEntry(*unit)
                begin += 1

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, or 0 if it does not exist.

        RocketMQ creates the queue when it looks it up.
        """
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last unit of a queue, or 0 if the queue does not exist."""
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def unit_at(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size in bytes, tags code) at a queue offset, or None."""
        queue = self.queues.get(topic, queue_id)
        entry = queue.entry(offset) if queue is not None and offset >= 0 else None
        if queue is None or entry is None or offset >= queue.max_offset:
            return None
        return entry.phy_offset, entry.size_bytes, queue.tags_code(entry.tags_code)

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time (ms) of the message at a queue offset, or -1 if there is no message."""
        unit = self.unit_at(topic, queue_id, offset)
        return self.log.pickup_store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def has_match(self, topic: str, queue_id: int, begin: int, end: int, tags_codes: Collection[int] | None) -> bool:
        """Whether a unit from ``begin`` to ``end`` may have one of the ``tags_codes`` (None: any)."""
        queue = self.queues.get(topic, queue_id)
        if queue is None or begin >= end:
            return False
        if tags_codes is None:
            return True
        return any(queue.may_be(entry.tags_code, tags_codes) for _, entry in self.iterate(queue, begin, end))

    def estimate_matches(
        self,
        topic: str,
        queue_id: int,
        begin: int,
        end: int,
        tags_codes: Collection[int],
        *,
        most_units: int,
        most_matches: int,
    ) -> int:
        """Estimate how many units from ``begin`` to ``end`` have one of the ``tags_codes`` (estimateMessageCount).

        The number is exact unless a limit ends the count: ``most_units`` that are read, or ``most_matches`` found.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        wanted = end - begin
        begin = max(begin, queue.min_offset)
        read = matches = 0
        codes = np.array(list(tags_codes), np.int64)
        while read < min(wanted, most_units) and matches <= most_matches:
            units = queue.entries(begin + read, min(wanted, most_units) - read)[:_ENTRIES_A_READ]
            if not len(units):
                break
            unit_codes = units["tags_code"]
            matches += int(np.count_nonzero(np.isin(unit_codes, codes)))
            matches += sum(queue.may_be(int(code), tags_codes) for code in unit_codes[unit_codes <= MAX_ADDRESS])
            read += len(units)
        return matches if read in (0, wanted) else matches * wanted // read

    def by_offset(self, phy_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset, or None (lookMessageByOffset)."""
        return self.log.read(phy_offset)

    def by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the message with an offset message id, or None. Raises ValueError if ``msg_id`` is not such an id."""
        return self.log.read(parse_message_id(msg_id)[1])

    def query_offsets(self, topic: str, key: str, begin_ms: int, end_ms: int, max_num: int | None) -> list[int]:
        """Return the physical offsets that the index has for a key, newest first.

        At most ``max_num`` are returned (None: maxMsgsNumBatch).
        """
        index = self._index()
        limit = self.config.max_msgs_num_batch if max_num is None else max(max_num, 0)
        return index.query(topic, key, limit, begin_ms, end_ms) if index is not None else []

    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = EVERYTHING_MS,
        max_num: int | None = None,
        *,
        exact: bool = True,
    ) -> list[StoredMessage]:
        """Return the messages with a key, newest first; without ``exact`` also those that only share its hash."""

        def find(max_count: int | None) -> list[int]:
            return self.query_offsets(topic, key, begin_ms, end_ms, max_count)

        def read(offsets: list[int]) -> Iterator[StoredMessage | None]:
            for message in self.log.read_at(offsets):
                has_key = message is not None and has_index_key(message.topic, message.properties, topic, key)
                yield message if has_key else None

        if not exact:
            return [message for message in self.log.read_at(find(max_num)) if message is not None]
        return take_exact(find, read, self.config.max_msgs_num_batch if max_num is None else max(max_num, 0))

    @property
    def newest_indexed(self) -> tuple[int, int]:
        """The store time (ms) and physical offset of the newest record in the index; 0 and 0 without one."""
        index = self._index()
        return index.newest if index is not None else (0, 0)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first queue offset whose message was stored at ``timestamp_ms`` or later, or max_offset.

        Returns 0 if the queue does not exist.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            entry = queue.real_entry(middle)
            stored = self.log.pickup_store_timestamp(entry.phy_offset, entry.size_bytes) if entry else -1
            if stored < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low


def take_exact(
    find: Callable[[int], list[int]], read: Callable[[list[int]], Iterable[T | None]], max_count: int
) -> list[T]:
    """Return the first ``max_count`` values that ``read`` has for the offsets of ``find``, which takes a limit.

    Offsets without a value, such as those of another key with the same hash, do not count.
    """
    limit = max_count
    while True:
        offsets = find(limit)
        values = [value for value in read(offsets) if value is not None]
        if len(values) >= max_count or len(offsets) < limit:
            return values[:max_count]
        limit *= 4


class ReadingStore:
    """The read methods of an open store. Every method may be called from any thread.

    ``lookup`` gives lower-level access: units of queues, and bytes of the log.
    """

    lookup: MessageLookup

    @property
    def min_phy_offset(self) -> int:
        """The first physical offset, or -1 while the log is empty."""
        return self.lookup.log.min_offset

    @property
    def max_phy_offset(self) -> int:
        """The physical offset after the last record that can be read."""
        return self.lookup.log.max_offset

    def queues(self) -> list[tuple[str, int, int, int]]:
        """Return (topic, queue id, min offset, max offset) of every queue, sorted."""
        queues = self.lookup.queues
        return [(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in queues]

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, or 0 if the store has no such queue."""
        return self.lookup.min_offset(topic, queue_id)

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last readable message of a queue, or 0 if the store has no such queue."""
        return self.lookup.max_offset(topic, queue_id)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_msgs: int = 32,
        max_bytes: int = MAX_PULL_BYTES,
        tags: str = "*",
    ) -> GetMessageResult:
        """Return messages of a queue from ``offset`` on that match ``tags`` ("A || B"), within both limits."""
        return self.lookup.get(topic, queue_id, offset, max_msgs, max_bytes, TagFilter(tags))

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset, or None."""
        return self.lookup.by_offset(phy_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage | None:
        """Return the message with an offset message id, or None. Raises ValueError if ``msg_id`` is not such an id."""
        return self.lookup.by_id(msg_id)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = EVERYTHING_MS,
        max_num: int | None = None,
        exact: bool = True,
    ) -> list[StoredMessage]:
        """Return the messages with a key that were stored between ``begin_ms`` and ``end_ms``, newest first.

        At most ``max_num`` are returned (None: maxMsgsNumBatch). Without ``exact`` messages of any topic and key with
        the same hash are returned too, as RocketMQ's broker answers.
        """
        return self.lookup.query(topic, key, begin_ms, end_ms, max_num, exact=exact)

    def query_offsets(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = EVERYTHING_MS, max_num: int | None = None
    ) -> list[int]:
        """Return the physical offsets that the index has for a key, newest first. Some may point to removed records."""
        return self.lookup.query_offsets(topic, key, begin_ms, end_ms, max_num)

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time (ms) of the message at a queue offset, or -1 if there is no message."""
        return self.lookup.store_timestamp_ms(topic, queue_id, offset)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first queue offset stored at ``timestamp_ms`` or later, or max_offset if there is none."""
        return self.lookup.offset_at(topic, queue_id, timestamp_ms)
