"""Directories that the disk does not list, for tools that go on without them.

Thread rule: as the file system inside.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from gantrymq.errors import DiskError, StorePermissionError
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.store.queue.queue_listing import is_topic_name
from gantrymq.tools.bad_pages import ask_twice
from gantrymq.tools.loss import NotCompared


class ListedFileSystem:
    """``inner``, where a directory of ``store`` that is not listed counts as empty, unless it is ``needed``.

    The disk does not give it back, or we may not read it; of a name that no topic has it may be another program's, and
    raises. What lies outside of ``store``, such as what a tool writes, is as in ``inner``. ``unlisted`` says of each
    such directory why. It is a FileSystem: everything else is the inner one's.
    """

    def __init__(self, inner: FileSystem, store: Path, needed: Collection[Path]) -> None:
        self._inner, self._store = inner, store
        self._needed = frozenset(needed)
        self.unlisted: dict[Path, str] = {}

    def scan(self, path: Path) -> list[Entry]:
        """What is in a directory. Raises DiskError for a needed one, and outside of the store."""
        try:
            return ask_twice(lambda: self._inner.scan(path))
        except (DiskError, StorePermissionError) as error:
            is_ours = path.is_relative_to(self._store) and is_topic_name(path.name)
            if path in self._needed or not is_ours:
                raise
            self.unlisted.setdefault(path, error.cause if isinstance(error, DiskError) else error.reason)
            return []

    def open(self, path: Path, **options: Any) -> File:
        """Open a file; one in a directory that the disk does not list counts as missing. Raises DiskError."""
        try:
            return self._inner.open(path, **options)
        except (DiskError, StorePermissionError):
            if not self._is_unlisted(path.parent):
                raise
        raise FileNotFoundError(path)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory; False in a directory that the disk does not list."""
        try:
            return self._inner.exists(path)
        except (DiskError, StorePermissionError):
            if not self._is_unlisted(path.parent):
                raise
        return False

    def _is_unlisted(self, path: Path) -> bool:
        """Whether the disk does not list a directory; raises where it is needed, and outside of the store."""
        if path.is_relative_to(self._store):
            self.scan(path)
        return path in self.unlisted

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


def not_listed(listed: ListedFileSystem) -> list[NotCompared]:
    """The directories that are not listed, for an account of loss: what is in them could not be compared."""
    return [NotCompared(path, f"is not listed: {listed.unlisted[path]}") for path in listed.roots()]
