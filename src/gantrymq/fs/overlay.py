"""A private view of local files: it can be changed, and nothing is ever written.

This is how ``info``, ``dump``, ``query``, ``at`` and ``recover --dry-run`` show what a recovery would leave: the very
code that recovers runs over this view. Existing files are opened for reading only and mapped copy-on-write, so the
kernel keeps the changed pages to this process; new files are anonymous memory that costs nothing until it is touched.

A view that was given :class:`LostPages` goes on where the disk does not give back a page: zeros are put in its place
and it is noted there. Code that shows records must ask :meth:`OverlayFile.lost_in` first.
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
from gantrymq.fs.holes import data_end
from gantrymq.fs.lost_pages import LostPages
from gantrymq.fs.real import RealFileSystem

_ZERO_STRETCH = 1 << 16


class OverlayFile:
    """A file of the view; see :class:`gantrymq.fs.api.File`. Its bytes are an array from the first write on."""

    def __init__(self, path: Path, source: int | None, lost: LostPages | None = None) -> None:
        self._path = path
        self._source = source
        self._lost = lost
        self._array: Bytes | None = np.empty(0, np.uint8) if source is None else None
        self._mapping: pages.Mapping | None = None  # what the array is, unless it is of memory alone
        self._replaced: set[int] = set()  # where the pages of the mapping begin that are zeros in place of lost ones
        self._guard = threading.RLock()

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return self._path

    def size(self) -> int:
        """Its length in bytes."""
        if self._array is not None:
            return len(self._array)
        with named_errors(self._path):
            return os.fstat(self._source_fd()).st_size

    def identity(self) -> Identity:
        """Which file is open; of what is in memory alone, that."""
        if self._source is not None:
            return identity_of(os.fstat(self._source))
        return Identity(0, id(self), self.size())

    def read_at(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position``; fewer only where the file ends."""
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
        """A copy."""
        return np.frombuffer(self.read_at(position, length), np.uint8)

    def data_from(self, position: int) -> int:
        """As the file's, while the view is the file; else nobody has looked."""
        return position if self._array is not None else data_from(self._source_fd(), position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Change the view."""
        if position + len(data) > self.size():
            self.resize(position + len(data))
        array = self.map()
        self.fetch(position, len(data))  # a page that is changed in part is read first
        array[position : position + len(data)] = np.frombuffer(data, np.uint8)

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Change the view."""
        self.write_at(position, data)

    def zero(self, position: int, length: int) -> None:
        """Make the bytes of the view zeros, up to the first stretch that is zeros already.

        Behind the end of what was written a file is zeros; to touch every page of a gigabyte in order to say so
        again would cost that gigabyte in memory.
        """
        end = data_end(self, position, position + length)
        for start in range(position, end, _ZERO_STRETCH):
            stretch = min(_ZERO_STRETCH, end - start)
            if not any(self.read_at(start, stretch)):
                return
            self.map()[start : start + stretch] = 0

    def resize(self, size_bytes: int) -> None:
        """Set the length."""
        old = self.map()
        if size_bytes == len(old):
            return
        grown = np.frombuffer(mmap.mmap(-1, size_bytes), np.uint8) if size_bytes else np.empty(0, np.uint8)
        kept = min(len(old), size_bytes)
        self.fetch(0, kept)
        grown[:kept] = old[:kept]
        self._array, self._mapping = grown, None

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Nothing to take: the view has no disk."""

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
        """Bring mapped bytes into memory; bytes that are only in memory are there."""
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
        """Put zeros in the place of the page at ``position``; returns where the next one begins. Raises ``error``."""
        begin = position - position % pages.PAGE_BYTES
        end = min(begin + pages.PAGE_BYTES, mapping.size_bytes)
        with self._guard:
            if begin not in self._replaced:  # by another thread, and perhaps written to since
                if not pages.replace_by_zeros(mapping, begin):
                    raise error
                self._replaced.add(begin)
        lost.add(self._path, begin, end, error.cause)
        return end

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """The error of the first of these bytes that the disk does not give back and that read as zeros."""
        return self._lost.first(self._path, position, length) if self._lost is not None else None

    def let_go(self, position: int, length: int) -> None:
        """Nothing: what was changed is in the mapping alone."""

    def begin_sync(self) -> None:
        """Nothing to do."""

    def sync(self) -> None:
        """Nothing to write."""

    def close(self) -> None:
        """Give the descriptor back; the view stays as it is, and can be used again."""
        if self._source is not None:
            os.close(self._source)
            self._source = None

    def reopen(self) -> None:
        """Be ready again after :meth:`close`; raises FileNotFoundError where the file is gone and was not changed."""
        if self._array is None:
            self._source_fd()

    def _source_fd(self) -> int:
        with self._guard:
            if self._source is None:
                self._source = open_descriptor(self._path, os.O_RDONLY)
            return self._source

    def __del__(self) -> None:
        """A file that was dropped gives its descriptor back."""
        if self._source is not None:
            os.close(self._source)


class _NoLock:
    def identity(self) -> Identity:
        """Nothing was taken."""
        return Identity(0, 0, 0)

    def release(self) -> None:
        """Nothing was taken."""


class OverlayFileSystem:
    """A view of the local file system; see :class:`gantrymq.fs.api.FileSystem`.

    Files opened for writing, and new ones, are remembered here; names that were removed are remembered as removed.
    With ``lost`` it goes on without what the disk does not give back, which is noted there.
    """

    def __init__(self, lost: LostPages | None = None) -> None:
        self.lost = lost
        self._real = RealFileSystem()
        self._changed: dict[Path, OverlayFile] = {}
        self._removed: set[Path] = set()
        self._directories: set[Path] = set()

    def open(
        self, path: Path, *, writable: bool = False, create: bool = False, like: Path | None = None
    ) -> OverlayFile:
        """Open a file of the view; one that is only read does not stay in memory."""
        if path in self._changed:
            self._changed[path].reopen()
            return self._changed[path]
        file = self._open_source(path, create=create)
        return self._changed.setdefault(path, file) if writable else file

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
        """A file of zeros in place of one that the disk does not open; None in a directory that it does not list."""
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
        """What is in a directory of the view."""
        entries = {entry.name: entry for entry in self._scan_source(path) if path / entry.name not in self._removed}
        for changed, file in list(self._changed.items()):  # any thread may open one meanwhile
            if changed.parent == path:
                entries[changed.name] = Entry(changed.name, file.size(), False, 0)
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
        """Whether the view has a file or a directory of this name."""
        if path in self._changed or path in self._directories:
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
        """Which file or directory of the disk a name leads to; of the view's own, one for all."""
        if path in self._changed:
            return self._changed[path].identity()
        if path in self._directories:
            return Identity(0, 0, 0)
        return None if path in self._removed else self._real.identity(path)

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Remember a directory, and those above it that the view does not have."""
        while not self.exists(path):
            self._directories.add(path)
            path = path.parent

    def remove(self, path: Path) -> None:
        """Remember that a file is gone."""
        self._changed.pop(path, None)
        self._removed.add(path)

    def remove_directory(self, path: Path) -> None:
        """Remember that an empty directory is gone."""
        if not self.scan(path):
            self._directories.discard(path)
            self._removed.add(path)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file within the view."""
        file = self.open(source, writable=True)
        file.map()
        self.remove(source)
        self._removed.discard(target)
        self._changed[target] = file

    def sync_directory(self, *paths: Path) -> None:
        """Nothing to write."""

    def can_rename(self, source: Path, target: Path) -> bool:
        """Always, wherever it is: nothing leaves its disk."""
        return True

    def used_ratio(self, path: Path) -> float:
        """That of the real disk."""
        return self._real.used_ratio(path)

    def free_bytes(self, path: Path) -> int | None:
        """What can be written to it: nothing is, so everything fits."""
        return None

    def lock(self, path: Path, text: bytes) -> FileLock:
        """A view excludes nobody."""
        return _NoLock()

    def close(self) -> None:
        """Forget what was opened and changed.

        Python gives a mapping its own descriptor, which lives as long: all are given back here, but for those of files
        that somebody still has, or an array of.
        """
        self._changed = {}
