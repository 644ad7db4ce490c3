"""The reading half of a store's face, the same for the writer and the reader."""

from __future__ import annotations

from gantrymq.model.message import StoredMessage
from gantrymq.store.index_service import EVERYTHING_MS
from gantrymq.store.lookup import MAX_PULL_BYTES, GetMessageResult, MessageLookup, TagFilter


class ReadingStore:
    """What can be asked of an open store. Every method may be called from any thread.

    ``lookup`` reads the same below this: units of queues, and bytes of the log.
    """

    lookup: MessageLookup

    @property
    def min_phy_offset(self) -> int:
        """The first physical offset; -1 while the log is empty."""
        return self.lookup.log.min_offset

    @property
    def max_phy_offset(self) -> int:
        """Behind the last record that can be read."""
        return self.lookup.log.max_offset

    def queues(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, min offset, max offset) of every queue, sorted."""
        queues = self.lookup.queues
        return [(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in queues]

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue; 0 where the store has no such queue."""
        return self.lookup.min_offset(topic, queue_id)

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Behind the last message of a queue that can be read; 0 where the store has no such queue."""
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
        """Messages of a queue from ``offset`` on that match ``tags`` ("A || B"), within both limits."""
        return self.lookup.get(topic, queue_id, offset, max_msgs, max_bytes, TagFilter(tags))

    def message_at(self, phy_offset: int) -> StoredMessage | None:
        """The message at a physical offset, or None."""
        return self.lookup.by_offset(phy_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage | None:
        """The message of an offset message id, or None; raises ValueError where that is no such id."""
        return self.lookup.by_id(msg_id)

    def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = EVERYTHING_MS, max_num: int | None = None
    ) -> list[StoredMessage]:
        """Messages under a key within a time, newest first, at most ``max_num`` (maxMsgsNumBatch)."""
        return self.lookup.query(topic, key, begin_ms, end_ms, max_num)

    def query_offsets(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = EVERYTHING_MS, max_num: int | None = None
    ) -> list[int]:
        """What the index answers: physical offsets, newest first; some may point at what is gone."""
        return self.lookup.query_offsets(topic, key, begin_ms, end_ms, max_num)

    def store_timestamp_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored; -1 where there is none."""
        return self.lookup.store_timestamp_ms(topic, queue_id, offset)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; max_offset where there is none."""
        return self.lookup.offset_at(topic, queue_id, timestamp_ms)
