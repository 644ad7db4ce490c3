"""SIGKILL at operation k, then a whole life of the next process, and then the power fails.

What the killed process had not synced is still in the page cache, so the next one finds it there, and builds on it. It
must sync that, too.
"""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stepped_store import open_stepped

from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType
from gantrymq.errors import GantrymqError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.model.message import Message
from memory_file_system import MemoryFileSystem
from store_cases import BARE, NOON_MS

CONFIG = replace(BARE, flush_disk_type=FlushDiskType.SYNC_FLUSH)


class DyingFileSystem(KillableFileSystem):
    """Its process is killed at operation ``last``; 0 for never. ``operations`` counts them."""

    def __init__(self, inner: FileSystem, last: int) -> None:
        super().__init__(inner)
        self.last, self.operations = last, 0

    def _before(self, operation: str, path: Path) -> None:
        self.operations += 1
        if self.operations == self.last:
            self.kill()
        super()._before(operation, path)


def killed_at(number: int) -> tuple[MemoryFileSystem, int]:
    """A first life of one message, which ends at an operation of its disk. Returns the disk, and the operations."""
    fs = DyingFileSystem(disk := MemoryFileSystem(clock=ManualClock(NOON_MS)), number)
    with suppress(GantrymqError):
        open_stepped(fs, random.Random(1), config=CONFIG, clock=disk.clock).put(Message("T", b"one"))
    return disk.kill_clone(), fs.operations


def test_next_life_makes_durable_what_a_kill_at_any_operation_left() -> None:
    _, last = killed_at(0)
    for number in range(1, last + 1):
        disk, _ = killed_at(number)
        disk.clock = ManualClock(NOON_MS)
        store = open_stepped(disk, random.Random(1), config=CONFIG, clock=disk.clock)
        end = store.put(Message("T", b"two")).end_offset
        left = open_stepped(disk.crash_clone(0.0, 0), random.Random(1), config=CONFIG, clock=disk.clock)
        assert left.max_phy_offset == end, f"killed at operation {number}"
        assert left.max_offset_in_queue("T", 0) == store.next_offset_in_queue("T", 0)
