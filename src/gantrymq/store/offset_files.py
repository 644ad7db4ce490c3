"""The files of a commit log or a queue as their directories list them: those that are named by an offset."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gantrymq.format.names import parse_offset_name
from gantrymq.fs.api import FileSystem


class OffsetFile(NamedTuple):
    """One file: ``offset`` is where it begins, as its name says."""

    path: Path
    offset: int
    size_bytes: int


def offset_files(fs: FileSystem, directories: Iterable[Path]) -> list[OffsetFile]:
    """The files in ``directories`` whose name is an offset, by it. Whatever else is there belongs to somebody else."""
    found = []
    for directory in directories:
        for entry in fs.scan(directory):
            offset = None if entry.is_directory or entry.is_special else parse_offset_name(entry.name)
            if offset is not None:
                found.append(OffsetFile(directory / entry.name, offset, entry.size_bytes))
    return sorted(found, key=lambda file: (file.offset, file.path))
