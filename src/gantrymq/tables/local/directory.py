"""The directory of a table: a local path, or a URI of a file system that pyarrow knows.

Thread rule: stateless but for the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from gantrymq.tools.locations import file_system as open_file_system
from gantrymq.tools.locations import location_of


class FoundFile(NamedTuple):
    """A file in a listing. ``modified_us`` is the time of its last change in microseconds since 1970."""

    path: str
    size_bytes: int
    modified_us: int


class Directory:
    """Files below one directory, by paths relative to it."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for a URI whose file system is not known."""
        location = location_of(text.rstrip("/") or "/")
        assert location is not None
        self.text = text.rstrip("/") or "/"
        self.is_local = location.uri is None
        self._base = location.path.rstrip("/")
        self._fs: Any = None if self.is_local else open_file_system(location.uri)

    @property
    def uri(self) -> str:
        """What libraries take: the absolute local path, or the URI."""
        return self._base if self.is_local else self.text

    def file_system(self) -> Any:
        """The directory as a file system of pyarrow. That of deltalake ends some processes abnormally at their exit."""
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        return SubTreeFileSystem(self._base, LocalFileSystem() if self.is_local else self._fs)

    def beside(self, suffix: str) -> Directory:
        """The directory whose name has that suffix."""
        return Directory(f"{self.text}{suffix}")

    def names(self) -> list[str] | None:
        """The names in the directory; None if it does not exist."""
        if self.is_local:
            try:
                return sorted(os.listdir(self._base))
            except FileNotFoundError:
                return None
        from pyarrow.fs import FileSelector

        try:
            return sorted(entry.base_name for entry in self._fs.get_file_info(FileSelector(self._base)))
        except FileNotFoundError:
            return None

    def below(self, name: str) -> list[str]:
        """The names in a directory below this one; none if it does not exist."""
        return Directory(f"{self.text}/{name}").names() or []

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""
        if self.is_local:
            try:
                return Path(self._base, path).read_bytes()
            except FileNotFoundError:
                return None
        try:
            with self._fs.open_input_stream(f"{self._base}/{path}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Write a small file durably."""
        with self.open(path) as stream:
            stream.write(content)
            sync(stream)
        if self.is_local:
            sync_directory(Path(self._base, path).parent)

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        if self.is_local:
            target = Path(self._base, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.open("wb")
        return cast(BinaryIO, self._fs.open_output_stream(f"{self._base}/{path}"))

    def open_for_reading(self, path: str) -> BinaryIO:
        """Open a file at its begin. Raises FileNotFoundError, OSError."""
        return cast(BinaryIO, self._arrow_file_system.open_input_file(f"{self._base}/{path}"))

    @property
    def _arrow_file_system(self) -> Any:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem() if self.is_local else self._fs

    def files_below(self, path: str, *, recursive: bool) -> Iterator[str]:
        """The paths of the files in a directory, and with ``recursive`` of those below it; none if it is missing."""
        for file in self.found_below(path, recursive=recursive):
            yield file.path

    def found_below(self, path: str, *, recursive: bool) -> Iterator[FoundFile]:
        """The files in a directory, and with ``recursive`` of those below it; none if it is missing."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(f"{self._base}/{path}".rstrip("/"), allow_not_found=True, recursive=recursive)
        for entry in self._arrow_file_system.get_file_info(selector):
            if entry.type is FileType.File:
                yield FoundFile(entry.path.removeprefix(f"{self._base}/"), entry.size, entry.mtime_ns // 1000)

    def remove(self, path: str) -> None:
        """Remove a file, which may be missing."""
        with suppress(FileNotFoundError):
            if self.is_local:
                os.unlink(os.path.join(self._base, path))
            else:
                self._fs.delete_file(f"{self._base}/{path}")


def sync(stream: BinaryIO) -> None:
    """Make the content of a local file durable; no effect on another file system."""
    stream.flush()
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError):
        return
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
