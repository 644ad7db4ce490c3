"""A small file that is replaced as a whole and never lost.

Replacing writes ``NAME.tmp``, keeps what was there as ``NAME.bak``, and renames; at any moment a crash leaves one of
the two readable.

Source: MixAll.string2File, which writes over both in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gantrymq.errors import DiskFullError
from gantrymq.fs.api import FileSystem


class ReplacedFile:
    """The file at ``path``. One thread replaces; any may read."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self.path = path
        self._backup = path.with_name(path.name + ".bak")

    def versions(self) -> Iterator[bytes]:
        """What there is to read: the file, then what stood in it before. Raises DiskError."""
        for path in (self.path, self._backup):
            try:
                yield self._read(path)
            except FileNotFoundError:
                continue

    def replace(self, data: bytes) -> None:
        """Put ``data`` in the place of what is there; returns when that is durable. Raises DiskFullError: it stays."""
        self._fs.make_directory(self.path.parent)
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            self._write(fresh, data)
        except DiskFullError:
            self._fs.remove(fresh)
            raise
        if self._fs.exists(self.path):
            self._fs.rename(self.path, self._backup)
        self._fs.rename(fresh, self.path)
        self._fs.sync_directory(self.path.parent)

    def _read(self, path: Path) -> bytes:
        file = self._fs.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def _write(self, path: Path, data: bytes) -> None:
        file = self._fs.open(path, writable=True, create=True)
        try:
            file.resize(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
