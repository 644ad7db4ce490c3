"""The units of one queue, wherever they are: in the mapped files of an open store, on a failing disk, or remote.

Every reader of queues outside of the store works on a :class:`UnitSource`. Its adapters are :class:`MappedUnits` here,
``QueueFiles`` of tools/ (files of which some may be missing, short or unreadable) and ``RemoteUnits`` of spark/.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left

import numpy as np

from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry
from gantrymq.format.queue_units import UNIT_DTYPE, Units
from gantrymq.store.queue.consume_queue import ConsumeQueue

_UNITS_A_LOOK = 1 << 12


class UnitSource(ABC):
    """The slots [first, end) of a queue. A slot outside of them, or in a missing file, reads as unwritten."""

    @property
    @abstractmethod
    def first(self) -> int:
        """The first slot that a file has."""

    @property
    @abstractmethod
    def end(self) -> int:
        """The slot after the last unit that is written."""

    @abstractmethod
    def units(self, begin: int, end: int) -> Units:
        """The units in the slots [begin, end)."""

    def unit(self, slot: int) -> QueueEntry:
        """The unit in one slot."""
        return self.units(slot, slot + 1)[0]

    def phy_offset_of(self, slot: int) -> int:
        """The physical offset that the unit of a slot points to; -1 if it points to no record."""
        unit = self.unit(slot) if slot >= 0 else None
        return unit.phy_offset if unit is not None and unit.is_message else -1

    def message_at_or_before(self, slot: int) -> QueueEntry | None:
        """The unit of a slot; if that points to no record, the nearest one before it that does; None without one."""
        if not self.first <= slot < self.end:
            return None
        if (unit := self.unit(slot)).is_message:
            return unit
        while slot > self.first:
            begin = max(slot - _UNITS_A_LOOK, self.first)
            units = self.units(begin, slot)
            rows = np.flatnonzero(units.is_message)
            if len(rows):
                return units[int(rows[-1])]
            slot = begin
        return None

    def first_at(self, phy_offset: int) -> int:
        """The first slot whose message lies at or after ``phy_offset``; ``end`` if there is none.

        A slot that points to no record counts as the message before it, so that neither fillers nor damage in the
        middle mislead the binary search. An unwritten slot without a message before it counts as one at 0: its message
        may be the first of the log, and would otherwise be left out.
        """
        return self.first + bisect_left(range(self.first, self.end), phy_offset, key=self._place_at_or_before)

    def _place_at_or_before(self, slot: int) -> int:
        if (unit := self.message_at_or_before(slot)) is not None:
            return unit.phy_offset
        return -1 if self.unit(slot).is_filler else 0


class MappedUnits(UnitSource):
    """The units of a consume queue of an open store. A unit is the 20-byte entry that points to a message in the log.

    They are read through the mappings of the files that the store has open.
    """

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue

    @property
    def first(self) -> int:
        """The first slot that a file has."""
        return max(self.queue.files.min_offset, 0) // UNIT_SIZE

    @property
    def end(self) -> int:
        """The slot after the last unit."""
        return self.queue.max_offset

    def units(self, begin: int, end: int) -> Units:
        """The units in the slots [begin, end)."""
        parts, at = [], begin
        while at < end and len(part := self.queue.entries(at, end - at)):
            parts.append(part)
            at += len(part)
        return Units.joined(parts if at >= end else [*parts, np.zeros(end - at, UNIT_DTYPE)])
