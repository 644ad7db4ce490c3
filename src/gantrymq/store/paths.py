"""The paths of a store's parts, and the files of a directory that are named by an offset.

Everything is below the root, except a commit log that the settings put elsewhere. Only this module reads
storePathCommitLog and readOnlyCommitLogStorePaths: other code takes the directories of a store from here.

Source: StorePathConfigHelper, MessageStoreConfig.getStorePathCommitLog.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, StoreError
from gantrymq.format import names
from gantrymq.format.names import parse_offset_name
from gantrymq.fs.api import FileSystem


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of the store at ``root``. Make one with :meth:`of` if the commit log may be elsewhere.

    ``elsewhere`` are the directories of storePathCommitLog, empty if it is not set. ``read_only`` are directories that
    hold commit log files and get no new ones.
    """

    root: Path
    elsewhere: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()

    @classmethod
    def of(cls, root: Path, config: MessageStoreConfig) -> StorePaths:
        """Return the paths of the store at ``root`` with these settings."""
        elsewhere, read_only = config.commit_log_directories, config.read_only_commit_log_directories
        return cls(root, tuple(map(Path, elsewhere)), tuple(map(Path, read_only)))

    @property
    def commit_log(self) -> Path:
        """The directory of the commit log; the first one if there are several."""
        return self.commit_logs[0]

    @property
    def commit_logs(self) -> tuple[Path, ...]:
        """All directories of the commit log. Those that get new files come first."""
        writable = self.writable_commit_logs
        return (*writable, *(path for path in self.read_only if path not in writable))

    @property
    def writable_commit_logs(self) -> tuple[Path, ...]:
        """The directories that get new commit log files, sorted by name."""
        given = self.elsewhere or (self.root / names.COMMIT_LOG,)
        return tuple(sorted((path for path in given if path not in self.read_only), key=str)) or given

    def directory_for(self, number: int, full: Collection[Path] = ()) -> Path:
        """Return the directory for commit log file ``number`` (counted from offset 0): round-robin, without ``full``
        ones.

        The choice is RocketMQ's, so that either can continue the other's store. If all directories are full, all are
        used.
        """
        available = [path for path in self.writable_commit_logs if path not in full] or self.writable_commit_logs
        return available[number % len(available)]

    @property
    def consume_queue(self) -> Path:
        """The directory of the consume queues."""
        return self.root / names.CONSUME_QUEUE

    @property
    def consume_queue_ext(self) -> Path:
        """The directory of the extended units of consume queues."""
        return self.root / names.CONSUME_QUEUE_EXT

    @property
    def index(self) -> Path:
        """The directory of the index files."""
        return self.root / names.INDEX

    @property
    def timer_wheel(self) -> Path:
        """The wheel of timer messages."""
        return self.root / names.TIMER_WHEEL

    @property
    def timer_log(self) -> Path:
        """Directory of the timer log."""
        return self.root / names.TIMER_LOG

    @property
    def timer_checkpoint(self) -> Path:
        """The checkpoint of timer messages."""
        return self.config / names.TIMER_CHECKPOINT

    @property
    def timer_metrics(self) -> Path:
        """How many timer messages wait for each topic."""
        return self.config / names.TIMER_METRICS

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.root / names.CHECKPOINT

    @property
    def abort(self) -> Path:
        """The file that exists while the store is open for writing."""
        return self.root / names.ABORT

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.root / names.LOCK

    @property
    def config(self) -> Path:
        """The directory of the configuration JSON files."""
        return self.root / names.CONFIG

    def require_outside(self, target: Path) -> None:
        """Raise StoreError if ``target`` is inside the store, which is only read. Links are followed."""
        for directory in (self.root, *self.commit_logs):
            if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(directory)):
                raise StoreError(target, f"lies in the store {directory}, which is only read")

    def require_own_log(self, config: MessageStoreConfig) -> None:
        """Raise ConfigError if the settings are those of another existing store and name that store's commit log.

        A copy of a store that is opened with the broker.conf of the original would write into the log of the original,
        which the lock of the copy does not protect.
        """
        other = Path(config.store_path_root_dir)
        if not config.store_path_root_dir or not other.is_dir() or other.resolve() == self.root.resolve():
            return
        if any(not Path(os.path.realpath(path)).is_relative_to(self.root.resolve()) for path in self.elsewhere):
            allowed = f"it is for the store {other} (storePathRootDir), not for {self.root}; to use it anyway "
            allowed += f"set storePathRootDir={self.root}"
            raise ConfigError("storePathCommitLog", config.store_path_commit_log, allowed)

    def name_of(self, path: Path) -> Path:
        """Return ``path`` as findings and reports show it: relative to the store, or unchanged if it is elsewhere."""
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path


class OffsetFile(NamedTuple):
    """One file. ``offset`` is the offset in its name, at which it begins."""

    path: Path
    offset: int
    size_bytes: int


def offset_files(fs: FileSystem, directories: Iterable[Path]) -> list[OffsetFile]:
    """Return the files in ``directories`` whose name is an offset, sorted by offset. Other entries are ignored."""
    files = []
    for directory in directories:
        for entry in fs.scan(directory):
            offset = None if entry.is_directory or entry.is_special else parse_offset_name(entry.name)
            if offset is not None:
                files.append(OffsetFile(directory / entry.name, offset, entry.size_bytes))
    return sorted(files, key=lambda file: (file.offset, file.path))
