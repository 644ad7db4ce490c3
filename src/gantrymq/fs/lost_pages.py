"""The pages, files and directories that the disk cannot read, and without which a view continues.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from gantrymq.errors import DiskError, StoreError


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
            found = sorted(self._ranges.get(path, {}).items())
        joined: list[tuple[int, int, str]] = []
        for begin, (end, reason) in found:
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
