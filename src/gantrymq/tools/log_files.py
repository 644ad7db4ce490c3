"""The files of a commit log as they lie in their directory, whatever is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gantrymq.format.names import parse_offset_name
from gantrymq.fs.api import Entry, FileSystem


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file: ``base`` is the physical offset of its first byte, as its name says."""

    path: Path
    base: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The physical offset behind its last byte."""
        return self.base + self.size_bytes


def log_files(fs: FileSystem, directory: Path) -> tuple[list[LogFile], list[Entry]]:
    """The files of the log in ``directory`` in order, and what else is there."""
    files, others = [], []
    for entry in fs.scan(directory):
        base = None if entry.is_directory else parse_offset_name(entry.name)
        if base is None:
            others.append(entry)
        else:
            files.append(LogFile(directory / entry.name, base, entry.size_bytes))
    return files, others


def usual_size(sizes: list[int]) -> int:
    """The size that most files have, of several the largest; 0 where none has any."""
    counted = [size for size in sizes if size]
    return max(sorted(set(counted), reverse=True), key=counted.count) if counted else 0
