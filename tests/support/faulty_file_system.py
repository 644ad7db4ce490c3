"""A file system whose k-th operation fails, so that a test can loop over every k (fault injection).

Every operation that a real disk can refuse is counted (:mod:`gantrymq.fs.intercepted`). A failed sync drops the dirty
pages, as on Linux: a later sync succeeds without them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantrymq.errors import DiskError, DiskFullError, SyncFailedError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.intercepted import InterceptedFile, InterceptedFileSystem
from memory_file_system import MemoryFile


def disk_full(path: Path) -> Exception:
    """The error of a disk without room."""
    return DiskFullError(path, 0)


def broken_disk(path: Path) -> Exception:
    """The error of a disk that cannot read or write (EIO)."""
    return DiskError(path, "Input/output error")


def sync_failed(path: Path, error: Exception) -> SyncFailedError:
    """``error`` as a SyncFailedError, which is what a sync raises."""
    return error if isinstance(error, SyncFailedError) else SyncFailedError(path, getattr(error, "reason", str(error)))


class FaultyFile(InterceptedFile):
    """A file of a :class:`FaultyFileSystem`; see :class:`gantrymq.fs.api.File`."""

    def sync(self) -> None:
        """Call the inner file, or raise the error. Then nothing becomes durable, not even by a later sync."""
        try:
            self._before("sync", self.path)
        except Exception as error:
            if isinstance(self._inner, MemoryFile):
                self._inner.give_up()
            raise sync_failed(self.path, error) from error
        self._inner.sync()


class FaultyFileSystem(InterceptedFileSystem):
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
        super().__init__(inner)
        self.fail_at = fail_at
        self.error = error
        self.keeps_failing = keeps_failing
        self.operations: list[tuple[str, Path]] = []
        self._see = see
        self._guard = threading.Lock()

    def _before(self, operation: str, path: Path) -> None:
        with self._guard:
            self.operations.append((operation, path))
            number = len(self.operations)
            if self._see is not None:
                self._see(number)
        if number == self.fail_at or (self.keeps_failing and 0 < self.fail_at < number):
            raise self.error(path)

    def open(self, path: Path, **options: Any) -> FaultyFile:
        """Call the inner file system, or raise the error."""
        self._before("open", path)
        return FaultyFile(self.inner.open(path, **options), self._before)

    def sync_directory(self, *paths: Path) -> None:
        """Call the inner file system for each directory, or raise the error as a sync does."""
        for path in paths:
            try:
                self._before("sync_directory", path)
            except Exception as error:
                raise sync_failed(path, error) from error
            self.inner.sync_directory(path)
