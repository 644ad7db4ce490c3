"""A file system that calls a hook before each operation: the base of those that refuse operations.

The hook gets the name of the operation and its path, and may raise. It is called for what a real disk can refuse. It is
not called where the disk is not used: for sizes of open files, identities, holes, and writes to a mapping. ``view`` and
``fetch`` count as ``read_at``, ``write_past_cache`` as ``write_at``.

Thread rule: any thread, as the inner file system.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantrymq.errors import DiskError
from gantrymq.fs.api import Bytes, Entry, File, FileLock, FileSystem, Identity

Hook = Callable[[str, Path], None]


class InterceptedFile:
    """A file of an :class:`InterceptedFileSystem`; see :class:`gantrymq.fs.api.File`."""

    def __init__(self, inner: File, before: Hook) -> None:
        self._inner, self._before = inner, before

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
        """Call the hook, then the inner file."""
        self._before("read_at", self.path)
        return self._inner.read_at(position, length)

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """Call the hook, then the inner file."""
        self._before("read_at", self.path)
        return self._inner.view(position, length, read_ahead=read_ahead)

    def data_from(self, position: int) -> int:
        """Call the inner file."""
        return self._inner.data_from(position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Call the hook, then the inner file."""
        self._before("write_at", self.path)
        self._inner.write_at(position, data)

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Call the hook, then the inner file."""
        self._before("write_at", self.path)
        self._inner.write_past_cache(position, data)

    def zero(self, position: int, length: int) -> None:
        """Call the hook, then the inner file."""
        self._before("zero", self.path)
        self._inner.zero(position, length)

    def resize(self, size_bytes: int) -> None:
        """Call the hook, then the inner file."""
        self._before("resize", self.path)
        self._inner.resize(size_bytes)

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Call the hook, then the inner file."""
        self._before("reserve", self.path)
        self._inner.reserve(position, length, leave=leave)

    def map(self) -> Bytes:
        """Call the hook, then the inner file."""
        self._before("map", self.path)
        return self._inner.map()

    def fetch(self, position: int, length: int) -> None:
        """Call the hook, then the inner file."""
        self._before("read_at", self.path)
        self._inner.fetch(position, length)

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """Call the inner file."""
        return self._inner.lost_in(position, length)

    def release_pages(self, position: int, length: int) -> None:
        """Call the inner file."""
        self._inner.release_pages(position, length)

    def begin_sync(self) -> None:
        """Call the inner file: the sync itself reports errors."""
        self._inner.begin_sync()

    def sync(self) -> None:
        """Call the hook, then the inner file."""
        self._before("sync", self.path)
        self._inner.sync()

    def close(self) -> None:
        """Call the inner file."""
        self._inner.close()


class InterceptedFileSystem:
    """``inner``, with a hook before each operation; see :class:`gantrymq.fs.api.FileSystem`."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner

    def _before(self, operation: str, path: Path) -> None:
        """The hook: called before the operation is passed on. It may raise."""

    def open(self, path: Path, **options: Any) -> InterceptedFile:
        """Call the hook, then the inner file system. The file calls the same hook."""
        self._before("open", path)
        return InterceptedFile(self.inner.open(path, **options), self._before)

    def scan(self, path: Path) -> list[Entry]:
        """Call the hook, then the inner file system."""
        self._before("scan", path)
        return self.inner.scan(path)

    def exists(self, path: Path) -> bool:
        """Call the inner file system."""
        return self.inner.exists(path)

    def identity(self, path: Path) -> Identity | None:
        """Call the inner file system."""
        return self.inner.identity(path)

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Call the hook, then the inner file system."""
        self._before("make_directory", path)
        self.inner.make_directory(path, synced=synced)

    def remove(self, path: Path) -> None:
        """Call the hook, then the inner file system."""
        self._before("remove", path)
        self.inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        """Call the hook, then the inner file system."""
        self._before("remove_directory", path)
        self.inner.remove_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """Call the hook with ``source``, then the inner file system."""
        self._before("rename", source)
        self.inner.rename(source, target)

    def sync_directory(self, *paths: Path) -> None:
        """Call the hook for each directory, then the inner file system once."""
        for path in paths:
            self._before("sync_directory", path)
        self.inner.sync_directory(*paths)

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
        """Call the hook, then the inner file system. The hook is not called when the lock is released."""
        self._before("lock", path)
        return self.inner.lock(path, text)
