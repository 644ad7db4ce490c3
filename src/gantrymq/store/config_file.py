"""A file of ``config/``: a JSON object in a file that is replaced as a whole.

Loading falls back to the ``.bak`` that stands beside it.

Source: ConfigManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
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
        self._file = ReplacedFile(fs, path)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    def versions(self) -> Iterator[bytes]:
        """What there is to read: the file, then what stood in it before. Raises DiskError."""
        return self._file.versions()

    def load(self) -> dict[str, Any]:
        """The object; empty where neither the file nor its backup holds one. Raises DiskError."""
        for raw in self.versions():
            try:
                return parse_config(raw)
            except ValueError:
                continue
        return {}

    def save(self, value: dict[str, Any]) -> None:
        """Replace the object; returns when that is durable. Raises DiskFullError."""
        self._file.replace(fastjson.dumps(value).encode("utf-8"))
