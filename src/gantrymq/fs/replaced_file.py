"""A small file that is replaced atomically, with a backup.

A replacement writes ``NAME.tmp``, keeps the old version as ``NAME.bak``, and renames. A crash at any moment leaves one
of the two readable. A version that could not be loaded is not kept, because it would replace a backup that could.

The new file gets the owner and mode of the old one.

Source: MixAll.string2File, which overwrites both in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from gantrymq.errors import DiskFullError, GantrymqError, UnusableFileError
from gantrymq.fs.api import FileSystem

Value = TypeVar("Value")
MAX_BYTES = 256 << 20  # six times a table of half a million offsets
_BLANKS = b" \t\r\n\v\f\0"  # a power cut leaves zeros, too


class ReplacedFile:
    """The file at ``path``. Thread rule: one thread loads and replaces; any thread reads.

    One that ``is_private`` is for its owner only, and keeps no backup of what was removed from it.
    """

    def __init__(self, fs: FileSystem, path: Path, *, is_private: bool = False) -> None:
        self._fs, self._is_private = fs, is_private
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self.refused = ""
        """Why the last load did not use the file itself. The next replacement then does not keep it as the backup."""

    @property
    def has_backup(self) -> bool:
        """Whether there is a backup."""
        return self._fs.exists(self._backup)

    def versions(self) -> Iterator[bytes]:
        """The bytes of the file, then those of its backup. Raises DiskError."""
        for path in (self.path, self._backup):
            try:
                yield self._read(path) or b""
            except FileNotFoundError:
                continue

    def load(self, parse: Callable[[bytes], Value], *, keeps_edits: bool = False) -> Value | None:
        """The result of ``parse`` for the file, or else for its backup; None if neither exists.

        A blank file counts as missing: a power cut during RocketMQ's overwriting leaves one. ``parse`` refuses a
        version with a ValueError or a GantrymqError. Raises DiskError, and UnusableFileError if both were refused, or
        with ``keeps_edits`` if the first version that is not blank was refused.
        """
        first: Exception | None = None
        for path in (self.path, self._backup):
            try:
                raw = self._read(path)
            except FileNotFoundError:
                continue
            try:
                if raw is None:
                    raise ValueError(f"it is longer than the {MAX_BYTES} bytes that are read")
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
        """Replace the contents. Returns when that is durable. Raises DiskFullError; the old contents stay then."""
        self._fs.make_directory(self.path.parent)
        fresh = self.path.with_name(self.path.name + ".tmp")
        self._fs.remove(fresh)  # left by a kill, and possibly read-only like the file
        try:
            self._write(fresh, data)
        except DiskFullError:
            self._fs.remove(fresh)
            raise
        if not self._is_private and not self.refused and self._fs.exists(self.path):
            self._fs.rename(self.path, self._backup)
        self._fs.rename(fresh, self.path)
        self.refused = ""
        self._fs.sync_directory(self.path.parent)

    def _read(self, path: Path) -> bytes | None:
        file = self._fs.open(path)
        try:
            size = file.size()
            return file.read_at(0, size) if size <= MAX_BYTES else None
        finally:
            file.close()

    def _write(self, path: Path, data: bytes) -> None:
        # The new file must not be readable for more users than the old one: a namesrv.conf can contain a password.
        like = next(filter(self._fs.exists, (self.path, self._backup)), None)
        like = None if self._is_private else like
        file = self._fs.open(path, writable=True, create=True, like=like, is_private=self._is_private)
        try:
            file.resize(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
