"""Reading from a disk that does not give back everything: twice, then page by page; and directories it does not list.

Thread rule: the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from gantrymq.errors import DiskError, StoreError, StorePermissionError
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.fs.holes import data_end
from gantrymq.kernels.arrays import read_only
from gantrymq.store.queue.queue_listing import is_topic_name
from gantrymq.tools.loss.loss import NotCompared

_PAGE_BYTES = 4096
_Answer = TypeVar("_Answer")


def ask_twice(ask: Callable[[], _Answer]) -> _Answer:
    """What ``ask`` returns; after a DiskError it is asked once more, and raises the second one.

    A tool goes on without what the disk does not give back: an error that passes must not cost the messages of a file.
    """
    try:
        return ask()
    except DiskError:
        return ask()


def read_part(fs: FileSystem, path: Path, position: int, length: int) -> bytes:
    """At most ``length`` bytes of a file, asked for twice. Raises FileNotFoundError, DiskError and as ``fs`` does."""

    def read() -> bytes:
        file = fs.open(path)
        try:
            return file.read_at(position, length)
        finally:
            file.close()

    return ask_twice(read)


def read_by_pages(file: File, position: int, length: int, note: Callable[[int, int, str], None]) -> bytes:
    """At most ``length`` bytes from ``position``; a page that the disk does not give back counts as zeros.

    ``note(start, end, error)`` hears of each such page, by its place in the file.
    """
    pages = []
    at, stop = position, position + length
    while at < stop:
        wanted = min(_PAGE_BYTES - at % _PAGE_BYTES, stop - at)
        try:
            pages.append(file.read_at(at, wanted))
        except (OSError, StoreError) as error:
            pages.append(bytes(wanted))
            note(at, at + wanted, cause_of(error))
        at += wanted
    return b"".join(pages)


class ReadableBytes:
    """The bytes of ``file``, mapped. Pages that the disk does not give back count as zeros.

    ``array`` may only be looked at where :meth:`bring_in` was called for before; ``unreadable`` has the ranges
    (0, begin, end) that were met, with the reasons.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._is_copy = False
        self.array = read_only(file.map().data)
        self.unreadable: dict[tuple[int, int, int], str] = {}

    def bring_in(self, begin: int, end: int) -> None:
        """Have the bytes [begin, end) in memory; where not all can be read ``array`` is a copy from now on."""
        if self._is_copy:
            return
        try:
            self._file.fetch(begin, data_end(self._file, begin, end) - begin)
        except StoreError:
            self.array, self._is_copy = read_only(read_by_pages(self._file, 0, len(self.array), self._note)), True

    def _note(self, begin: int, end: int, reason: str) -> None:
        self.unreadable[0, begin, end] = reason

    def close(self) -> None:
        """Close the file; ``array`` stays."""
        self._file.close()


def cause_of(error: Exception) -> str:
    """What the operating system says, without the path."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return error.cause if isinstance(error, DiskError) else getattr(error, "reason", str(error))


def joined(pages: Mapping[tuple[int, int, int], str]) -> list[tuple[tuple[int, int, int], str]]:
    """Unreadable (file, begin, end) with their reasons, in order; those of one file that touch as one."""
    ranges: list[tuple[tuple[int, int, int], str]] = []
    for (file, begin, end), reason in sorted(pages.items()):
        if ranges and ranges[-1][0][0] == file and begin <= ranges[-1][0][2]:
            (_, first, before), known = ranges.pop()
            ranges.append(((file, first, max(before, end)), known))
        else:
            ranges.append(((file, begin, end), reason))
    return ranges


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
