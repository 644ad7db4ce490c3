"""One queue of a store as the driver sees it: the units at the opening, and the records that came since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE
from gantrymq.spark.plan.remote_store import RemoteQueue
from gantrymq.store.queue.consume_queue import ConsumeQueue


class QueueView:
    """The units of a consume queue up to where the store was opened, and the tail after them."""

    def __init__(self, topic: str, queue_id: int, stored: ConsumeQueue | RemoteQueue | None) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.stored = stored
        self.min_offset = stored.min_offset if stored is not None else 0
        self._stored_max = stored.max_offset if stored is not None else 0
        self._tail: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def max_offset(self) -> int:
        """The queue offset after the last message."""
        return self._stored_max + len(self._tail)

    @property
    def tail(self) -> range:
        """The queue offsets of the messages since the store was opened."""
        return range(self._stored_max, self.max_offset)

    def take_tail(self, first_offset: int, phy_offsets: NDArray[np.int64]) -> bool:
        """Replace the tail. Returns False if it does not follow the stored units."""
        if self.stored is None and not len(self._tail):
            self.min_offset = self._stored_max = first_offset
        if first_offset != self._stored_max:
            return False
        self._tail = phy_offsets
        return True

    def phy_offset(self, queue_offset: int) -> int:
        """The physical offset of a message; for an empty slot, of the nearest one before it; -1 if there is none."""
        if queue_offset >= self._stored_max:
            return int(self._tail[queue_offset - self._stored_max])
        unit = self.stored.real_entry(queue_offset) if self.stored is not None else None
        return -1 if unit is None else unit.phy_offset

    @property
    def last_message(self) -> tuple[int, int]:
        """The physical offset and the end of the last message; -1 for what is unknown without reading a file.

        Files are not read, because they may be those of another store by now.
        """
        if not len(self._tail) and isinstance(self.stored, ConsumeQueue):
            return -1, self.stored.max_physic_offset
        return self.phy_offset(self.max_offset - 1), -1

    def is_empty(self, queue_offset: int) -> bool:
        """Whether a slot is empty."""
        unit = self.stored.entry(queue_offset) if self.stored is not None else None
        return unit is not None and unit.size_bytes == BLANK_UNIT_SIZE

    def phy_offsets(self, low: int, high: int) -> NDArray[np.int64]:
        """The physical offsets (int64, rising) of the messages of [low, high).

        An empty slot has the offset of the message before it.
        """
        parts: list[NDArray[np.int64]] = [
            units["phy_offset"].astype(np.int64) for units in self._stored_units(low, high)
        ]
        parts.append(self._tail[max(low - self._stored_max, 0) : max(high - self._stored_max, 0)])
        places = np.concatenate(parts)
        if len(places):
            places[0] = self.phy_offset(low)  # the message before an empty slot may lie outside of [low, high)
        return np.maximum.accumulate(places)

    def sizes(self, low: int, high: int, tail_sizes: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Any:
        """The sizes in bytes (int64) of the records of [low, high); 0 for empty slots.

        ``tail_sizes`` gives the sizes of records in the tail.
        """
        parts: list[NDArray[np.int64]] = []
        for units in self._stored_units(low, high):
            sizes = units["size"].astype(np.int64)
            parts.append(np.where((sizes < 0) | (sizes == BLANK_UNIT_SIZE), 0, sizes))
        parts.append(tail_sizes(self._tail[max(low - self._stored_max, 0) : max(high - self._stored_max, 0)]))
        return np.concatenate(parts)

    def _stored_units(self, low: int, high: int) -> Iterator[NDArray[np.void]]:
        """Yield the stored units of [low, high) in order, a part of a file at a time."""
        at, stored_end = low, min(high, self._stored_max)
        while self.stored is not None and at < stored_end:
            units = self.stored.entries(at, stored_end - at)
            if not len(units):
                return
            yield units
            at += len(units)

    def first_at(self, phy_offset: int, low: int, high: int) -> int:
        """The first queue offset of [low, high) whose message lies at or after ``phy_offset``, else ``high``."""
        return low + bisect_left(range(low, high), phy_offset, key=self.phy_offset)
