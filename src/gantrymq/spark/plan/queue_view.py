"""One queue of a store as the driver sees it: the units at the opening, and the records that came since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_units import Units
from gantrymq.store.queue.unit_source import MappedUnits, UnitSource


class QueueView:
    """The units of a consume queue up to where the store was opened, and the tail after them."""

    def __init__(self, topic: str, queue_id: int, stored: UnitSource | None, min_offset: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.stored = stored
        self.min_offset = min_offset
        self._stored_max = stored.end if stored is not None else 0
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
        """The physical offset of a message; for a filler, of the nearest one before it; -1 if there is none."""
        if queue_offset >= self._stored_max:
            return int(self._tail[queue_offset - self._stored_max])
        unit = self.stored.message_at_or_before(queue_offset) if self.stored is not None else None
        return -1 if unit is None else unit.phy_offset

    @property
    def last_message(self) -> tuple[int, int]:
        """The physical offset and the end of the last message; -1 for what is unknown without reading a file.

        Files are not read, because they may be those of another store by now.
        """
        if not len(self._tail) and isinstance(self.stored, MappedUnits):
            return -1, self.stored.queue.max_physic_offset
        return self.phy_offset(self.max_offset - 1), -1

    def is_filler(self, queue_offset: int) -> bool:
        """Whether a slot is a filler."""
        return self.stored is not None and self.stored.unit(queue_offset).is_filler

    def phy_offsets(self, low: int, high: int) -> NDArray[np.int64]:
        """The physical offsets (int64, rising) of the messages of [low, high).

        A filler has the offset of the message before it.
        """
        tail = self._tail[max(low - self._stored_max, 0) : max(high - self._stored_max, 0)]
        phy_offsets = np.concatenate((self._stored_units(low, high).phy_offsets, tail))
        if len(phy_offsets):
            phy_offsets[0] = self.phy_offset(low)  # the message before a filler may lie outside of [low, high)
        return np.maximum.accumulate(phy_offsets)

    def sizes(self, low: int, high: int, tail_sizes: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Any:
        """The sizes in bytes (int64) of the records of [low, high); 0 for fillers.

        ``tail_sizes`` gives the sizes of records in the tail.
        """
        units = self._stored_units(low, high)
        tail = self._tail[max(low - self._stored_max, 0) : max(high - self._stored_max, 0)]
        return np.concatenate((np.where(units.is_message, units.sizes, 0), tail_sizes(tail)))

    def _stored_units(self, low: int, high: int) -> Units:
        """The stored units of [low, high)."""
        end = min(high, self._stored_max)
        return self.stored.units(low, end) if self.stored is not None and low < end else Units(b"")

    def first_at(self, phy_offset: int, low: int, high: int) -> int:
        """The first queue offset of [low, high) whose message lies at or after ``phy_offset``, else ``high``."""
        return low + bisect_left(range(low, high), phy_offset, key=self.phy_offset)
