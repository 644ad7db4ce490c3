"""A file of ``config/``: JSON that is replaced as a whole and never lost.

Saving writes ``NAME.tmp``, keeps what was there as ``NAME.bak``, and renames; at any moment a crash leaves one of the
two readable. Loading falls back to the ``.bak``.

Source: ConfigManager and MixAll.string2File.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gantrymq.fs.api import FileSystem
from gantrymq.model import fastjson


def parse_config(raw: bytes) -> dict[str, Any]:
    """The JSON object that a file of ``config/`` holds; raises ValueError where it holds none."""
    value = fastjson.loads(raw.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("it holds something else than an object")
    return value


class ConfigFile:
    """The JSON object at ``path``. One thread saves; any may load."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._backup = path.with_name(path.name + ".bak")

    def load(self) -> dict[str, Any]:
        """The object; empty where neither the file nor its backup can be read."""
        for path in (self._path, self._backup):
            try:
                return parse_config(self._read(path))
            except (FileNotFoundError, ValueError):
                continue
        return {}

    def save(self, value: dict[str, Any]) -> None:
        """Replace the object; returns when that is durable. Raises DiskFullError."""
        self._fs.make_directory(self._path.parent)
        fresh = self._path.with_name(self._path.name + ".tmp")
        self._write(fresh, fastjson.dumps(value).encode("utf-8"))
        if self._fs.exists(self._path):
            self._fs.rename(self._path, self._backup)
        self._fs.rename(fresh, self._path)
        self._fs.sync_directory(self._path.parent)

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
