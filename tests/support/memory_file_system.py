"""A file system in memory that knows what was synced, for tests of power cuts and full disks.

It has two states. The live state is what programs see, the durable state is what the disk certainly has. ``sync`` makes
the bytes and the length of a file durable, ``sync_directory`` the names of a directory. A kernel may write back
anything at any time: :meth:`MemoryFileSystem.crash_clone` decides at random, page by page, and returns the disk after a
power cut. Changes of names and lengths are lost from some point on, because file systems journal them in order. Bytes
are lost in any order.

Space is counted in pages. A mapped page that was written without reserved space fails the test at the next sync,
because on a full disk it would have been a SIGBUS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import DiskError, DiskFullError, StoreLockedError
from gantrymq.fs.api import Bytes, Entry, Identity

PAGE_SIZE = 4096
_Item = TypeVar("_Item", np.uint8, np.bool_)
_LOOK_BYTES = 64 << 10


class MemoryInode:
    """The live and the durable bytes of one file. ``reserved`` has a flag for each page: whether its space is reserved.

    A directory is an inode without bytes.
    """

    def __init__(self, content: Bytes, *, is_directory: bool = False) -> None:
        self.is_directory = is_directory
        self.live = content
        self.durable = content.copy()
        self.reserved: NDArray[np.bool_] = np.any(in_units(content, PAGE_SIZE), axis=1)
        self.is_mapped = False
        self.modified_ms = 0
        self.given_up: dict[int, bytes] = {}

    def copy(self) -> MemoryInode:
        """A copy of the file that is not mapped."""
        copy = MemoryInode(self.live.copy(), is_directory=self.is_directory)
        copy.durable, copy.reserved, copy.modified_ms = self.durable.copy(), self.reserved.copy(), self.modified_ms
        copy.given_up = dict(self.given_up)
        return copy

    def make_durable(self) -> None:
        """Make every page durable except those that were given up and not written since."""
        before, self.durable = resized(self.durable, len(self.live)), self.live.copy()
        self.given_up = {page: was for page, was in self.given_up.items() if was == self.live[_page(page)].tobytes()}
        for page in self.given_up:
            self.durable[_page(page)] = before[_page(page)]

    def give_up(self) -> None:
        """Simulate a failed fdatasync of Linux: dirty pages become clean, and no later sync writes them."""
        live, durable = in_units(self.live, PAGE_SIZE), in_units(resized(self.durable, len(self.live)), PAGE_SIZE)
        for page in np.flatnonzero((live != durable).any(axis=1)).tolist():
            self.given_up[page] = self.live[_page(page)].tobytes()

    def mark_dirty(self, position: int, end: int) -> None:
        """Mark the pages of written bytes as dirty, even if the bytes are unchanged."""
        for page in range(position // PAGE_SIZE, -(-end // PAGE_SIZE)):
            self.given_up.pop(page, None)

    def after_power_cut(self, length: int, chance: Callable[[int], NDArray[np.bool_]], unit_bytes: int) -> MemoryInode:
        """The file after a power cut, with ``length`` bytes.

        ``chance(n)`` draws which of n unsynced units the disk kept.
        """
        content = resized(self.durable, length)
        newer, older = in_units(resized(self.live, length), unit_bytes), in_units(content, unit_bytes)
        dirty = np.flatnonzero((newer != older).any(axis=1))
        got = dirty[chance(len(dirty))]
        older[got] = newer[got]
        return MemoryInode(older.reshape(-1)[:length].copy(), is_directory=self.is_directory)


def _page(number: int) -> slice:
    return slice(number * PAGE_SIZE, (number + 1) * PAGE_SIZE)


def resized(array: NDArray[_Item], length: int) -> NDArray[_Item]:
    """A copy of ``array`` with ``length`` items, cut off or padded with zeros."""
    out = np.zeros(length, array.dtype)
    copied_bytes = min(len(array), length)
    out[:copied_bytes] = array[:copied_bytes]
    return out


def in_units(content: Bytes, unit_bytes: int) -> NDArray[np.uint8]:
    """The content as rows of ``unit_bytes``, padded with zeros."""
    return resized(content, -(-len(content) // unit_bytes) * unit_bytes).reshape(-1, unit_bytes)


class MemoryFile:
    """An open file; see :class:`gantrymq.fs.api.File`. It must not be resized once it is mapped."""

    def __init__(self, fs: MemoryFileSystem, path: Path, inode: MemoryInode, *, writable: bool) -> None:
        self._fs = fs
        self._path = path
        self._inode = inode
        self._writable = writable

    @property
    def path(self) -> Path:
        """The path under which the file was opened."""
        return self._path

    def size(self) -> int:
        """Its length in bytes."""
        return len(self._inode.live)

    def identity(self) -> Identity:
        """The identity of the open file."""
        return Identity(0, id(self._inode), self.size())

    def read_at(self, position: int, length: int) -> bytes:
        """At most ``length`` bytes from ``position``."""
        assert min(position, length) >= 0, "a real file answers EINVAL"
        return self._inode.live[position : position + length].tobytes()

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """A copy of the bytes."""
        return np.frombuffer(self.read_at(position, length), np.uint8)

    def data_from(self, position: int) -> int:
        """The next byte that is not zero, or the size."""
        live, at = self._inode.live, position
        while at < len(live):  # a piece at a time: a file may have megabytes of zeros
            piece = live[at : at + _LOOK_BYTES]
            if piece.any():
                return at + int(np.flatnonzero(piece)[0])
            at += len(piece)
        return max(self.size(), position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at ``position``, or nothing of it."""
        self._fs.reserve(self._path, self._written(), position, len(data))
        if position + len(data) > self.size():
            self.resize(position + len(data))
        self._inode.live[position : position + len(data)] = np.frombuffer(data, np.uint8)
        self._inode.mark_dirty(position, position + len(data))

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Like :meth:`write_at`; there is no cache."""
        self.write_at(position, data)

    def zero(self, position: int, length: int) -> None:
        """Zero the bytes; the space of whole pages is freed."""
        end = min(position + length, self.size())
        self._written().live[position:end] = 0
        self._inode.mark_dirty(position, end)
        last = len(self._inode.reserved) if end == self.size() else end // PAGE_SIZE
        self._inode.reserved[-(-position // PAGE_SIZE) : last] = False

    def resize(self, size_bytes: int) -> None:
        """Set the length."""
        if size_bytes == self.size():
            return
        assert not self._inode.is_mapped, f"{self._path} is mapped and cannot be resized here"
        self._written().live = resized(self._inode.live, size_bytes)
        self._fs.note_length(self._inode)
        self._inode.reserved = resized(self._inode.reserved, -(-size_bytes // PAGE_SIZE))

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Reserve the space of these bytes; the file grows if needed."""
        self._fs.reserve(self._path, self._written(), position, length, leave)
        if position + length > self.size():
            self.resize(position + length)

    def map(self) -> Bytes:
        """The file's own bytes."""
        self._inode.is_mapped = True
        array = self._inode.live.view()
        array.flags.writeable = self._writable
        return array

    def fetch(self, position: int, length: int) -> None:
        """Does nothing: the bytes are in memory."""

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """None: no byte can be lost."""
        return None

    def release_pages(self, position: int, length: int) -> None:
        """Does nothing."""

    def begin_sync(self) -> None:
        """Does nothing."""

    def sync(self) -> None:
        """Make bytes and length durable."""
        pages = in_units(self._inode.live, PAGE_SIZE).any(axis=1)
        stray = np.flatnonzero(pages & ~self._inode.reserved)
        assert not len(stray), f"{self._path}: page {stray[0]} was written through a mapping without space of its own"
        self._inode.make_durable()
        self._fs.settle(self._inode)

    def give_up(self) -> None:
        """Simulate a failed sync: a later sync does not write what was written before."""
        self._inode.give_up()

    def close(self) -> None:
        """Does nothing."""

    def _written(self) -> MemoryInode:
        assert self._writable, f"{self._path} is open for reading only"
        self._inode.modified_ms = self._fs.clock.now_ms()
        return self._inode


@dataclass(frozen=True, slots=True)
class _Change:
    """One change: of names of a directory (to another file, or None), or of the length of a file."""

    of: Path | MemoryInode
    names: dict[Path, MemoryInode | None]
    length: int = 0

    def apply(self, to: dict[Path, MemoryInode]) -> None:
        for path, inode in self.names.items():
            if inode is None:
                to.pop(path, None)
            else:
                to[path] = inode

    def over(self, copies: dict[MemoryInode, MemoryInode]) -> _Change:
        """The same change for copies of the files."""
        names = {path: copies[inode] if inode is not None else None for path, inode in self.names.items()}
        return _Change(copies[self.of] if isinstance(self.of, MemoryInode) else self.of, names, self.length)


class _MemoryLock:
    def __init__(self, held: set[Path], path: Path, file: MemoryFile) -> None:
        self._held = held
        self._path = path
        self._file = file

    def identity(self) -> Identity:
        """The identity of the lock file."""
        return self._file.identity()

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class MemoryFileSystem:
    """Files and directories in memory; see :class:`gantrymq.fs.api.FileSystem`.

    ``capacity_bytes`` is the size of the disk; a larger use raises DiskFullError. It may be changed at any time.
    ``simulated_used_ratio`` overrides :meth:`used_ratio`.
    """

    def __init__(self, capacity_bytes: int | None = None, clock: Clock | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.simulated_used_ratio: float | None = None
        self.clock = clock or SystemClock()
        self._live: dict[Path, MemoryInode] = {}
        self._durable: dict[Path, MemoryInode] = {}
        self._journal: list[_Change] = []  # changes that are not durable yet, oldest first
        self._locked: set[Path] = set()
        self._guard = threading.RLock()

    def crash_clone(self, unsynced_fraction: float, seed: int, *, unit_bytes: int = PAGE_SIZE) -> MemoryFileSystem:
        """A copy of the disk after a power cut; this one is unchanged.

        About ``unsynced_fraction`` (0.0 to 1.0) of the unsynced data is kept: 1.0 is the state after a kill of a
        process. ``unit_bytes`` is the atomic unit of the disk: a page, or a sector of 512 bytes.
        """
        rng = np.random.default_rng(seed)

        def chance(count: int) -> NDArray[np.bool_]:
            return rng.random(count) < unsynced_fraction

        clone = MemoryFileSystem(self.capacity_bytes, self.clock)
        with self._guard:
            names, lengths = dict(self._durable), dict[Path | MemoryInode, int]()
            for change in self._journal:
                if not chance(1)[0]:
                    break
                change.apply(names)
                lengths[change.of] = change.length
            # The contents of a lost directory are lost, even if their names are durable.
            names = {
                path: inode for path, inode in names.items() if all(parent in names for parent in path.parents[:-1])
            }
            for path in sorted(names):
                length = lengths.get(names[path], len(names[path].durable))
                clone._live[path] = names[path].after_power_cut(length, chance, unit_bytes)
        clone._durable = dict(clone._live)
        return clone

    def kill_clone(self) -> MemoryFileSystem:
        """A copy of the disk after a kill of its processes: nothing is lost, and nothing more is durable."""
        clone = MemoryFileSystem(self.capacity_bytes, self.clock)
        with self._guard:
            changed = [inode for change in self._journal for inode in (change.of, *change.names.values())]
            known = {*self._live.values(), *self._durable.values(), *changed}
            copies = {inode: inode.copy() for inode in known if isinstance(inode, MemoryInode)}
            clone._live = {path: copies[inode] for path, inode in self._live.items()}
            clone._durable = {path: copies[inode] for path, inode in self._durable.items()}
            clone._journal = [change.over(copies) for change in self._journal]
        return clone

    def can_rename(self, source: Path, target: Path) -> bool:
        """Always True: there is one disk."""
        return True

    def used_ratio(self, path: Path) -> float:
        """The used part of the disk, 0.0 to 1.0."""
        ratio = self._used_bytes() / self.capacity_bytes if self.capacity_bytes else 0.0
        return ratio if self.simulated_used_ratio is None else self.simulated_used_ratio

    def free_bytes(self, path: Path) -> int | None:
        """The rest of the capacity; None without one."""
        return None if self.capacity_bytes is None else max(self.capacity_bytes - self._used_bytes(), 0)

    def _used_bytes(self) -> int:
        return sum(int(inode.reserved.sum()) for inode in self._live.values()) * PAGE_SIZE

    def reserve(self, path: Path, inode: MemoryInode, position: int, length: int, leave: int = 0) -> None:
        """Reserve the pages of these bytes of ``inode``; for :class:`MemoryFile`."""
        if length <= 0:
            return
        with self._guard:
            wanted = np.arange(position // PAGE_SIZE, -(-(position + length) // PAGE_SIZE))
            inode.reserved = resized(inode.reserved, max(len(inode.reserved), int(wanted[-1]) + 1))
            needed = int((~inode.reserved[wanted]).sum()) * PAGE_SIZE
            leave = leave if needed else 0
            if self.capacity_bytes is not None and self._used_bytes() + needed + leave > self.capacity_bytes:
                raise DiskFullError(path, needed)
            inode.reserved[wanted] = True

    def note_length(self, inode: MemoryInode) -> None:
        """Note a changed length of a file; for :class:`MemoryFile`."""
        with self._guard:
            self._journal.append(_Change(inode, {}, len(inode.live)))

    def settle(self, *what: Path | MemoryInode) -> None:
        """Note that changes of a directory's names or of a file's length are durable; for :class:`MemoryFile`."""
        with self._guard:
            self._journal = [change for change in self._journal if change.of not in what]

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        like: Path | None = None,
        is_private: bool = False,
    ) -> MemoryFile:
        """Open a file."""
        with self._guard:
            inode = self._live.get(path)
            if inode is None and not (create and self.exists(path.parent)):
                raise FileNotFoundError(path)
            if inode is None:
                inode = MemoryInode(np.zeros(0, np.uint8))
                self._change({path: inode})
            return MemoryFile(self, path, inode, writable=writable)

    def scan(self, path: Path) -> list[Entry]:
        """The entries of a directory, sorted by name."""
        prefix = f"{path}/"
        with self._guard:
            below = [(str(name), name, inode) for name, inode in self._live.items() if str(name).startswith(prefix)]
        here = [(name, inode) for text, name, inode in sorted(below) if "/" not in text[len(prefix) :]]
        return [Entry(name.name, len(node.live), node.is_directory, node.modified_ms) for name, node in here]

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        return path in self._live or path == path.parent

    def identity(self, path: Path) -> Identity | None:
        """The identity of the file or directory of this name."""
        inode = self._live.get(path)
        return Identity(0, id(inode), len(inode.live)) if inode is not None else None

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Create a directory and its parents. If ``synced``, their names and all names beside them become durable."""
        with self._guard:
            for directory in (*reversed(path.parents), path):
                if not self.exists(directory):
                    self._change({directory: MemoryInode(np.zeros(0, np.uint8), is_directory=True)})
                    if synced:
                        self.sync_directory(directory.parent)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self._guard:
            if path in self._live:
                self._change({path: None})

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        with self._guard:
            if not self.scan(path):
                self.remove(path)

    def rename(self, source: Path, target: Path) -> None:
        """Replace a file or directory in one step; durable when the target's directory is."""
        with self._guard:
            moved = [path for path in self._live if path == source or source in path.parents]
            names: dict[Path, MemoryInode | None] = {target: self._live[source]}
            names |= {target / path.relative_to(source): self._live[path] for path in moved}
            self._change(names | dict.fromkeys(moved))

    def sync_directory(self, *paths: Path) -> None:
        """Make the names in directories durable."""
        with self._guard:
            for change in self._journal:
                if change.of in paths:
                    change.apply(self._durable)
            self.settle(*paths)

    def lock(self, path: Path, text: bytes) -> _MemoryLock:
        """Take the lock of this file system."""
        with self._guard:
            if path in self._locked:
                raise StoreLockedError(path.parent, "is already open")
            file = self.open(path, writable=True, create=True)
            file.write_at(0, text)
            self._locked.add(path)
            return _MemoryLock(self._locked, path, file)

    def _change(self, names: dict[Path, MemoryInode | None]) -> None:
        change = _Change(next(iter(names)).parent, names)
        change.apply(self._live)
        self._journal.append(change)
