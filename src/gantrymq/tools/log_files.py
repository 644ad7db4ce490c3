"""The files of a commit log as they lie in their directory, whatever is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.recovery.missing_log import one_of_each


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file: ``base`` is the physical offset of its first byte, as its name says.

    ``left_out`` is why none of its records counts, ``doubt`` why they may be of another store; empty else.
    """

    path: Path
    base: int
    size_bytes: int
    left_out: str = ""
    doubt: str = ""

    @property
    def end(self) -> int:
        """The physical offset behind its last byte."""
        return self.base + self.size_bytes


def log_files(fs: FileSystem, paths: StorePaths) -> tuple[list[LogFile], list[Path]]:
    """The files of the log in order, and what else lies in its directories.

    Of two files with one offset, in two directories, the one that does not say that it lies there is among the others.
    """
    kept, _ = one_of_each(fs, offset_files(fs, paths.commit_logs))
    taken = {file.path for file in kept}
    present = (directory / entry.name for directory in paths.commit_logs for entry in fs.scan(directory))
    return [LogFile(*file) for file in kept], [path for path in present if path not in taken]
