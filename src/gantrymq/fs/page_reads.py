"""Reads from a failing disk: retries once, then reads page by page.

Thread rule: the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gantrymq.errors import DiskError, StoreError
from gantrymq.fs.api import File, FileSystem

_PAGE_BYTES = 4096
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
