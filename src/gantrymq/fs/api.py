"""The file system interface of the store, as protocols.

Implementations: :mod:`gantrymq.fs.real` (local files), :mod:`gantrymq.fs.overlay` (a private view of local files whose
changes are never written) and ``memory_file_system`` of tests/ (it knows what was synced).

A file has two access paths. ``read_at`` and ``write_at`` copy bytes. ``map`` gives an array over the whole file; a
write to the array is a write to the file, and ``sync`` makes both durable. Reserve the space of a mapped file first, so
that a full disk is a DiskFullError and not a signal.
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
    """One name in a directory. ``size_bytes`` is 0 for a directory. A link has the values of its target.

    ``is_special``: a socket, a pipe or a device. Opening one may block for ever.
    """

    name: str
    size_bytes: int
    is_directory: bool
    modified_ms: int
    is_link: bool = False
    is_special: bool = False


class Identity(NamedTuple):
    """The identity of a named or open file: the same file has the same first two numbers."""

    device: int
    inode: int
    size_bytes: int


class File(Protocol):
    """An open file. Thread rule: any thread reads; two threads must not write the same bytes at the same time."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        ...

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def identity(self) -> Identity:
        """The identity of the open file."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``; fewer only at the end of the file. Raises DiskError with its position."""
        ...

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """Like :meth:`read_at`, as a read-only array; a part of a mapping if possible.

        The bytes are in memory, so an unreadable disk is an error here, as in read_at. Without ``read_ahead`` no bytes
        after them are read, because :meth:`data_from` does not count pages in memory as a hole.
        """
        ...

    def data_from(self, position: int) -> int:
        """The first position at or after ``position`` that is not known to be zero; the size if there is none.

        A file system knows the holes of a file, so a gigabyte of zeros need not be read.
        """
        ...

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of ``data`` at ``position``. Raises DiskFullError."""
        ...

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Like :meth:`write_at`, bypassing the page cache if possible.

        For whole pages (4096 bytes) in page-aligned memory that are not read soon.
        """
        ...

    def zero(self, position: int, length: int) -> None:
        """Make the bytes read as zeros. The size of the file does not change."""
        ...

    def resize(self, size_bytes: int) -> None:
        """Set the size; new bytes are zeros without space."""
        ...

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Allocate the space of these bytes now. Raises DiskFullError, also if less than ``leave`` would be left."""
        ...

    def map(self) -> Bytes:
        """The whole file as a 1-D uint8 array, writable if the file is open for writing.

        The mapping lives as long as the array or a view of it, also after :meth:`close`.
        """
        ...

    def fetch(self, position: int, length: int) -> None:
        """Load these bytes of the array of :meth:`map` into memory. Raises DiskError with its position.

        Access to a mapped page that the disk cannot read ends the process (SIGBUS). Call this first.
        """
        ...

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """The error of the first of these bytes that reads as zero because the disk cannot read it, or None.

        Always None except in a view that continues without such bytes; other files raise the error on a read.
        """
        ...

    def release_pages(self, position: int, length: int) -> None:
        """Unmap whole pages within these bytes; the next access maps them again. No data is lost.

        Call it before a sync for bytes that will not be written again: each dirty mapped page costs the sync an
        interrupt of every processor.
        """
        ...

    def begin_sync(self) -> None:
        """Start writing what a later :meth:`sync` waits for; the sync reports errors.

        For syncs of several files: the disk gets the work of all of them at once.
        """
        ...

    def sync(self) -> None:
        """Return when every byte written so far, through mappings too, is durable."""
        ...

    def close(self) -> None:
        """Close the descriptor. A second call has no effect."""
        ...


class FileLock(Protocol):
    """A held lock on a store directory."""

    def identity(self) -> Identity:
        """The identity of the lock file."""
        ...

    def release(self) -> None:
        """Release the lock. A second call has no effect."""
        ...


class FileSystem(Protocol):
    """Directories and names. Thread rule: any thread.

    A dangling link does not count as missing: opening or listing it raises StoreError.
    """

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        like: Path | None = None,
        is_private: bool = False,
    ) -> File:
        """Open a file; with ``create`` create it if it is missing. Raises FileNotFoundError, StorePermissionError.

        A new file gets the owner and mode of the existing file ``like``, as far as the process may set them. One that
        ``is_private`` is readable and writable by its owner only, from its creation on.
        """
        ...

    def scan(self, path: Path) -> list[Entry]:
        """The entries of a directory, sorted by name; empty if it is missing."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        ...

    def identity(self, path: Path) -> Identity | None:
        """The identity of the file or directory of this name; None if there is none."""
        ...

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Create a directory and its parents, durable if ``synced``. An existing one is fine."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file. A missing one is fine."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. One that is missing or not empty is fine."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace ``target`` by ``source`` in one step."""
        ...

    def sync_directory(self, *paths: Path) -> None:
        """Return when the names in these directories are durable. A missing directory is fine."""
        ...

    def can_rename(self, source: Path, target: Path) -> bool:
        """Whether a file below ``source`` can be renamed to one below ``target``; either may be missing."""
        ...

    def used_ratio(self, path: Path) -> float:
        """The used part of the disk of ``path``, from 0 to 1."""
        ...

    def free_bytes(self, path: Path) -> int | None:
        """The free bytes of the disk of ``path``, which may be missing; None if more data may fit (compression)."""
        ...

    def lock(self, path: Path, text: bytes) -> FileLock:
        """Lock byte 0 of ``path`` (a record lock) and write ``text`` into it. Raises StoreLockedError."""
        ...
