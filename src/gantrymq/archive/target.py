"""The place of an archive: a local directory, or a URI of a file system that pyarrow knows.

A file appears under its name only when it is complete. A local file is written below ``archive.tmp``, synced, and
renamed. An object store shows an object when its last part was accepted; what an error leaves is removed.

One archiver writes at a time. A local directory has the lock of a store. An object store has no locks, so an archiver
leaves its mark there, and ends when it finds that of another, which began later.

Thread rule: one thread.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gantrymq.archive.summary import MAX_BYTES, ArchivedFile
from gantrymq.errors import ArchiveError, StoreError
from gantrymq.format.names import ARCHIVE_WORK, ARCHIVE_WRITER, LOCK_TEXT
from gantrymq.fs.api import FileLock, FileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.tools.locations import file_system, location_of

CHUNK_BYTES = 8 << 20
_ZEROS = bytes(1 << 16)


class ArchiveTarget(Protocol):
    """A place of files, by paths relative to it. Every method raises ArchiveError if the place fails."""

    @property
    def text(self) -> str:
        """The place, as errors name it."""
        ...

    def sizes(self) -> dict[str, int]:
        """The length of each file in bytes, by path; empty if the place does not exist."""
        ...

    def claim(self) -> None:
        """Become the only writer. Raises StoreLockedError, too."""
        ...

    def require_claim(self) -> None:
        """Raise ArchiveError if another writer has begun since."""
        ...

    def release(self) -> None:
        """Let another one write."""
        ...

    def put(self, name: str, chunks: Iterable[bytes]) -> ArchivedFile:
        """Write a file durably, replacing it in one step. After an error the old one is there, or none."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file at its begin. Raises FileNotFoundError."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file. A missing one is fine."""
        ...


def open_target(text: str, fs: FileSystem) -> ArchiveTarget:
    """The place that a path or URI names. Raises ConfigError for a URI whose file system is not known."""
    location = location_of(text.rstrip("/") or "/")
    if location is None:
        raise ArchiveError(text, "an archive is one directory, so its URI has no wildcards")
    return _Directory(location.path, fs) if location.uri is None else _Bucket(text.rstrip("/"), location.path)


def read_small(target: ArchiveTarget, name: str) -> bytes | None:
    """The content of a file; None if it does not exist. Raises ArchiveError."""
    try:
        with reading(target, name) as stream:
            return stream.read(MAX_BYTES)
    except FileNotFoundError:
        return None


@contextmanager
def reading(target: ArchiveTarget, name: str) -> Iterator[BinaryIO]:
    """Open a file for a block, and turn errors of its reads into ArchiveError. Raises FileNotFoundError."""
    with target.open(name) as stream:
        try:
            yield stream
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failed(target, name, error) from error


def chunks_of(stream: BinaryIO) -> Iterator[bytes]:
    """The content of a stream."""
    while chunk := stream.read(CHUNK_BYTES):
        yield bytes(chunk)


def described(chunks: Iterable[bytes]) -> ArchivedFile:
    """The size and checksum of a content."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return ArchivedFile(size, digest.hexdigest())


def content_now(target: ArchiveTarget, name: str) -> ArchivedFile:
    """The size and checksum of a file as it is now. Raises FileNotFoundError, ArchiveError."""
    with reading(target, name) as stream:
        return described(chunks_of(stream))


def failed(target: ArchiveTarget, name: str, error: Exception) -> ArchiveError:
    """The error of a place in one line."""
    reason = (getattr(error, "strerror", None) if getattr(error, "errno", None) else None) or str(error)
    return ArchiveError(f"{target.text}/{name}" if name else target.text, " ".join(reason.split()))


class _Directory:
    def __init__(self, path: str, fs: FileSystem) -> None:
        self.text = path
        self._root, self._fs = Path(path), fs
        self._lock: FileLock | None = None

    def sizes(self) -> dict[str, int]:
        sizes = {}
        try:
            for directory, _, names in os.walk(self._root):
                for name in names:
                    path = Path(directory, name)
                    sizes[path.relative_to(self._root).as_posix()] = path.stat().st_size
        except OSError as error:
            raise failed(self, "", error) from error
        return sizes

    def claim(self) -> None:
        try:
            self._fs.make_directory(self._root)
        except OSError as error:
            raise failed(self, "", error) from error
        self._lock = self._fs.lock(StorePaths(self._root).lock, LOCK_TEXT)
        for name in self.sizes():
            if name.startswith(f"{ARCHIVE_WORK}/"):
                self.remove(name)

    def require_claim(self) -> None:
        pass  # the lock is held

    def release(self) -> None:
        with suppress(StoreError):
            self._fs.remove_directory(self._root / ARCHIVE_WORK)
        if self._lock is not None:
            self._lock.release()

    def put(self, name: str, chunks: Iterable[bytes]) -> ArchivedFile:
        fresh, path = self._root / ARCHIVE_WORK / name.replace("/", "%"), self._root / name
        digest, size = hashlib.sha256(), 0
        try:
            self._fs.make_directory(fresh.parent)
            self._fs.make_directory(path.parent)
            with fresh.open("wb") as stream:
                for chunk in chunks:
                    digest.update(chunk)
                    _write(stream, chunk)
                    size += len(chunk)
                stream.truncate(size)
                stream.flush()
                os.fsync(stream.fileno())
            self._fs.rename(fresh, path)
            self._fs.sync_directory(path.parent)
        except BaseException as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise failed(self, name, error) from error
            raise
        return ArchivedFile(size, digest.hexdigest())

    def open(self, name: str) -> BinaryIO:
        try:
            return (self._root / name).open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failed(self, name, error) from error

    def remove(self, name: str) -> None:
        path = self._root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise failed(self, name, error) from error
        self._fs.sync_directory(path.parent)


def _write(stream: BinaryIO, chunk: bytes) -> None:
    """Write a chunk without its long runs of zeros: most of the last file of a queue is a hole."""
    for begin in range(0, len(chunk), len(_ZEROS)):
        piece = chunk[begin : begin + len(_ZEROS)]
        if piece == _ZEROS:
            stream.seek(len(piece), os.SEEK_CUR)
        else:
            stream.write(piece)


class _Bucket:
    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self._base, self._fs = path.rstrip("/"), file_system(text)
        self._mark = uuid.uuid4().hex.encode()

    def sizes(self) -> dict[str, int]:
        from pyarrow.fs import FileSelector, FileType

        with self._failing(""):
            selector = FileSelector(self._base, allow_not_found=True, recursive=True)
            entries = self._fs.get_file_info(selector)
        return {
            entry.path.removeprefix(f"{self._base}/"): entry.size for entry in entries if entry.type is FileType.File
        }

    def claim(self) -> None:
        self.put(ARCHIVE_WRITER, [self._mark])

    def require_claim(self) -> None:
        if read_small(self, ARCHIVE_WRITER) != self._mark:
            raise ArchiveError(self.text, "another archiver has begun to write here, so this one ends")

    def release(self) -> None:
        with suppress(ArchiveError):
            if read_small(self, ARCHIVE_WRITER) == self._mark:
                self.remove(ARCHIVE_WRITER)

    def put(self, name: str, chunks: Iterable[bytes]) -> ArchivedFile:
        digest, size = hashlib.sha256(), 0
        with self._failing(name):
            stream = self._fs.open_output_stream(f"{self._base}/{name}")
            try:
                for chunk in chunks:
                    digest.update(chunk)
                    stream.write(chunk)
                    size += len(chunk)
            except BaseException:
                with suppress(OSError):  # closing is the only way to end it, and makes it visible
                    stream.close()
                    self._fs.delete_file(f"{self._base}/{name}")
                raise
            stream.close()
        return ArchivedFile(size, digest.hexdigest())

    def open(self, name: str) -> BinaryIO:
        with self._failing(name):
            stream: Any = self._fs.open_input_file(f"{self._base}/{name}")
            return stream  # type: ignore[no-any-return]

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._failing(name):
            self._fs.delete_file(f"{self._base}/{name}")

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ArrowException) as error:
            raise failed(self, name, error) from error
