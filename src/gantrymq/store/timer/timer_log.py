"""The timer log: a unit of 52 bytes for each message that was put into the wheel.

A unit points to the previous unit of its slot, so a slot is read from its newest unit backwards. A file that is full
ends with a blank.

Invariant: the last file reads as zeros after the last unit; a unit points only to units before it.

Thread rule: one thread.

Source: TimerLog.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.timer import (
    MIN_TIMER_FILE_BYTES,
    NO_POSITION,
    TIMER_BLANK_SIZE,
    TIMER_UNIT_DTYPE,
    TIMER_UNIT_SIZE,
    TimerUnit,
    decode_unit,
    encode_timer_blank,
    encode_unit,
    is_timer_blank,
)
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.log.mapped_file_queue import MappedFileQueue
from gantrymq.store.paths import offset_files

_CHUNK_UNITS = 20_000
_WINDOW_BYTES = 64 << 10
REMEDY = "the next start rebuilds the timer log from the timer topic"
_MAX_MAGIC = 15


class BrokenChainError(Exception):
    """A slot points to a position without a unit, so not all messages of the slot can be found."""


class TimerLog:
    """The log in ``directory``. ``file_size`` is for a new log; existing files keep their size."""

    def __init__(self, fs: FileSystem, directory: Path, file_size: int) -> None:
        sizes = {file.size_bytes for file in offset_files(fs, (directory,))} - {0}
        if len(sizes) == 1 and min(sizes) >= MIN_TIMER_FILE_BYTES:
            file_size = sizes.pop()
        self._fs, self._directory = fs, directory
        self.files = MappedFileQueue(fs, directory, file_size, reserve_space=False, remedy=REMEDY)
        self._window, self._window_at = b"", 0

    @property
    def end(self) -> int:
        """The position after the last unit."""
        return self.files.max_offset

    @property
    def begin(self) -> int:
        """The position of the first file; 0 without files."""
        return max(self.files.min_offset, 0)

    def next_position(self, at: int) -> int:
        """The position of the next unit if the log ends at ``at``."""
        rest = self.files.file_size - at % self.files.file_size
        return at if rest >= MIN_TIMER_FILE_BYTES else at + rest

    def append(self, units: list[TimerUnit]) -> None:
        """Append units, with one write for each file. Their positions are those of :meth:`next_position`.

        Raises DiskFullError. Some of the units may then be written, but no slot points to them.
        """
        done, self._window = 0, b""
        while done < len(units):
            file = self.files.last_for_append()
            rest = file.size - file.wrote_position
            if rest < MIN_TIMER_FILE_BYTES:
                if rest >= TIMER_BLANK_SIZE:
                    file.file.write_at(file.wrote_position, encode_timer_blank(rest))
                file.advance(rest)
                continue
            fitting = (rest - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE
            some = units[done : done + fitting]
            file.append(b"".join(map(encode_unit, some)))
            done += len(some)

    def unit(self, at: int) -> TimerUnit:
        """The unit at a position. Cheap for consecutive positions. Raises BrokenChainError."""
        if not self._window_at <= at <= self._window_at + len(self._window) - TIMER_UNIT_SIZE:
            self._window, self._window_at = self._read(at, at + _WINDOW_BYTES), at
        unit = decode_unit(self._window[at - self._window_at : at - self._window_at + TIMER_UNIT_SIZE], at)
        if unit is None:
            self._window = b""
            raise BrokenChainError(f"there is no unit at {at}")
        return unit

    def chain(self, last: int, floor: int) -> tuple[array[int], list[TimerUnit]]:
        """The positions of a slot's units from ``floor`` on, newest first, and those of its units that delete.

        Raises BrokenChainError.
        """
        positions, deletions = array("q"), []
        window, window_at, at = b"", 0, last
        while at != NO_POSITION and at >= floor:
            if not window_at <= at <= window_at + len(window) - TIMER_UNIT_SIZE:
                window_at = max(at + TIMER_UNIT_SIZE - _WINDOW_BYTES, at - at % self.files.file_size)
                window = self._read(window_at, at + TIMER_UNIT_SIZE)
            unit = decode_unit(window[at - window_at : at - window_at + TIMER_UNIT_SIZE], at)
            if unit is None:
                raise BrokenChainError(f"there is no unit at {at}")
            if unit.deletes and not unit.rolls:
                deletions.append(unit)
            else:
                positions.append(at)
            at = unit.prev
        return positions, deletions

    def _read(self, begin: int, end: int) -> bytes:
        """Bytes of one file, at most up to the end of the log."""
        file = self.files.find(begin)
        if file is None:
            return b""
        position = begin - file.file_from_offset
        return file.file.read_at(position, max(min(end - begin, file.wrote_position - position), 0))

    def units_from(self, begin: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units from position ``begin`` on, in arrays of some thousands, each with its position.

        Ends at the end of the log, or at the first bytes that are neither a unit nor a blank.
        """
        for file in self.files.files:
            if file.file_from_offset + file.size <= begin:
                continue
            position = max(begin - file.file_from_offset, 0)
            for at, units in _units_in(file, position):
                yield file.file_from_offset + at, units
                position = at + len(units) * TIMER_UNIT_SIZE
            rest = file.size - position
            ends = rest < TIMER_BLANK_SIZE or is_timer_blank(file.file.read_at(position, TIMER_BLANK_SIZE))
            if rest >= MIN_TIMER_FILE_BYTES or not ends:
                return

    def clear(self) -> None:
        """Remove every file."""
        self._window = b""
        self.files.clear()

    def remove_all(self) -> None:
        """Clear the log, and remove files that were not loaded. Their names are gone durably."""
        self.clear()
        for file in reversed(offset_files(self._fs, (self._directory,))):
            self._fs.remove(file.path)
        self._fs.sync_directory(self._directory)

    def delete_before(self, phy_offset: int) -> int:
        """Remove the first files whose last unit points before ``phy_offset``. Returns their number.

        The last file stays. (deleteExpiredFileByOffsetForTimerLog)
        """
        count = 0
        for file in self.files.files[:-1]:
            units = (file.size - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE
            position = (units - 1) * TIMER_UNIT_SIZE
            unit = decode_unit(file.file.read_at(position, TIMER_UNIT_SIZE), file.file_from_offset + position)
            if unit is None or unit.phy_offset >= phy_offset:
                break
            count += 1
        return len(self.files.remove_before(count)) if count else 0


def _units_in(file: MappedFile, position: int) -> Iterator[tuple[int, NDArray[np.void]]]:
    """The units of a file from a position on, up to the first bytes that are not a unit."""
    last = file.size - MIN_TIMER_FILE_BYTES
    while position <= last:
        count = min((last - position) // TIMER_UNIT_SIZE + 1, _CHUNK_UNITS)
        raw = file.file.read_at(position, count * TIMER_UNIT_SIZE)
        units = np.frombuffer(raw[: len(raw) - len(raw) % TIMER_UNIT_SIZE], TIMER_UNIT_DTYPE)
        positions = file.file_from_offset + position + np.arange(len(units)) * TIMER_UNIT_SIZE
        good = (units["size"] == TIMER_UNIT_SIZE) & (units["magic"] > 0) & (units["magic"] <= _MAX_MAGIC)
        good &= (units["prev"] >= NO_POSITION) & (units["prev"] < positions) & (units["phy_offset"] >= 0)
        good &= (units["message_size"] >= 0) & (units["enqueue_ms"] >= 0)
        bad = np.flatnonzero(~good)
        unit_count = int(bad[0]) if len(bad) else len(units)
        if unit_count:
            yield position, units[:unit_count]
        if unit_count < len(units) or not len(units):
            return
        position += unit_count * TIMER_UNIT_SIZE
