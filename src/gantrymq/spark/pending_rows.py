"""The pending messages of a store, and the columns with their destination and due time (option ``pending``).

The driver finds them (:mod:`gantrymq.tools.pending.pending`) and gives each partition those in its part of the log, so
an executor only looks up the physical offsets of the records that it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.tools.arrow import LogBatch
    from gantrymq.tools.pending.waiting import PendingMessage


@dataclass(frozen=True, slots=True)
class PendingRows:
    """The records at ``phy_offsets`` (int64, rising) and what each waits for; picklable.

    ``kinds`` and ``topics`` (int32) are places in ``kind_names`` and ``topic_names``, ``queue_ids`` (int32) queues of
    these topics. ``due_ms`` (int64) is when the messages are due, ``counts`` (int32) how many they are: one, or the
    messages of a checkpoint of POP that are not acknowledged.
    """

    phy_offsets: NDArray[np.int64]
    kinds: NDArray[np.int32]
    topics: NDArray[np.int32]
    queue_ids: NDArray[np.int32]
    due_ms: NDArray[np.int64]
    counts: NDArray[np.int32]
    kind_names: tuple[str, ...]
    topic_names: tuple[str, ...]

    @classmethod
    def of(cls, messages: Iterable[PendingMessage]) -> PendingRows:
        """The records of these messages."""
        from gantrymq.tools.pending.waiting import PendingKind

        kind_numbers = {kind: number for number, kind in enumerate(PendingKind)}
        topic_numbers: dict[str, int] = {}
        offsets, due, small = array("q"), array("q"), array("i")
        for message in messages:
            offsets.append(message.phy_offset)
            due.append(message.due_ms)
            topic = topic_numbers.setdefault(message.topic, len(topic_numbers))
            small.extend((kind_numbers[message.kind], topic, message.queue_id))
        numbers = np.array(small, np.int32).reshape(-1, 3)
        phy_offsets, first, counts = np.unique(np.array(offsets, np.int64), return_index=True, return_counts=True)
        kinds, topics, queue_ids = numbers[first].T
        return cls(
            phy_offsets, kinds, topics, queue_ids, np.array(due, np.int64)[first], counts.astype(np.int32),
            tuple(PendingKind), tuple(topic_numbers),
        )  # fmt: skip

    def __len__(self) -> int:
        """The number of records."""
        return len(self.phy_offsets)

    def between(self, begin: int, end: int) -> PendingRows:
        """Those at physical offsets in [begin, end)."""
        low, high = np.searchsorted(self.phy_offsets, [begin, end])
        return PendingRows(
            self.phy_offsets[low:high], self.kinds[low:high], self.topics[low:high], self.queue_ids[low:high],
            self.due_ms[low:high], self.counts[low:high], self.kind_names, self.topic_names,
        )  # fmt: skip

    def apply(self, batch: LogBatch) -> LogBatch:
        """The records of a batch that are pending."""
        from gantrymq.kernels import codes

        return batch.take(np.isin(batch.row(codes.PHY_OFFSET), self.phy_offsets))

    def builders(self) -> dict[str, Callable[[LogBatch, pa.DataType], pa.Array]]:
        """The functions that make the columns of a batch of pending records."""
        from gantrymq.kernels import codes
        from gantrymq.tools.arrow import numbers_array, texts_array, timestamps_array

        def values_of(values: NDArray[Any], batch: LogBatch) -> NDArray[Any]:
            return values[np.searchsorted(self.phy_offsets, batch.row(codes.PHY_OFFSET))]

        kinds, topics = texts_array(self.kind_names), texts_array(self.topic_names)
        return {
            "pending_kind": lambda batch, kind: kinds.take(numbers_array(values_of(self.kinds, batch))),
            "pending_topic": lambda batch, kind: topics.take(numbers_array(values_of(self.topics, batch))),
            "pending_queue_id": lambda batch, kind: numbers_array(values_of(self.queue_ids, batch)),
            "pending_due": lambda batch, kind: timestamps_array(values_of(self.due_ms, batch), kind),
            "pending_count": lambda batch, kind: numbers_array(values_of(self.counts, batch)),
        }
