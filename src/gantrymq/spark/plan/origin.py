"""What a read comes from, as batch and stream see it: queues with offsets, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import QueueKey

Offsets = dict[QueueKey, int]


class QueueExtent(NamedTuple):
    """The first queue offset that can be read, and the one behind the last."""

    min_offset: int
    max_offset: int


Extents = dict[QueueKey, QueueExtent]

Resets = dict[QueueKey, str]
"""Queues whose messages are not those that were read, and how that is known."""

Marks = dict[str, dict[int, int]]
"""For each broker the fingerprints of records of its log, by their physical offsets."""


class Origin(Protocol):
    """Store directories, or a live cluster."""

    def extents(self) -> Extents:
        """The wanted queues as they are now, sorted."""
        ...

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset where there is none."""
        ...

    def advance(self, start: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Offsets between both with ``rows`` messages in front of them; a few more where many have something there."""
        ...

    def advance_bytes(self, start: Offsets, latest: Offsets, size_bytes: int) -> Offsets:
        """Offsets between both with records of about ``size_bytes`` in front of them, and at least one message."""
        ...

    def marks(self, offsets: Offsets, before: Marks) -> Marks:
        """By what a later look knows the logs again that were read up to ``offsets``; ``before`` are earlier marks."""
        ...

    def resets(self, began: Offsets, marks: Marks) -> Resets:
        """Which queues have other messages in front of ``began`` than were read. Raises StoreError for a lost store.

        ``marks`` are those that were noted with ``began``.
        """
        ...

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> Sequence[Any]:
        """The partitions of what lies between both: picklable, each read by ``gantrymq.spark.read.batch``.

        ``whole`` says that this is all there is of the wanted queues.
        """
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...
