"""A mutant is a small store of which some bytes, or some names, were changed at random.

Everything follows from its number: which store, which files, which changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import GantrymqError
from gantrymq.store import message_store
from gantrymq.store.message_store import MessageStore
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT, odd_message

TINY = MessageStoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=11,
    max_index_num=40,
    mapped_file_size_consume_queue_ext=1024,
)
ENDS = ("closed", "killed", "killed and ext", "closed and ext")
NUMBERS = (0, 1, -1, 2, 0x7F, 0x7FFF, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000, 4095, 4096)


class QuietRunner:
    """In place of a ServiceRunner: nothing steps but at the end, so that a mutant needs no thread."""

    def __init__(self, service: Any, clock: Any, on_failure: Callable[[str, Exception], None], **options: Any) -> None:
        self._service, self._clock, self._on_failure = service, clock, on_failure

    def start(self) -> None:
        """Nothing runs by itself."""

    def wake(self) -> None:
        """Nobody waits."""

    def abandon(self) -> None:
        """There is no thread."""

    def step(self) -> None:
        try:
            self._service.step(self._clock.now_ms())
        except GantrymqError as error:
            self._on_failure(self._service.name, error)

    def stop(self) -> None:
        self._service.drain()


def open_quiet(
    fs: MemoryFileSystem, config: MessageStoreConfig, given: frozenset[str], clock: ManualClock
) -> MessageStore:
    with mock.patch.object(message_store, "ServiceRunner", QuietRunner):
        return MessageStore.open(ROOT, config, given=given, fs=fs, clock=clock)


@cache
def whole(end: str) -> MemoryFileSystem:
    """An undamaged store of a few kilobytes with every kind of file in it."""
    rng, fs = random.Random(end), MemoryFileSystem(clock=ManualClock(NOON_MS))
    config = settings_of(end)
    clock = ManualClock(NOON_MS)
    store = open_quiet(fs, config, GEOMETRY_KEYS, clock)
    for number in range(40):
        message = odd_message(rng, most=120)
        message.topic, message.queue_id = rng.choice((("orders", 0), ("orders", 1), (message.topic[:6], 0)))
        message.delay_level = rng.choice((0, 0, 1))
        store.put(message)
        if number % 13 == 12:
            clock.advance(11_000)
            for runner in store._runners:
                runner.step()
    if end.startswith("closed"):
        store.close()
    return fs.crash_clone(1.0, 0)


def settings_of(end: str, **others: Any) -> MessageStoreConfig:
    return replace(TINY, enable_consume_queue_ext=end.endswith("ext"), **others)


# What is changed


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def noise(data: bytearray, rng: random.Random) -> None:
    at, length = rng.randrange(len(data)), rng.choice((1, 4, 20, 512))
    data[at : at + length] = rng.randbytes(len(data[at : at + length]))


def sector(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(0, len(data), 512)
    data[at : at + 512] = bytes([rng.choice((0, 0, 0, 255))]) * len(data[at : at + 512])


def swap(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((4, 8, 20, 512))
    one, other = rng.randrange(len(data)), rng.randrange(len(data))
    a, b = bytes(data[one : one + size]), bytes(data[other : other + size])
    data[one : one + len(b)], data[other : other + len(a)] = b, a
    del data[-max(len(data) - (1 << 20), 0) or len(data) :]


def number(data: bytearray, rng: random.Random) -> None:
    """A number of 1 to 8 bytes where a field may be: at a written place, more often than not near another."""
    width = rng.choice((1, 2, 4, 4, 4, 8, 8))
    written = [at for at in range(0, len(data), 4) if any(data[at : at + 4])] or [0]
    at = rng.choice((rng.choice(written), rng.randrange(len(data)), rng.randrange(min(len(data), 48))))
    value = rng.choice((*NUMBERS, rng.getrandbits(63), rng.randrange(1 << 16)))
    raw = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    data[at : at + width] = raw[: len(data[at : at + width])]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.choice((0, rng.randrange(len(data)), len(data) - 1)) :]


def extend(data: bytearray, rng: random.Random) -> None:
    data += rng.choice((bytes, rng.randbytes))(rng.choice((1, 20, 512, 4096)))


IN_PLACE = (flip, flip, noise, sector, swap, number, number, number, cut, extend)


def mutate(fs: MemoryFileSystem, rng: random.Random) -> str:
    """One change; says what it was."""
    paths = paths_of(fs)
    folder = rng.choice(sorted({path.relative_to(ROOT).parts[0] for path in paths}))
    path = rng.choice([path for path in paths if path.relative_to(ROOT).parts[0] == folder])
    data = bytearray(fs.open(path).read_at(0, 1 << 20))
    way = rng.choice((*IN_PLACE, *IN_PLACE, "remove", "rename", "duplicate"))
    if way == "remove":
        fs.remove(path)
    elif way in ("rename", "duplicate"):
        name = rng.choice((*(other.name for other in paths), "x", f"{rng.randrange(1 << 16):020d}", "9" * 20, "9" * 17))
        write(fs, path.with_name(name), bytes(data))
        if way == "rename" and name != path.name:
            fs.remove(path)
    elif callable(way) and data:
        way(data, rng)
        write(fs, path, bytes(data))
    return f"{getattr(way, '__name__', way)} {path.relative_to(ROOT)}"


def paths_of(fs: MemoryFileSystem) -> list[Path]:
    """The files, sorted, so that a choice among them follows from the number alone."""
    return sorted(path for path, node in fs._live.items() if not node.is_directory)


def write(fs: MemoryFileSystem, path: Path, data: bytes) -> None:
    file = fs.open(path, writable=True, create=True)
    file.resize(len(data))
    file.write_at(0, data)


@dataclass(frozen=True)
class Mutant:
    """Mutant ``number``: the disk with it, how its store had ended, what was changed, and chance for what follows."""

    number: int
    fs: MemoryFileSystem
    end: str
    changes: list[str]
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @classmethod
    def make(cls, number: int) -> Mutant:
        rng = random.Random(number)
        end = rng.choice(ENDS)
        fs = whole(end).kill_clone()
        return cls(number, fs, end, [mutate(fs, rng) for _ in range(rng.choice((1, 1, 2, 4)))], rng)

    def __str__(self) -> str:
        return f"mutant {self.number} of a store that was {self.end}: {', '.join(self.changes)}"
