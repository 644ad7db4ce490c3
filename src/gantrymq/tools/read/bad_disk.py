"""Mapped bytes of a failing disk, whose unreadable pages are zeros; and directories that cannot be listed.

Thread rule: the caller's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gantrymq.errors import DiskError, StoreError, StorePermissionError
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.fs.forwarding import ForwardingFileSystem
from gantrymq.fs.reads import ask_twice, data_end, read_by_pages
from gantrymq.kernels.arrays import read_only
from gantrymq.store.queue.queue_listing import is_topic_name
from gantrymq.tools.reports import NotCompared


class ReadableBytes:
    """The bytes of ``file``, mapped. Unreadable pages read as zeros.

    *Invariant*: ``array`` may be read only where :meth:`prefault` was called before. ``unreadable`` maps the unreadable
    ranges (0, begin, end) to their reasons.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._is_copy = False
        self.array = read_only(file.map().data)
        self.unreadable: dict[tuple[int, int, int], str] = {}

    def prefault(self, begin: int, end: int) -> None:
        """Load the bytes [begin, end) into memory. If some are unreadable, ``array`` is a copy from then on."""
        if self._is_copy:
            return
        try:
            self._file.fetch(begin, data_end(self._file, begin, end) - begin)
        except StoreError:
            self.array, self._is_copy = read_only(read_by_pages(self._file, 0, len(self.array), self._note)), True

    def _note(self, begin: int, end: int, reason: str) -> None:
        self.unreadable[0, begin, end] = reason

    def close(self) -> None:
        """Close the file; ``array`` stays valid."""
        self._file.close()


def joined(pages: Mapping[tuple[int, int, int], str]) -> list[tuple[tuple[int, int, int], str]]:
    """The unreadable ranges (file, begin, end) with their reasons, in order; adjacent ranges of a file are merged."""
    ranges: list[tuple[tuple[int, int, int], str]] = []
    for (file, begin, end), reason in sorted(pages.items()):
        if ranges and ranges[-1][0][0] == file and begin <= ranges[-1][0][2]:
            (_, first, before), known = ranges.pop()
            ranges.append(((file, first, max(before, end)), known))
        else:
            ranges.append(((file, begin, end), reason))
    return ranges


class ListedFileSystem(ForwardingFileSystem):
    """``inner``, with directories of ``store`` that cannot be listed treated as empty, unless they are ``needed``.

    A directory cannot be listed if the disk or its permissions fail. If its name is not a possible topic, it may be
    another program's, and the error is raised. Paths outside of ``store``, such as a tool's output, behave as in
    ``inner``. ``unlisted`` maps each such directory to the reason. The class implements FileSystem; all other methods
    are those of ``inner``.
    """

    def __init__(self, inner: FileSystem, store: Path, needed: Collection[Path]) -> None:
        super().__init__(inner)
        self._store = store
        self._needed = frozenset(needed)
        self.unlisted: dict[Path, str] = {}

    def scan(self, path: Path) -> list[Entry]:
        """List a directory. Raises DiskError for a needed one, and outside of the store."""
        try:
            return ask_twice(lambda: self._inner.scan(path))
        except (DiskError, StorePermissionError) as error:
            is_ours = path.is_relative_to(self._store) and is_topic_name(path.name)
            if path in self._needed or not is_ours:
                raise
            self.unlisted.setdefault(path, error.cause if isinstance(error, DiskError) else error.reason)
            return []

    def open(self, path: Path, **options: Any) -> File:
        """Open a file. A file in an unlisted directory counts as missing. Raises DiskError."""
        try:
            return self._inner.open(path, **options)
        except (DiskError, StorePermissionError):
            if not self._is_unlisted(path.parent):
                raise
        raise FileNotFoundError(path)

    def exists(self, path: Path) -> bool:
        """Whether a file or a directory exists; False in an unlisted directory."""
        try:
            return self._inner.exists(path)
        except (DiskError, StorePermissionError):
            if not self._is_unlisted(path.parent):
                raise
        return False

    def _is_unlisted(self, path: Path) -> bool:
        """Whether a directory cannot be listed. Raises if it is needed, or outside of the store."""
        if path.is_relative_to(self._store):
            self.scan(path)
        return path in self.unlisted

    def roots(self) -> list[Path]:
        """The unlisted directories, without those below another one."""
        return [path for path in sorted(self.unlisted) if not self.unlisted.keys() & set(path.parents)]


def not_listed(listed: ListedFileSystem) -> list[NotCompared]:
    """The unlisted directories as entries of an account of loss: their contents could not be compared."""
    return [NotCompared(path, f"is not listed: {listed.unlisted[path]}") for path in listed.roots()]
