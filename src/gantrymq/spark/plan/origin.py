"""The origin of a read as batch and stream see it: queues with offsets, in stores or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from gantrymq.spark.selection import RowFilter
from gantrymq.tools.queue_key import QueueKey

Offsets = dict[QueueKey, int]


class QueueExtent(NamedTuple):
    """The first readable queue offset, and the offset after the last one."""

    min_offset: int
    max_offset: int


Extents = dict[QueueKey, QueueExtent]

Resets = dict[QueueKey, str]
"""Queues whose messages are not those that were read, with the reason."""

Marks = dict[str, dict[int, int]]
"""For each broker the fingerprints of records of its log, by physical offset."""


class Origin(Protocol):
    """Store directories, or a live cluster."""

    def extents(self) -> Extents:
        """The selected queues now, sorted."""
        ...

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int:
        """The first queue offset stored at ``timestamp_ms`` or later; the max offset if there is none."""
        ...

    def advance(self, start: Offsets, latest: Offsets, rows: int) -> Offsets:
        """The offsets after ``rows`` messages from ``start`` on, at most ``latest``.

        With many queues there may be more messages, because each queue with messages gives at least one.
        """
        ...

    def advance_bytes(self, start: Offsets, latest: Offsets, size_bytes: int) -> Offsets:
        """The offsets after about ``size_bytes`` of records from ``start`` on, and after one message at least."""
        ...

    def marks(self, offsets: Offsets, before: Marks) -> Marks:
        """Marks by which a later refresh recognizes the logs, which were read up to ``offsets``.

        ``before`` are earlier marks.
        """
        ...

    def resets(self, began: Offsets, marks: Marks) -> Resets:
        """The queues that have other messages before ``began`` than were read. Raises StoreError for a missing store.

        ``marks`` are those that were noted with ``began``.
        """
        ...

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> Sequence[Any]:
        """The partitions of the messages from ``start`` to before ``end``.

        A partition can be pickled; ``gantrymq.spark.read.batch`` reads it. ``whole`` says that these are all messages
        of the selected queues.
        """
        ...

    def close(self) -> None:
        """Close what is open."""
        ...
