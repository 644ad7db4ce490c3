"""Directories that the disk does not list, for tools that go on without them.

Thread rule: as the file system inside.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from gantrymq.errors import DiskError
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.tools.bad_pages import ask_twice


class ListedFileSystem:
    """``inner``, where a directory of ``store`` that the disk does not list counts as empty, unless it is ``needed``.

    What lies outside of ``store``, such as what a tool writes, is as in ``inner``. ``unlisted`` says of each such
    directory why. It is a FileSystem: everything else is the inner one's.
    """

    def __init__(self, inner: FileSystem, store: Path, needed: Collection[Path]) -> None:
        self._inner, self._store = inner, store
        self._needed = frozenset(needed)
        self.unlisted: dict[Path, str] = {}

    def scan(self, path: Path) -> list[Entry]:
        """What is in a directory. Raises DiskError for a needed one, and outside of the store."""
        try:
            return ask_twice(lambda: self._inner.scan(path))
        except DiskError as error:
            if path in self._needed or not path.is_relative_to(self._store):
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
