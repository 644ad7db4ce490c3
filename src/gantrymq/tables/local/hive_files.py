"""Files in directories that are named by their partition, in Hive's layout.

Thread rule: stateless but for the file system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from gantrymq.tables.local.directory import Directory
from gantrymq.tables.partitions import Partition, hive_directory, plain_text


class HiveFiles:
    """Implements :class:`gantrymq.tables.local.part_files.Files` below a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @property
    def local_root(self) -> Path | None:
        """The directory; None if it is a URI."""
        return Path(self._directory.uri) if self._directory.is_local else None

    @property
    def empty_partition(self) -> None:
        """Delta and Hive read empty texts as null."""
        return None

    def path(self, name: str, partition: Partition) -> str:
        """Files lie in the directory of their partition."""
        return f"{self._directory_of(partition)}{name}"

    def _directory_of(self, partition: Partition) -> str:
        return "".join(f"{hive_directory(name, text)}/" for name, text in partition)

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        return self._directory.open(path)

    def remove(self, path: str) -> None:
        """Remove a file that was not committed."""
        self._directory.remove(path)

    def paths_named(self, prefix: str, partitions: Sequence[Partition] | None) -> Iterator[str]:
        """The paths of files in these partitions, None for all, whose names begin with ``prefix``."""
        directories = [""] if partitions is None else [self._directory_of(partition) for partition in partitions]
        for directory in directories:
            for path in self._directory.files_below(directory, recursive=partitions is None):
                if path.rpartition("/")[2].startswith(prefix):
                    yield path


class NamedFiles(HiveFiles):
    """Files whose partition is told elsewhere: the name of a directory is for people, and needs no escapes."""

    def _directory_of(self, partition: Partition) -> str:
        return "".join(f"{name}={plain_text(text)}/" for name, text in partition)
