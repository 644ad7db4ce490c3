"""A private view of local files whose changes are never written.

``info``, ``dump``, ``query``, ``at`` and ``recover --dry-run`` run the recovery over this view, and so show exactly
what it would leave. Existing files are opened read-only and mapped copy-on-write, so changed pages stay in this
process. New files are anonymous memory, which costs nothing until it is touched.

A view with :class:`LostPages` continues when the disk cannot read a page: zeros replace the page, and it is noted
there. Code that shows records must call :meth:`OverlayFile.lost_in` first.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import numpy as np

from gantrymq.errors import DiskError, StorePermissionError
from gantrymq.fs import pages
from gantrymq.fs.api import Bytes, Entry, FileLock, Identity
from gantrymq.fs.descriptors import data_from, identity_of, named_errors, open_descriptor
from gantrymq.fs.reads import LostPages, data_end
from gantrymq.fs.real import RealFileSystem

_ZERO_STRETCH = 1 << 16


class OverlayFile:
    """A file of the view; see :class:`gantrymq.fs.api.File`. From the first write on its bytes are in an array."""

    def __init__(self, path: Path, source: int | None, lost: LostPages | None = None) -> None:
        self._path = path
        self._source = source
        self._lost = lost
        self._array: Bytes | None = np.empty(0, np.uint8) if source is None else None
        self._mapping: pages.Mapping | None = None  # the mapping behind the array, unless that is anonymous memory
        self._replaced: set[int] = set()  # the positions of lost pages that zeros have replaced
        self._guard = threading.RLock()

    @property
    def path(self) -> Path:
        """The path of the file in the view."""
        return self._path

    def size(self) -> int:
        """Its length in bytes."""
        if self._array is not None:
            return len(self._array)
        with named_errors(self._path):
            return os.fstat(self._source_fd()).st_size

    def identity(self) -> Identity:
        """The identity of the open file, or of the one in memory."""
        if self._source is not None:
            return identity_of(os.fstat(self._source))
        return Identity(0, id(self), self.size())

    def read_at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``; fewer only at the end of the file."""
        if self._array is None:
            try:
                return pages.read_at(self._source_fd(), self._path, position, length)
            except DiskError:
                if self._lost is None:
                    raise
        array = self.map()
        self.fetch(position, length)
        return array[position : position + length].tobytes()

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """A copy of the bytes."""
        return np.frombuffer(self.read_at(position, length), np.uint8)

    def data_from(self, position: int) -> int:
        """Like the real file while the view is unchanged; otherwise ``position``."""
        return position if self._array is not None else data_from(self._source_fd(), position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Change the bytes in memory only; the file on the disk stays as it is."""
        if position + len(data) > self.size():
            self.resize(position + len(data))
        array = self.map()
        self.fetch(position, len(data))  # a partial change of a page reads the page first
        array[position : position + len(data)] = np.frombuffer(data, np.uint8)

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Change the bytes in memory only; the file on the disk stays as it is."""
        self.write_at(position, data)

    def zero(self, position: int, length: int) -> None:
        """Zero the bytes of the view, up to the first stretch that is zero already.

        A file is zero after its written part; touching every page of it would cost that much memory.
        """
        end = data_end(self, position, position + length)
        for start in range(position, end, _ZERO_STRETCH):
            stretch = min(_ZERO_STRETCH, end - start)
            raw = self.read_at(start, stretch)
            if raw == bytes(len(raw)):
                return
            self.map()[start : start + stretch] = 0

    def resize(self, size_bytes: int) -> None:
        """Set the length in memory only."""
        old = self.map()
        if size_bytes == len(old):
            return
        grown = np.frombuffer(mmap.mmap(-1, size_bytes), np.uint8) if size_bytes else np.empty(0, np.uint8)
        copied_bytes = min(len(old), size_bytes)
        self.fetch(0, copied_bytes)
        grown[:copied_bytes] = old[:copied_bytes]
        self._array, self._mapping = grown, None

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Does nothing: the view has no disk."""

    def map(self) -> Bytes:
        """The whole file as a writable array whose changes stay in this process."""
        with self._guard:
            if self._array is None:
                fd = self._source_fd()
                if os.fstat(fd).st_size:
                    self._mapping = pages.Mapping.of(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
                    self._array = self._mapping.array
                else:
                    self._array = np.empty(0, np.uint8)
            return self._array

    def fetch(self, position: int, length: int) -> None:
        """Load mapped bytes into memory. Anonymous memory needs no loading."""
        end = position + length
        while (mapping := self._mapping) is not None and position < (end := min(end, mapping.size_bytes)):
            try:
                return pages.fetch(mapping, self._source_fd, self._path, position, end - position)
            except DiskError as error:
                if self._lost is None or error.position is None:
                    raise
                position = self._go_without(self._lost, mapping, error, error.position)
        return None

    def _go_without(self, lost: LostPages, mapping: pages.Mapping, error: DiskError, position: int) -> int:
        """Replace the page at ``position`` by zeros. Returns the next page's position.

        Raises ``error`` if that fails.
        """
        begin = position - position % pages.PAGE_BYTES
        end = min(begin + pages.PAGE_BYTES, mapping.size_bytes)
        with self._guard:
            if begin not in self._replaced:  # otherwise another thread did, and it may have been written since
                if not pages.replace_by_zeros(mapping, begin):
                    raise error
                self._replaced.add(begin)
        lost.add(self._path, begin, end, error.cause)
        return end

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """The error of the first of these bytes that reads as zero because the disk cannot read it."""
        return self._lost.first(self._path, position, length) if self._lost is not None else None

    def release_pages(self, position: int, length: int) -> None:
        """Does nothing: changes are only in the mapping."""

    def begin_sync(self) -> None:
        """Does nothing, because no byte goes to a disk."""

    def sync(self) -> None:
        """Does nothing, because no byte goes to a disk."""

    def close(self) -> None:
        """Close the descriptor; the view keeps its changes, and can be used again."""
        if self._source is not None:
            os.close(self._source)
            self._source = None

    def reopen(self) -> None:
        """Open again after :meth:`close`. Raises FileNotFoundError if the file is gone and was not changed."""
        if self._array is None:
            self._source_fd()

    def _source_fd(self) -> int:
        with self._guard:
            if self._source is None:
                self._source = open_descriptor(self._path, os.O_RDONLY)
            return self._source

    def __del__(self) -> None:
        """Close the descriptor of a dropped file."""
        if self._source is not None:
            os.close(self._source)


class _NoLock:
    def identity(self) -> Identity:
        """No effect: no lock is held."""
        return Identity(0, 0, 0)

    def release(self) -> None:
        """No effect: no lock is held."""


class OverlayFileSystem:
    """A view of the local file system; see :class:`gantrymq.fs.api.FileSystem`.

    Files opened for writing, new files and removed names are kept here. With ``lost`` the view continues without what
    the disk cannot read, and notes that in ``lost``.
    """

    def __init__(self, lost: LostPages | None = None) -> None:
        self.lost = lost
        self._real = RealFileSystem()
        # Changed files by directory and name, because a view of ten thousand queues lists each of their directories.
        self._changed: dict[Path, dict[str, OverlayFile]] = {}
        self._removed: set[Path] = set()
        self._directories: set[Path] = set()

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        like: Path | None = None,
        is_private: bool = False,
    ) -> OverlayFile:
        """Open a file of the view; only files opened for writing are kept."""
        if (changed := self._changed_file(path)) is not None:
            changed.reopen()
            return changed
        file = self._open_source(path, create=create)
        return self._changed.setdefault(path.parent, {}).setdefault(path.name, file) if writable else file

    def _changed_file(self, path: Path) -> OverlayFile | None:
        return self._changed.get(path.parent, {}).get(path.name)

    def _open_source(self, path: Path, *, create: bool) -> OverlayFile:
        if path not in self._removed:
            try:
                return OverlayFile(path, open_descriptor(path, os.O_RDONLY), self.lost)
            except FileNotFoundError:
                if not create:
                    raise
            except DiskError as error:
                if (file := self._open_lost(path, error)) is not None:
                    return file
                if not create:
                    raise FileNotFoundError(path) from None
        elif not create:
            raise FileNotFoundError(path)
        self._removed.discard(path)
        return OverlayFile(path, None, self.lost)

    def _open_lost(self, path: Path, error: DiskError) -> OverlayFile | None:
        """A file of zeros in place of one that the disk cannot open; None in a directory that it cannot list."""
        if self.lost is None:
            raise error
        try:
            size_bytes = os.stat(path).st_size
        except OSError:
            self.lost.add_directory(path.parent, error)
            return None
        file = OverlayFile(path, None, self.lost)
        file.resize(size_bytes)
        self.lost.add(path, 0, size_bytes, error.cause)
        return file

    def scan(self, path: Path) -> list[Entry]:
        """The entries of a directory of the view."""
        entries = {entry.name: entry for entry in self._scan_source(path) if path / entry.name not in self._removed}
        for name, file in list(self._changed.get(path, {}).items()):  # another thread may open a file meanwhile
            entries[name] = Entry(name, file.size(), False, 0)
        for directory in list(self._directories):
            if directory.parent == path and directory.name not in entries:
                entries[directory.name] = Entry(directory.name, 0, True, 0)
        return sorted(entries.values(), key=lambda entry: entry.name)

    def _scan_source(self, path: Path) -> list[Entry]:
        try:
            return self._real.scan(path)
        except (DiskError, StorePermissionError) as error:
            if self.lost is None:
                raise
            self.lost.add_directory(path, error)
            return []

    def exists(self, path: Path) -> bool:
        """Whether the view has a file or directory of this name."""
        if self._changed_file(path) is not None or path in self._directories:
            return True
        return path not in self._removed and self._has_source(path)

    def _has_source(self, path: Path) -> bool:
        try:
            return self._real.exists(path)
        except DiskError as error:
            if self.lost is None:
                raise
            self.lost.add_directory(path.parent, error)
            return False

    def identity(self, path: Path) -> Identity | None:
        """The identity of the file or directory of this name; one identity for all new directories."""
        if (changed := self._changed_file(path)) is not None:
            return changed.identity()
        if path in self._directories:
            return Identity(0, 0, 0)
        return None if path in self._removed else self._real.identity(path)

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Add a directory, and its missing parents, to the view."""
        while not self.exists(path):
            self._directories.add(path)
            path = path.parent

    def remove(self, path: Path) -> None:
        """Remove a file from the view."""
        self._changed.get(path.parent, {}).pop(path.name, None)
        self._removed.add(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory from the view."""
        if not self.scan(path):
            self._directories.discard(path)
            self._removed.add(path)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file within the view."""
        file = self.open(source, writable=True)
        file.map()
        self.remove(source)
        self._removed.discard(target)
        self._changed.setdefault(target.parent, {})[target.name] = file

    def sync_directory(self, *paths: Path) -> None:
        """Does nothing, because no byte goes to a disk."""

    def can_rename(self, source: Path, target: Path) -> bool:
        """Always True: the view has no disk."""
        return True

    def used_ratio(self, path: Path) -> float:
        """The used part of the real disk."""
        return self._real.used_ratio(path)

    def free_bytes(self, path: Path) -> int | None:
        """None: nothing is written, so everything fits."""
        return None

    def lock(self, path: Path, text: bytes) -> FileLock:
        """A lock without an effect: a view excludes no writer."""
        return _NoLock()

    def close(self) -> None:
        """Drop all opened and changed files.

        A Python mapping has its own descriptor. All mappings are closed here, except those of files and arrays in use.
        """
        self._changed = {}
