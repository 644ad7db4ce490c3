"""Checks that the files of an open store are still in place.

A file that another program removes, replaces or truncates stays open: every write and every sync succeeds, and the next
start does not find the messages. RocketMQ does not notice. A flush checks the file that it has synced before it reports
success; this service checks everything else at intervals.

Thread rule: one runner.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gantrymq.errors import NotInPlaceError
from gantrymq.fs.api import FileLock, FileSystem, Identity
from gantrymq.store.index.index_service import IndexService
from gantrymq.store.log.commit_log import CommitLog

Item = TypeVar("Item")

_FILES_A_STEP = 64


class StoreWatch:
    """Raises NotInPlaceError, once, for the first file or directory that is no longer in its place.

    ``directories`` are checked from the time that they exist. Each step checks the newest file of the log and of the
    index, and some of the older ones in turn.
    """

    name = "StoreWatch"
    interval_ms = 500

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[Path],
        lock_path: Path,
        lock: FileLock,
        log: CommitLog,
        index: Callable[[], IndexService | None],
    ) -> None:
        self._fs = fs
        self._known: dict[Path, Identity | None] = {path: fs.identity(path) for path in directories}
        self._lock_path, self._lock = lock_path, lock
        self._log, self._index = log, index
        self._turns = itertools.count()
        self._has_reported = False

    def step(self, now_ms: int) -> bool:
        """Check once."""
        if self._has_reported:
            return False
        try:
            self._look()
        except NotInPlaceError:
            self._has_reported = True
            raise
        return False

    def drain(self) -> None:
        """Do nothing: the last flush has checked what it flushed."""

    def _look(self) -> None:
        for path, known in self._known.items():
            found = self._fs.identity(path)
            if known is None:
                self._known[path] = found
            elif found is None or found[:2] != known[:2]:
                raise NotInPlaceError(path, "was removed" if found is None else "was replaced")
        found = self._fs.identity(self._lock_path)
        if found is None or found[:2] != self._lock.identity()[:2]:
            text = "was removed" if found is None else "was replaced"
            raise NotInPlaceError(self._lock_path, f"{text}, so that a second broker could open the store,")
        turn, index = next(self._turns), self._index()
        for file in _due(self._log.queue.files, turn):
            self._log.queue.require_in_place(file)
        for indexed in _due(index.files, turn) if index is not None else ():
            if index is not None:
                index.require_in_place(indexed)


def _due(files: Sequence[Item], turn: int) -> Sequence[Item]:
    """Return the newest file, and the older files whose turn it is."""
    begin = turn * _FILES_A_STEP % max(len(files), 1)
    begin -= begin % _FILES_A_STEP
    return (*files[begin : begin + _FILES_A_STEP], *files[-1:])
