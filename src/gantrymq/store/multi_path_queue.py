"""A commit log in several directories: each new file goes into the next one that has room.

:meth:`StorePaths.directory_for` chooses it. A file is found wherever it lies.

Source: MultiPathMappedFileQueue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from gantrymq.fs.api import FileSystem
from gantrymq.store.mapped_file import MappedFile
from gantrymq.store.mapped_file_queue import MappedFileQueue
from gantrymq.store.paths import StorePaths
from gantrymq.store.remedies import SALVAGE


class MultiPathMappedFileQueue(MappedFileQueue):
    """The files of the commit log in the directories of ``paths``; ``full_directories()`` get no new file."""

    def __init__(
        self, fs: FileSystem, paths: StorePaths, file_size: int, equip: Callable[[MappedFile], None] | None
    ) -> None:
        super().__init__(fs, paths.commit_log, file_size, reserve_space=True, equip=equip, remedy=SALVAGE)
        self.full_directories: Callable[[], Collection[Path]] = tuple
        self._paths = paths

    @property
    def _directories(self) -> tuple[Path, ...]:
        return self._paths.commit_logs

    def _directory_for(self, offset: int) -> Path:
        return self._paths.directory_for(offset // self.file_size, self.full_directories())
