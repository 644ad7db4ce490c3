"""A small file that is replaced as a whole and never lost.

Replacing writes ``NAME.tmp``, keeps what was there as ``NAME.bak``, and renames; at any moment a crash leaves one of
the two readable. What could not be loaded is not kept: it would take the place of the version that could.

A file that takes another's place has its owner and its mode.

Source: MixAll.string2File, which writes over both in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from gantrymq.errors import DiskFullError, GantrymqError, UnusableFileError
from gantrymq.fs.api import FileSystem

Value = TypeVar("Value")
MOST_BYTES = 256 << 20  # a table of half a million offsets has a sixth of it
_BLANKS = b" \t\r\n\v\f\0"  # a power cut leaves zeros, too


class ReplacedFile:
    """The file at ``path``. One thread loads and replaces; any may read."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self.refused = ""
        """Why the file itself was not taken when it was loaded: the next to replace it will not keep it."""

    @property
    def has_backup(self) -> bool:
        """Whether there is a version before it."""
        return self._fs.exists(self._backup)

    def versions(self) -> Iterator[bytes]:
        """What there is to read: the file, then what stood in it before. Raises DiskError."""
        for path in (self.path, self._backup):
            try:
                yield self._read(path) or b""
            except FileNotFoundError:
                continue

    def load(self, parse: Callable[[bytes], Value], *, keeps_edits: bool = False) -> Value | None:
        """What ``parse`` makes of the file, or else of what stood in it before; None where there is neither.

        A blank file is none: a power cut leaves such where RocketMQ writes over it. ``parse`` refuses by a ValueError
        or a GantrymqError. Raises DiskError, and UnusableFileError where it took neither, or with ``keeps_edits`` not
        the first that is not blank.
        """
        first: Exception | None = None
        for path in (self.path, self._backup):
            try:
                raw = self._read(path)
            except FileNotFoundError:
                continue
            try:
                if raw is None:
                    raise ValueError(f"it is longer than the {MOST_BYTES} bytes that are read")
                if raw.strip(_BLANKS):
                    return parse(raw)
                self.refused = self.refused or "it is blank"
            except (ValueError, GantrymqError) as error:
                self.refused = self.refused or str(error)
                first = first or error
                if keeps_edits:
                    break
        if first is not None:
            raise UnusableFileError(self.path, str(first)) from first
        return None

    def replace(self, data: bytes) -> None:
        """Put ``data`` in the place of what is there; returns when that is durable. Raises DiskFullError: it stays."""
        self._fs.make_directory(self.path.parent)
        fresh = self.path.with_name(self.path.name + ".tmp")
        self._fs.remove(fresh)  # what a kill has left of one, which may be as read-only as the file is
        try:
            self._write(fresh, data)
        except DiskFullError:
            self._fs.remove(fresh)
            raise
        if self._fs.exists(self.path) and not self.refused:
            self._fs.rename(self.path, self._backup)
        self._fs.rename(fresh, self.path)
        self.refused = ""
        self._fs.sync_directory(self.path.parent)

    def _read(self, path: Path) -> bytes | None:
        file = self._fs.open(path)
        try:
            size = file.size()
            return file.read_at(0, size) if size <= MOST_BYTES else None
        finally:
            file.close()

    def _write(self, path: Path, data: bytes) -> None:
        # Who might not read what stood there may not read what comes: a namesrv.conf can hold a password.
        like = next(filter(self._fs.exists, (self.path, self._backup)), None)
        file = self._fs.open(path, writable=True, create=True, like=like)
        try:
            file.resize(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
