"""A file system that simulates SIGKILL: after ``kill()`` every change raises DiskError.

Until :meth:`KillableFileSystem.kill` every call goes to the inner file system. Afterwards written bytes stay as they
are, as in the page cache after a kill. Only descriptors and the lock can still be released.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.errors import DiskError
from gantrymq.fs.api import Bytes, Entry, File, FileLock, FileSystem, Identity


class KillableFile:
    """A file of a :class:`KillableFileSystem`; see :class:`gantrymq.fs.api.File`."""

    def __init__(self, inner: File, require_alive: Callable[[Path], None]) -> None:
        self._inner, self._require_alive = inner, require_alive

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
        """Call the inner file."""
        return self._inner.read_at(position, length)

    def view(self, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        """Call the inner file."""
        return self._inner.view(position, length, read_ahead=read_ahead)

    def data_from(self, position: int) -> int:
        """Call the inner file."""
        return self._inner.data_from(position)

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.write_at(position, data)

    def write_past_cache(self, position: int, data: bytes | memoryview) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.write_past_cache(position, data)

    def zero(self, position: int, length: int) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.zero(position, length)

    def resize(self, size_bytes: int) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.resize(size_bytes)

    def reserve(self, position: int, length: int, *, leave: int = 0) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.reserve(position, length, leave=leave)

    def map(self) -> Bytes:
        """Call the inner file. Writes to the mapping still reach it after a kill: stop their writers first."""
        return self._inner.map()

    def fetch(self, position: int, length: int) -> None:
        """Call the inner file."""
        self._inner.fetch(position, length)

    def lost_in(self, position: int, length: int) -> DiskError | None:
        """Call the inner file."""
        return self._inner.lost_in(position, length)

    def release_pages(self, position: int, length: int) -> None:
        """Call the inner file."""
        self._inner.release_pages(position, length)

    def begin_sync(self) -> None:
        """Call the inner file, also after a kill: it changes nothing."""
        self._inner.begin_sync()

    def sync(self) -> None:
        """Call the inner file. Raises DiskError after a kill."""
        self._require_alive(self.path)
        self._inner.sync()

    def close(self) -> None:
        """Call the inner file."""
        self._inner.close()


class KillableFileSystem:
    """``inner`` until :meth:`kill`; see :class:`gantrymq.fs.api.FileSystem`. Thread rule: any thread."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self.is_dead = False

    def kill(self) -> None:
        """Refuse every change from now on."""
        self.is_dead = True

    def _require_alive(self, path: Path) -> None:
        if self.is_dead:
            raise DiskError(path, "its process was killed")

    def open(
        self, path: Path, *, writable: bool = False, create: bool = False, like: Path | None = None
    ) -> KillableFile:
        """Call the inner file system. Raises DiskError after a kill."""
        self._require_alive(path)
        return KillableFile(self._inner.open(path, writable=writable, create=create, like=like), self._require_alive)

    def scan(self, path: Path) -> list[Entry]:
        """Call the inner file system."""
        return self._inner.scan(path)

    def exists(self, path: Path) -> bool:
        """Call the inner file system."""
        return self._inner.exists(path)

    def identity(self, path: Path) -> Identity | None:
        """Call the inner file system."""
        return self._inner.identity(path)

    def make_directory(self, path: Path, *, synced: bool = True) -> None:
        """Call the inner file system. Raises DiskError after a kill."""
        self._require_alive(path)
        self._inner.make_directory(path, synced=synced)

    def remove(self, path: Path) -> None:
        """Call the inner file system. Raises DiskError after a kill."""
        self._require_alive(path)
        self._inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        """Call the inner file system. Raises DiskError after a kill."""
        self._require_alive(path)
        self._inner.remove_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """Call the inner file system. Raises DiskError after a kill."""
        self._require_alive(source)
        self._inner.rename(source, target)

    def sync_directory(self, *paths: Path) -> None:
        """Call the inner file system. Raises DiskError after a kill."""
        for path in paths:
            self._require_alive(path)
        self._inner.sync_directory(*paths)

    def can_rename(self, source: Path, target: Path) -> bool:
        """Call the inner file system."""
        return self._inner.can_rename(source, target)

    def used_ratio(self, path: Path) -> float:
        """Call the inner file system."""
        return self._inner.used_ratio(path)

    def free_bytes(self, path: Path) -> int | None:
        """Call the inner file system."""
        return self._inner.free_bytes(path)

    def lock(self, path: Path, text: bytes) -> FileLock:
        """Call the inner file system. Raises DiskError after a kill. A held lock can still be released."""
        self._require_alive(path)
        return self._inner.lock(path, text)
