"""Single units of a consume queue as executors read them: where the queue says that its messages lie."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.spark.log_file import LogFile
from gantrymq.spark.places import Place
from gantrymq.spark.remote_store import files_in
from gantrymq.store.consume_queue import UNIT_DTYPE

_BLOCK_UNITS = 204  # 4 KiB: most looks are at one unit
_BLOCKS_KEPT = 64
_BEHIND_ALL = (1 << 63) - 1
NOWHERE = -1
"""The place of a slot that stayed empty or is not written."""


class QueueUnits:
    """The units in ``directory``. Raises StoreError where they cannot be read."""

    def __init__(self, directory: Place) -> None:
        self._files = files_in(directory)
        self._begins = [file.begin for file in self._files]
        self._block = lru_cache(_BLOCKS_KEPT)(self._read_block)
        self.slots = range(0)
        """The offsets that the files have room for."""
        if self._files:
            last = self._files[-1]
            self.slots = range(self._begins[0] // UNIT_SIZE, (last.begin + last.size_bytes) // UNIT_SIZE)

    def places(self, low: int, high: int) -> NDArray[np.int64]:
        """Where the messages at offsets [low, high) lie (int64); -1 for a slot that stayed empty or is not written."""
        parts, at = [np.empty(0, np.int64)], low
        while at < high:
            number, first = divmod(at, _BLOCK_UNITS)
            units = self._block(number)[first : first + high - at]
            is_real = (units["size"] > 0) & (units["size"] != BLANK_UNIT_SIZE)
            parts.append(np.where(is_real, units["phy_offset"].astype(np.int64), NOWHERE))
            at += len(units)
        return np.concatenate(parts)

    def is_blank(self, offset: int) -> bool:
        """Whether it is a slot that stayed empty, so that there is no message."""
        number, at = divmod(offset, _BLOCK_UNITS)
        return int(self._block(number)[at]["size"]) == BLANK_UNIT_SIZE

    def first_at(self, phy_offset: int) -> int:
        """The first offset whose message lies at or behind ``phy_offset``; behind all slots where there is none."""
        return self.slots.start + bisect_left(self.slots, phy_offset, key=self._order)

    def _order(self, offset: int) -> int:
        """The place of a message, for an empty slot that of the one in front; behind all where none is written."""
        while offset >= self.slots.start and self.is_blank(offset):
            offset -= 1
        if offset < self.slots.start:
            return NOWHERE
        place = int(self.places(offset, offset + 1)[0])
        return _BEHIND_ALL if place == NOWHERE else place

    def _read_block(self, number: int) -> NDArray[np.void]:
        """The units of a block; zeros where no file is."""
        data = bytearray(_BLOCK_UNITS * UNIT_SIZE)
        begin, end = number * len(data), (number + 1) * len(data)
        for file in self._files[max(bisect_right(self._begins, begin) - 1, 0) : bisect_left(self._begins, end)]:
            low, high = max(file.begin, begin), min(file.begin + file.size_bytes, end)
            if low < high:
                with LogFile(file.place) as opened:
                    opened.read_into(memoryview(data)[low - begin : high - begin], low - file.begin)
        return np.frombuffer(data, UNIT_DTYPE)
