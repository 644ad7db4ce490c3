"""What the store needs from a file system, as protocols.

Three implementations: :mod:`gantrymq.fs.real` (local files), :mod:`gantrymq.fs.overlay` (a private view of local
files whose changes are never written) and :mod:`gantrymq.fs.memory` (for tests; knows what was synced).

A file is reached in two ways. ``read_at`` / ``write_at`` copy bytes; ``map`` hands out an array over the whole file,
and a write to that array is a write to the file, made durable by ``sync`` like any other. A mapped file's space must
have been reserved first, so that a full disk is a DiskFullError and never a signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskError

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; ``size_bytes`` is 0 for a directory, and of a link all is told that it leads to.

    ``is_special``: neither a file nor a directory, but a socket, a pipe or a device. To open one may wait for ever.
    """

    name: str
    size_bytes: int
    is_directory: bool
    modified_ms: int
    is_link: bool = False
    is_special: bool = False


class Identity(NamedTuple):
    """What a name leads to, or what is open: the same file has the same first two numbers."""

    device: int
    inode: int
    size_bytes: int


class File(Protocol):
    """An open file. Reading is safe from any thread; writers must not write the same bytes at the same time."""

    @property
    def path(self) -> Path:
        """Where the file is."""
        ...

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def identity(self) -> Identity:
        """Which file is open."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``; fewer only where the file ends. Raises DiskError with its position."""
        ...

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """As :meth:`read_at`, a read-only array that is a part of a mapping where that can be had.

        The disk has given the bytes back by then: one that does not is an error here as it is in read_at. Without
        ``read_ahead`` nothing behind them is read: pages of zeros that are in memory are no hole to :meth:`data_from`.
        """
        ...

    def data_from(self, position: int) -> int:
        """The first place at or behind ``position`` that is not known to be zero; the size where there is none.

        A file system knows the holes of a file, so that nobody has to read a gigabyte of zeros.
        """
        ...

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at ``position``; raises DiskFullError."""
        ...

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """As :meth:`write_at`, without taking pages of the system's cache where it can do that.

        For whole pages (4096 bytes), in memory that begins at one, which nobody reads soon.
        """
        ...

    def zero(self, position: int, length: int) -> None:
        """Make the bytes read as zeros without changing the size of the file."""
        ...

    def resize(self, size_bytes: int) -> None:
        """Set the length; new bytes are zeros that take no space yet."""
        ...

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Take the space of these bytes now; raises DiskFullError, also where less than ``leave`` would be left."""
        ...

    def map(self) -> Bytes:
        """The whole file as a 1-D uint8 array, writable if the file was opened so.

        The mapping lives as long as the array or a view of it does, also after :meth:`close`.
        """
        ...

    def fetch(self, position: int, length: int) -> None:
        """Bring these bytes of the array that :meth:`map` made into memory; raises DiskError with its position.

        A look at a mapped page that the disk does not give back ends the process (SIGBUS). Call this first.
        """
        ...

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """The error of the first of these bytes that read as zeros because the disk does not give them back.

        None for every file but those of a view that goes on without such bytes; other files raise it on a read.
        """
        ...

    def let_go(self, position: int, length: int) -> None:
        """Leave whole pages of the mapping to the system, which finds them again when they are next asked for.

        Nothing of them is lost. To be called before a sync, for what will not be written any more: a mapped page that
        is dirty costs the sync an interrupt of every processor.
        """
        ...

    def begin_sync(self) -> None:
        """Let the system begin to write what a :meth:`sync` will wait for; that one tells what went wrong.

        For whoever syncs several files: the disk has all of them at once.
        """
        ...

    def sync(self) -> None:
        """Return when every byte written so far, mapped ones too, would survive a power cut."""
        ...

    def close(self) -> None:
        """Give the descriptor back. Closing twice is harmless."""
        ...


class FileLock(Protocol):
    """A held lock of a store directory."""

    def identity(self) -> Identity:
        """Which lock file is held."""
        ...

    def release(self) -> None:
        """Give the lock back. Releasing twice is harmless."""
        ...


class FileSystem(Protocol):
    """Directories and names. Safe from any thread.

    A link that leads nowhere is not missing: what is to be opened or listed behind it raises StoreError.
    """

    def open(self, path: Path, *, writable: bool = False, create: bool = False, like: Path | None = None) -> File:
        """Open a file; ``create`` makes it where it is missing. Raises FileNotFoundError, StorePermissionError.

        ``like`` is a file that is there, and whose owner and mode this one gets as far as we may give them.
        """
        ...

    def scan(self, path: Path) -> list[Entry]:
        """What is in a directory, sorted by name; empty where the directory is missing."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory."""
        ...

    def identity(self, path: Path) -> Identity | None:
        """Which file or directory a name leads to; None where there is none."""
        ...

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Make a directory and those above it, names durable if ``synced``; fine where it exists."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; fine where it is missing."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; fine where it is missing or not empty."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over another in one step."""
        ...

    def sync_directory(self, *paths: Path) -> None:
        """Return when the names in these directories would survive a power cut; one that is gone has none."""
        ...

    def can_rename(self, source: Path, target: Path) -> bool:
        """Whether a file below ``source`` could be renamed to one below ``target``; either may be missing."""
        ...

    def used_ratio(self, path: Path) -> float:
        """How much of the disk that holds ``path`` is used, from 0 to 1."""
        ...

    def free_bytes(self, path: Path) -> int | None:
        """How much can be written to the disk that ``path``, which may be missing, lies on; None where more may fit."""
        ...

    def lock(self, path: Path, text: bytes) -> FileLock:
        """Take the record lock on byte 0 of ``path`` and write ``text`` into it; raises StoreLockedError."""
        ...
