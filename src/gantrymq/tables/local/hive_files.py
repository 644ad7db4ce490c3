"""Files in directories that are named by their partition, in Hive's layout.

Thread rule: stateless but for the file system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from gantrymq.tables.local.directory import Directory
from gantrymq.tables.options import PartitionBy


class HiveFiles:
    """Implements :class:`gantrymq.tables.local.part_files.Files` below a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @property
    def local_root(self) -> Path | None:
        """The directory; None if it is a URI."""
        return Path(self._directory.uri) if self._directory.is_local else None

    def path(self, name: str, partition: str | None) -> str:
        """Files lie in the directory of their partition."""
        return f"{_directory_of(partition)}{name}"

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        return self._directory.open(path)

    def remove(self, path: str) -> None:
        """Remove a file that was not committed."""
        self._directory.remove(path)

    def paths_named(self, prefix: str, partitions: Sequence[str | None] | None) -> Iterator[str]:
        """The paths of files in these partitions, None for all, whose names begin with ``prefix``."""
        directories = [""] if partitions is None else [_directory_of(partition) for partition in partitions]
        for directory in directories:
            for path in self._directory.files_below(directory, recursive=partitions is None):
                if path.rpartition("/")[2].startswith(prefix):
                    yield path


def _directory_of(partition: str | None) -> str:
    if partition is None:
        return ""
    kind = PartitionBy.DAY if len(partition) == len("2026-11-29") or partition == "unknown" else PartitionBy.HOUR
    return f"landed_{kind}={partition}/"
