"""Checks that the files of an open store are still in place.

A file that another program removes, replaces or truncates stays open: every write and every sync succeeds, and the next
start does not find the messages. RocketMQ does not notice. A flush checks the file that it has synced before it reports
success; this service checks everything else at intervals.

Thread rule: one runner.
"""

from __future__ import annotations

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
        self._log_round, self._index_round = _Round(), _Round()
        self._has_reported = False

    def step(self, now_ms: int) -> bool:
        """Check once whether the files of the store are still in its directories."""
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
            identity = self._fs.identity(path)
            if known is None:
                self._known[path] = identity
            elif identity is None or identity[:2] != known[:2]:
                raise NotInPlaceError(path, "was removed" if identity is None else "was replaced")
        identity = self._fs.identity(self._lock_path)
        if identity is None or identity[:2] != self._lock.identity()[:2]:
            text = "was removed" if identity is None else "was replaced"
            raise NotInPlaceError(self._lock_path, f"{text}, so that a second broker could open the store,")
        for file in self._log_round.due(self._log.queue.files):
            self._log.queue.require_in_place(file)
        index = self._index()
        if index is not None:
            for indexed in self._index_round.due(index.files):
                index.require_in_place(indexed)


class _Round:
    """A walk round a list of files that grows at its end and loses files at its beginning.

    The place of a step is kept, not computed from its number: modulo a list that grows with the number of steps, some
    files would never be due.
    """

    def __init__(self) -> None:
        self._next = 0

    def due(self, files: Sequence[Item]) -> Sequence[Item]:
        """Return the files of the next step, and the newest file."""
        begin = self._next if self._next < len(files) else 0
        self._next = begin + _FILES_A_STEP
        return (*files[begin : self._next], *files[-1:])
