"""A file system whose k-th operation fails, so that a test can loop over every k (fault injection).

Every operation that a real disk can refuse is counted; sizes of open files and writes to a mapping are not. A failed
sync drops the dirty pages, as on Linux: a later sync succeeds without them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from gantrymq.errors import DiskError, DiskFullError, SyncFailedError
from gantrymq.fs.api import Bytes, Entry, File, FileLock, FileSystem, Identity
from gantrymq.fs.memory import MemoryFile


def disk_full(path: Path) -> Exception:
    """The error of a disk without room."""
    return DiskFullError(path, 0)


def broken_disk(path: Path) -> Exception:
    """The error of a disk that cannot read or write (EIO)."""
    return DiskError(path, "Input/output error")


def sync_failed(path: Path, error: Exception) -> SyncFailedError:
    """``error`` as a SyncFailedError, which is what a sync raises."""
    return error if isinstance(error, SyncFailedError) else SyncFailedError(path, getattr(error, "reason", str(error)))


class FaultyFile:
    """A file of a :class:`FaultyFileSystem`; see :class:`gantrymq.fs.api.File`."""

    def __init__(self, inner: File, count: Callable[[str, Path], None]) -> None:
        self._inner = inner
        self._count = count

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._inner.path

    def size(self) -> int:
        """Its length in bytes."""
        return self._inner.size()

    def identity(self) -> Identity:
        """Call the inner file."""
        return self._inner.identity()

    def read_at(self, position: int, length: int) -> bytes:
        """Call the inner file, or raise the error."""
        self._count("read_at", self.path)
        return self._inner.read_at(position, length)

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """Call the inner file, or raise the error. Counts as read_at."""
        self._count("read_at", self.path)
        return self._inner.view(position, length, read_ahead=read_ahead)

    def data_from(self, position: int) -> int:
        """Call the inner file. Not counted, because the disk is not used."""
        return self._inner.data_from(position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write to the inner file, or raise the error and write nothing."""
        self._count("write_at", self.path)
        self._inner.write_at(position, data)

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Write to the inner file, or raise the error and write nothing."""
        self._count("write_at", self.path)
        self._inner.write_past_cache(position, data)

    def zero(self, position: int, length: int) -> None:
        """Call the inner file, or raise the error."""
        self._count("zero", self.path)
        self._inner.zero(position, length)

    def resize(self, size_bytes: int) -> None:
        """Call the inner file, or raise the error."""
        self._count("resize", self.path)
        self._inner.resize(size_bytes)

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Call the inner file, or raise the error."""
        self._count("reserve", self.path)
        self._inner.reserve(position, length, leave=leave)

    def map(self) -> Bytes:
        """Call the inner file, or raise the error."""
        self._count("map", self.path)
        return self._inner.map()

    def fetch(self, position: int, length: int) -> None:
        """Call the inner file, or raise the error. Counts as read_at."""
        self._count("read_at", self.path)
        self._inner.fetch(position, length)

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """Call the inner file."""
        return self._inner.lost_in(position, length)

    def release_pages(self, position: int, length: int) -> None:
        """Call the inner file. Not counted, because the disk is not used."""
        self._inner.release_pages(position, length)

    def begin_sync(self) -> None:
        """Call the inner file. Not counted, because the sync reports errors."""
        self._inner.begin_sync()

    def sync(self) -> None:
        """Call the inner file, or raise the error. Then nothing becomes durable, not even by a later sync."""
        try:
            self._count("sync", self.path)
        except Exception as error:
            if isinstance(self._inner, MemoryFile):
                self._inner.give_up()
            raise sync_failed(self.path, error) from error
        self._inner.sync()

    def close(self) -> None:
        """Call the inner file."""
        self._inner.close()


class FaultyFileSystem:
    """``inner``, except that operation number ``fail_at`` (from 1 on) raises ``error(path)``; see :class:`FileSystem`.

    ``operations`` are those so far, in order: if there are fewer than ``fail_at``, nothing failed. ``fail_at`` may be
    changed at any time. With ``keeps_failing`` all later operations fail too. ``see(number)`` is called before each
    operation.
    """

    def __init__(
        self,
        inner: FileSystem,
        fail_at: int = 0,
        error: Callable[[Path], Exception] = disk_full,
        *,
        keeps_failing: bool = False,
        see: Callable[[int], None] | None = None,
    ) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.error = error
        self.keeps_failing = keeps_failing
        self.operations: list[tuple[str, Path]] = []
        self._see = see
        self._guard = threading.Lock()

    def _count(self, operation: str, path: Path) -> None:
        with self._guard:
            self.operations.append((operation, path))
            number = len(self.operations)
            if self._see is not None:
                self._see(number)
        if number == self.fail_at or (self.keeps_failing and 0 < self.fail_at < number):
            raise self.error(path)

    def open(self, path: Path, *, writable: bool = False, create: bool = False, like: Path | None = None) -> FaultyFile:
        """Call the inner file system, or raise the error."""
        self._count("open", path)
        return FaultyFile(self.inner.open(path, writable=writable, create=create, like=like), self._count)

    def scan(self, path: Path) -> list[Entry]:
        """Call the inner file system, or raise the error."""
        self._count("scan", path)
        return self.inner.scan(path)

    def exists(self, path: Path) -> bool:
        """Call the inner file system."""
        return self.inner.exists(path)

    def identity(self, path: Path) -> Identity | None:
        """Call the inner file system."""
        return self.inner.identity(path)

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Call the inner file system, or raise the error."""
        self._count("make_directory", path)
        self.inner.make_directory(path, synced=synced)

    def remove(self, path: Path) -> None:
        """Call the inner file system, or raise the error."""
        self._count("remove", path)
        self.inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        """Call the inner file system, or raise the error."""
        self._count("remove_directory", path)
        self.inner.remove_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """Call the inner file system, or raise the error."""
        self._count("rename", source)
        self.inner.rename(source, target)

    def sync_directory(self, *paths: Path) -> None:
        """Call the inner file system for each directory, or raise the error."""
        for path in paths:
            try:
                self._count("sync_directory", path)
            except Exception as error:
                raise sync_failed(path, error) from error
            self.inner.sync_directory(path)

    def can_rename(self, source: Path, target: Path) -> bool:
        """Call the inner file system."""
        return self.inner.can_rename(source, target)

    def used_ratio(self, path: Path) -> float:
        """Call the inner file system."""
        return self.inner.used_ratio(path)

    def free_bytes(self, path: Path) -> int | None:
        """Call the inner file system."""
        return self.inner.free_bytes(path)

    def lock(self, path: Path, text: bytes) -> FileLock:
        """Call the inner file system, or raise the error."""
        self._count("lock", path)
        return self.inner.lock(path, text)
