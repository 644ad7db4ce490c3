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

    def partitions(
        self, start: Offsets, end: Offsets, rows: RowFilter | None = None, *, whole: bool = False
    ) -> Sequence[Any]:
        """The partitions of what lies between both: picklable, each read by ``gantrymq.spark.reading``.

        ``whole`` says that this is all there is of the wanted queues.
        """
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...
