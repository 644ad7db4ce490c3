"""The wheel: one slot for each due time, with the positions of its oldest and newest unit in the timer log.

The file is sparse: a slot that was never used takes no space. The obvious way, a mapping, has two faults: on a full
disk a write to a hole ends the process, and 38 MB count as memory of the process. So slots are read and written with
pread and pwrite. The page cache keeps the slots that are in use.

Thread rule: one thread writes; any thread reads a slot.

Source: TimerWheel.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.timer import SLOT_DTYPE, SLOT_SIZE, SLOTS, Slot, decode_slot, encode_slot, slot_number
from gantrymq.fs.api import File, FileSystem

_CHUNK_BYTES = 8192 * SLOT_SIZE
_FEW_SLOTS = 128  # a page, which is read without a search for holes
_TEMPORARY = ".tmp"  # RocketMQ does not take it for a snapshot, whose name ends with a number


class TimerWheel:
    """The file at ``path`` with two rounds of ``slots`` slots; times are in units of timerPrecisionMs.

    The file is created by the first write, or by :meth:`replace`.
    """

    def __init__(self, fs: FileSystem, path: Path, slots: int = SLOTS) -> None:
        self._slots, self._size = slots, 2 * slots * SLOT_SIZE
        self._fs = fs
        self._path = path
        self._file: File | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the file exists and has the right length."""
        identity = self._fs.identity(self._path)
        return identity is not None and identity.size_bytes == self._size

    @property
    def has_snapshots(self) -> bool:
        """Whether RocketMQ kept the wheel in snapshots (timerWheelSnapshotFlush), so that the file may be outdated."""
        return bool(self._snapshots())

    def _snapshots(self) -> list[Path]:
        begin = f"{self._path.name}."
        names = [entry.name for entry in self._fs.scan(self._path.parent)]
        return [
            self._path.with_name(name) for name in names if name.startswith(begin) and name[len(begin) :].isdecimal()
        ]

    def slot(self, time: int) -> Slot | None:
        """The slot of a time; None if it has no unit."""
        slot = self.raw_slot(time)
        return slot if slot is not None and slot.time == time else None

    def raw_slot(self, time: int) -> Slot | None:
        """The slot in the place of a time, which may be of another round; None if it was never used."""
        file = self._opened()
        if file is None:
            return None
        slot = decode_slot(file.read_at(self._position(time), SLOT_SIZE))
        return slot if slot.time > 0 else None

    def put(self, slot: Slot) -> None:
        """Write a slot. Raises DiskFullError."""
        (self._opened() or self._make()).write_at(self._position(slot.time), encode_slot(slot))

    def next_used(self, begin: int, end: int) -> int:
        """The first time from ``begin`` to ``end`` whose slot has a unit; ``end`` if there is none."""
        file = self._opened()
        if file is None or begin >= end:
            return end
        if end - begin >= 2 * self._slots:
            times = [slots["time"] for slots in self._chunks(file)]
            inside = [some[(some >= max(begin, 1)) & (some < end)] for some in times]
            return int(min((some.min() for some in inside if len(some)), default=end))
        at = begin
        while at < end:
            position = self._position(at)
            if end - at > _FEW_SLOTS:
                data = min(file.data_from(position), self._size) // SLOT_SIZE * SLOT_SIZE
                if data > position:  # a hole, or the end of the file
                    at += (data - position) // SLOT_SIZE
                    continue
            count = min(end - at, (self._size - position) // SLOT_SIZE, _CHUNK_BYTES // SLOT_SIZE)
            slots = _slots_of(file.read_at(position, count * SLOT_SIZE))
            used = np.flatnonzero(slots["time"] == np.arange(at, at + len(slots)))
            if len(used):
                return at + int(used[0])
            at += max(len(slots), 1)
        return end

    def used_from(self, begin: int) -> Iterator[NDArray[np.void]]:
        """The slots from a time on that have units, in arrays of SLOT_DTYPE, in no order."""
        file = self._opened()
        for slots in self._chunks(file) if file is not None else ():
            used = slots[slots["time"] >= begin]
            if len(used):
                yield used

    def count_from(self, begin: int) -> int:
        """The number of messages in the slots from a time on (getAllNum)."""
        return sum(int(slots["num"].astype(np.int64).sum()) for slots in self.used_from(begin))

    def replace(self, slots: NDArray[np.void]) -> None:
        """Replace the file durably with a wheel of exactly these ``slots`` (SLOT_DTYPE).

        The replacement is atomic: a kill leaves the old wheel or the new one. Snapshots are removed after it, because
        RocketMQ would read them instead of the new wheel. Raises DiskFullError.
        """
        self.close()
        made = self._path.with_name(self._path.name + _TEMPORARY)
        self._fs.remove(made)
        file = self._fs.open(made, writable=True, create=True)
        try:
            file.resize(self._size)
            order = np.argsort(slots["time"] % (2 * self._slots), kind="stable")
            ordered = slots[order]
            numbers = (ordered["time"] % (2 * self._slots)).astype(np.int64)
            for run in np.split(np.arange(len(ordered)), np.flatnonzero(np.diff(numbers) != 1) + 1):
                if len(run):
                    file.write_at(int(numbers[run[0]]) * SLOT_SIZE, ordered[run[0] : run[-1] + 1].tobytes())
            file.sync()
        finally:
            file.close()
        self._fs.rename(made, self._path)
        self._fs.sync_directory(self._path.parent)
        for path in self._snapshots():
            self._fs.remove(path)

    def sync(self) -> None:
        """Make every slot durable."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file; the next access opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _position(self, time: int) -> int:
        return slot_number(time, self._slots) * SLOT_SIZE

    def _opened(self) -> File | None:
        if self._file is None and self.is_usable:
            self._file = self._fs.open(self._path, writable=True)
        return self._file

    def _make(self) -> File:
        self.replace(np.empty(0, SLOT_DTYPE))
        self._file = file = self._fs.open(self._path, writable=True)
        return file

    def _chunks(self, file: File) -> Iterator[NDArray[np.void]]:
        """All slots outside of holes."""
        at = 0
        while (at := file.data_from(at)) < self._size:
            at -= at % SLOT_SIZE
            slots = _slots_of(file.read_at(at, min(_CHUNK_BYTES, self._size - at)))
            yield slots
            at += max(len(slots), 1) * SLOT_SIZE


def _slots_of(raw: bytes) -> NDArray[np.void]:
    return np.frombuffer(raw[: len(raw) - len(raw) % SLOT_SIZE], SLOT_DTYPE)
