"""Checks that an executor's host has the files and directories that the driver works on.

Executors get paths, not files. A disk that is not mounted, or a mount of something else, would be read as an empty or a
damaged store, or would receive output that is then missing, without an error. A task therefore compares the log files
that it is about to read with the fingerprints of the driver, and a writing task looks for a file that the driver has
put into the directory for this purpose.

Thread rule: the driver's thread, and a task's own.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark.locations import Location
from gantrymq.spark.log_file import LogFile as OpenLogFile
from gantrymq.spark.log_file import NotThereError
from gantrymq.spark.log_mark import MARK_BYTES, LogEnd, LogMark, require_retention
from gantrymq.store.log.log_reader import LogFile


@dataclass(frozen=True, slots=True)
class Mount:
    """What a task requires of its host; picklable.

    ``marks`` are fingerprints of the beginnings of log files, by path, for files that are readable and not empty.
    ``tokens`` are files that the driver has put into the directories that tasks write to.
    """

    log: Location
    marks: dict[Path, LogMark]
    end: LogEnd | None
    tokens: tuple[Path, ...] = ()

    @classmethod
    def of(cls, files: Sequence[LogFile]) -> Mount:
        """The mount of a log with these files, in one directory or several."""
        directories = tuple(dict.fromkeys(str(file.path.parent) for file in files)) or ("",)
        marks = {file.path: mark for file in files if (mark := _mark(file)) is not None}
        named = (file for file in reversed(files) if file.path.name == offset_name(file.base) and file.path in marks)
        last = next(named, None)
        end = None if last is None else LogEnd(last.base, marks[last.path])
        return cls(Location(directories[0], None, directories if len(directories) > 1 else ()), marks, end)

    def require(self, items: Sequence[object] = ()) -> None:
        """Raise StoreError if this host has another log or lacks a directory.

        ``items`` that are log files are checked too.
        """
        for token in self.tokens:
            if not token.exists():
                raise StoreError(
                    token.parent,
                    f"on host {socket.gethostname()} is not the directory that the driver has there; mount it under "
                    "this path, then run the job again",
                )
        if self.end is not None:
            self._require(self.log / offset_name(self.end.base), self.end.base, self.end.mark, None)
        for item in items:
            if isinstance(item, LogFile) and item.path in self.marks:
                self._require(Location(str(item.path), None, self.log.logs), item.base, self.marks[item.path], self.end)

    def _require(self, location: Location, base: int, mark: LogMark, end: LogEnd | None) -> None:
        """Raise StoreError if a file has another beginning, or is missing for another reason than retention."""
        try:
            with OpenLogFile(location) as opened:
                mark.require(opened)
        except NotThereError as error:
            require_retention(error, location, base, end)


def _mark(file: LogFile) -> LogMark | None:
    """The mark of a file's beginning; None if the beginning is empty or unreadable."""
    size = min(MARK_BYTES, file.size_bytes)
    try:
        with OpenLogFile(Location(str(file.path))) as opened:
            if any(opened.read_readable(0, size)):
                return LogMark.read(opened, 0, size)
    except StoreError:
        pass  # the task that reads the file reports it
    return None


@contextmanager
def shared_directory(mount: Mount, directory: Path) -> Iterator[Mount]:
    """Yield a mount that also requires the existing ``directory``, for the ``with`` block."""
    token = directory / f".seen-by-executors-{uuid.uuid4().hex}"
    token.touch()
    try:
        yield Mount(mount.log, mount.marks, mount.end, (*mount.tokens, token))
    finally:
        token.unlink(missing_ok=True)
