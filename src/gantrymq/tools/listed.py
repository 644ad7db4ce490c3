"""Directories that the disk does not list, for tools that go on without them.

Thread rule: as the file system inside.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from gantrymq.errors import DiskError
from gantrymq.fs.api import Entry, File, FileSystem


class ListedFileSystem:
    """``inner``, where a directory that the disk does not list counts as empty, unless it is one of ``needed``.

    ``unlisted`` says of each such directory why. It is a FileSystem: everything else is the inner one's.
    """

    def __init__(self, inner: FileSystem, needed: Collection[Path]) -> None:
        self._inner = inner
        self._needed = frozenset(needed)
        self.unlisted: dict[Path, str] = {}

    def scan(self, path: Path) -> list[Entry]:
        """What is in a directory. Raises DiskError for a needed one."""
        try:
            return self._inner.scan(path)
        except DiskError as error:
            if path in self._needed:
                raise
            self.unlisted.setdefault(path, error.cause)
            return []

    def open(self, path: Path, **options: Any) -> File:
        """Open a file; one in a directory that the disk does not list counts as missing. Raises DiskError."""
        try:
            return self._inner.open(path, **options)
        except DiskError:
            self.scan(path.parent)
            if path.parent not in self.unlisted:
                raise
        raise FileNotFoundError(path)

    def roots(self) -> list[Path]:
        """The directories that are not listed, but for those that lie in another one."""
        return [path for path in sorted(self.unlisted) if not self.unlisted.keys() & set(path.parents)]

    def as_file_system(self) -> FileSystem:
        """Itself, for a type checker that does not see what is passed on."""
        return cast(FileSystem, self)

    def __getattr__(self, name: str) -> Any:
        """What the inner file system does."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)
