"""Reading what the disk gives back, where it does not give back all: twice, then page by page.

Thread rule: the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gantrymq.errors import DiskError, StoreError
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.holes import data_end
from gantrymq.kernels.arrays import read_only

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
