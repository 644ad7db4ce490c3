"""The units of a queue on any file system that Spark reads. They are read in blocks, because a read is a request.

Thread rule: one thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import parse_offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.queue_units import UNIT_DTYPE, Units
from gantrymq.spark.log_file import OpenLogFile
from gantrymq.store.queue.unit_source import UnitSource
from gantrymq.tools.locations import Location, entries_of

PLANNED_BLOCK_UNITS = 3_276  # 64 KiB: an object store returns this as quickly as less
SINGLE_BLOCK_UNITS = 204  # 4 KiB: most reads need one unit
_BLOCKS_KEPT = 256


class RemoteFile(NamedTuple):
    """A file of the log or of a queue, and the offset of its first byte."""

    location: Location
    begin: int
    size_bytes: int


def files_in(directory: Location) -> list[RemoteFile]:
    """The files of a directory that are named by an offset, in order."""
    files = (
        (parse_offset_name(entry.base_name), entry.base_name, entry.size)
        for entry in entries_of(directory) or ()
        if entry.is_file
    )
    return sorted(
        (RemoteFile(directory / name, begin, size) for begin, name, size in files if begin is not None),
        key=lambda file: file.begin,
    )


class RemoteUnits(UnitSource):
    """The units in ``directory``, read in blocks of ``block_units``. Raises StoreError if they cannot be read.

    ``capacity`` are the slots that the files have room for.
    """

    def __init__(self, directory: Location, block_units: int) -> None:
        self._files = files_in(directory)
        self._begins = [file.begin for file in self._files]
        self._block_units = block_units
        self._block = lru_cache(_BLOCKS_KEPT)(self._read_block)
        self.capacity = range(0)
        if self._files:
            last = self._files[-1]
            self.capacity = range(self._begins[0] // UNIT_SIZE, (last.begin + last.size_bytes) // UNIT_SIZE)

    @property
    def first(self) -> int:
        """The first slot that a file has."""
        return self.capacity.start

    @cached_property
    def end(self) -> int:
        """The slot after the last unit. The last file reads as zeros from there on."""
        for file in reversed(self._files):
            slots = range(file.begin // UNIT_SIZE, (file.begin + file.size_bytes) // UNIT_SIZE)
            count = bisect_left(slots, True, key=lambda slot: self.unit(slot).size_bytes <= 0)
            if count:
                return slots.start + count
        return self.first

    def units(self, begin: int, end: int) -> Units:
        """The units in the slots [begin, end)."""
        parts: list[NDArray[np.void]] = []
        at = begin
        while at < end:
            number, row = divmod(at, self._block_units)
            parts.append(self._block(number)[row : row + end - at])
            at += len(parts[-1])
        return Units.joined(parts)

    def _read_block(self, number: int) -> NDArray[np.void]:
        """The units of a block; zeros where there is no file."""
        data = bytearray(self._block_units * UNIT_SIZE)
        begin, end = number * len(data), (number + 1) * len(data)
        for file in self._files[max(bisect_right(self._begins, begin) - 1, 0) : bisect_left(self._begins, end)]:
            low, high = max(file.begin, begin), min(file.begin + file.size_bytes, end)
            if low < high:
                with OpenLogFile(file.location) as opened:
                    opened.read_into(memoryview(data)[low - begin : high - begin], low - file.begin)
        return np.frombuffer(data, UNIT_DTYPE)
