"""Reading around what a file does not have: holes are not read, and the pages that a disk cannot read are noted.

Reading a hole makes Linux read ahead, often megabytes of zeros. A read from a failing disk is retried once, then done
page by page. :class:`LostPages` collects what a view continues without.

Thread rule: the caller's thread; LostPages: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from gantrymq.errors import DiskError, StoreError
from gantrymq.fs.api import File, FileSystem

_PAGE_BYTES = 4096


class HasHoles(Protocol):
    """A file, or the source of a file's bytes, that knows its holes."""

    def data_from(self, position: int) -> int:
        """As :meth:`gantrymq.fs.api.File.data_from`."""
        ...


def data_end(file: HasHoles, begin: int, end: int) -> int:
    """The page at which the hole before ``end`` begins: ``begin`` if all is a hole, ``end`` if there is none."""
    low, high = begin // _PAGE_BYTES, -(-end // _PAGE_BYTES)  # no page from ``high`` on is known to be data
    if low < high and file.data_from(max((high - 1) * _PAGE_BYTES, begin)) < end:
        return end  # the usual case
    while low < high:
        middle = (low + high) // 2
        if file.data_from(max(middle * _PAGE_BYTES, begin)) < end:
            low = middle + 1
        else:
            high = middle
    return min(max(low * _PAGE_BYTES, begin), end)


def read_data(file: File, begin: int, length: int) -> bytes:
    """``length`` bytes from ``begin``. The hole after the last data is filled with zeros without a read."""
    data = file.read_at(begin, data_end(file, begin, begin + length) - begin)
    return data.ljust(length, b"\0")


_Answer = TypeVar("_Answer")


def ask_twice(ask: Callable[[], _Answer]) -> _Answer:
    """Return ``ask()``; after a DiskError call it once more, and let the second error through.

    A tool continues without the bytes that a disk cannot read. A transient error must not cost the messages of a file.
    """
    try:
        return ask()
    except DiskError:
        return ask()


def read_part(fs: FileSystem, path: Path, position: int, length: int) -> bytes:
    """Read at most ``length`` bytes of a file, with one retry.

    Raises FileNotFoundError, DiskError, and the other errors of ``fs``.
    """

    def read() -> bytes:
        file = fs.open(path)
        try:
            return file.read_at(position, length)
        finally:
            file.close()

    return ask_twice(read)


def read_by_pages(file: File, position: int, length: int, note: Callable[[int, int, str], None]) -> bytes:
    """Read at most ``length`` bytes from ``position``; an unreadable page reads as zeros.

    ``note(start, end, error)`` is called for each such page, with its positions in the file.
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


def cause_of(error: Exception) -> str:
    """The operating system's message, without the path."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return error.cause if isinstance(error, DiskError) else getattr(error, "reason", str(error))


class LostPages:
    """Filled by :class:`gantrymq.fs.overlay.OverlayFileSystem`. Lost bytes read as zeros there.

    An unreadable directory counts as empty, unless it is ``needed``: then its error is raised.
    """

    def __init__(self, needed: Iterable[Path] = ()) -> None:
        self._needed = frozenset(needed)
        self._ranges: dict[Path, dict[int, tuple[int, str]]] = {}  # by path and first byte: the end and the reason
        self._directories: dict[Path, StoreError] = {}
        self._guard = threading.Lock()

    def add(self, path: Path, begin: int, end: int, reason: str) -> None:
        """Note that the bytes [begin, end) of a file are lost."""
        with self._guard:
            self._ranges.setdefault(path, {}).setdefault(begin, (end, reason))

    def add_directory(self, path: Path, error: StoreError) -> None:
        """Note that a directory cannot be listed; raise ``error`` if it is needed."""
        if path in self._needed:
            raise error
        with self._guard:
            self._directories.setdefault(path, error)

    @property
    def paths(self) -> list[Path]:
        """The files with lost bytes."""
        with self._guard:
            return sorted(self._ranges)

    @property
    def directories(self) -> dict[Path, StoreError]:
        """The directories that cannot be listed, with their errors."""
        with self._guard:
            return dict(self._directories)

    def ranges(self, path: Path) -> list[tuple[int, int, str]]:
        """(begin, end, reason) of the lost ranges of a file, in order; adjacent ranges are joined."""
        with self._guard:
            path_ranges = sorted(self._ranges.get(path, {}).items())
        joined: list[tuple[int, int, str]] = []
        for begin, (end, reason) in path_ranges:
            if joined and begin <= joined[-1][1]:
                first, last, known = joined.pop()
                joined.append((first, max(last, end), known))
            else:
                joined.append((begin, end, reason))
        return joined

    def first(self, path: Path, position: int, length: int) -> DiskError | None:
        """The error of the first of these bytes that is lost; None if none is."""
        if path not in self._ranges:  # the usual case
            return None
        for begin, end, reason in self.ranges(path):
            if begin < position + length and position < end:
                return DiskError(path, reason, max(begin, position))
        return None

    def errors(self) -> Iterator[StoreError]:
        """An error for each directory and each range of bytes."""
        yield from (error for _, error in sorted(self.directories.items()))
        for path in self.paths:
            for begin, _, reason in self.ranges(path):
                yield DiskError(path, reason, begin)
