"""The store that is archived, which a broker may be writing: its whole log files, and proof that the log is the same.

A log file is whole when records fill it to its end, when a blank closes it, or when a later file has a record. A broker
makes its next files in advance, so a later file alone proves nothing. Of the newest file with records only what was
added since the last look is read.

The obvious way to read a file is by its name. Retention may delete the name between two reads, so files that are being
archived stay open (:class:`HeldFiles`).

Thread rule: one thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from gantrymq.archive.summary import ArchiveSummary, log_name
from gantrymq.archive.target import CHUNK_BYTES
from gantrymq.errors import ArchiveError, StoreError
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.forwarding import ForwardingFile, ForwardingFileSystem
from gantrymq.store.contents import require_honoured_contents
from gantrymq.store.geometry import require_store
from gantrymq.store.log.log_reader import Blank, End, LogFile, LogFileReader
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.missing_log import first_record_offset
from gantrymq.tools.read.foreign_log_files import mark_foreign
from gantrymq.tools.read.index_files import found_sizes
from gantrymq.tools.read.log_places import log_files
from gantrymq.tools.read.store_source import StoreSource

_EDGE_BYTES = 4096


class ArchiveSource:
    """The store at ``source``. Raises NotAStoreError, NotHonouredError, ConfigError."""

    def __init__(self, source: StoreSource) -> None:
        self.fs, self.paths = source.fs, StorePaths.of(source.root, source.config)
        require_store(self.fs, self.paths)
        require_honoured_contents(self.fs, self.paths, source.config)
        self.config = found_sizes(self.fs, self.paths, source.config, source.given)
        self._seen: tuple[int, int] = (0, 0)  # the newest file with records, and how many bytes of it hold some

    @property
    def log_size(self) -> int:
        """The length of a log file in bytes."""
        return self.config.mapped_file_size_commit_log

    def files(self) -> list[LogFile]:
        """The files of the log, without a short one at its end. Raises StoreError for another bad one."""
        files, _ = log_files(self.fs, self.paths)
        while files and files[-1].size_bytes < self.log_size:
            files.pop()
        for number, file in enumerate(files):
            if file.size_bytes != self.log_size or file.base % self.log_size:
                reason = f"is no log file of {self.log_size} bytes; `gantrymq store verify` names what is damaged"
                raise StoreError(file.path, reason)
            if number and file.base != files[number - 1].end:
                raise StoreError(file.path, "the log file before it is missing; `gantrymq store verify` names all")
        return files

    def whole_files(self, files: Sequence[LogFile]) -> list[LogFile]:
        """Those of ``files`` that get no more records."""
        number = len(files)
        while number and first_record_offset(self.fs, files[number - 1].path) != files[number - 1].base:
            number -= 1
        if number and self._is_closed(files[number - 1]):
            number += 1
        return list(files[: max(number - 1, 0)])

    def _is_closed(self, file: LogFile) -> bool:
        base, skip_bytes = self._seen
        skip_bytes = skip_bytes if base == file.base else 0
        is_closed = False
        try:
            for event in LogFileReader(self.fs, replace(file, skip_bytes=skip_bytes)):
                if isinstance(event, RecordBatch):
                    skip_bytes = event.end_offset - file.base
                elif isinstance(event, Blank):
                    is_closed = event.size_bytes == file.end - event.offset
                elif isinstance(event, End):
                    is_closed = event.offset == file.end
        except FileNotFoundError:
            return False
        self._seen = file.base, skip_bytes
        return is_closed

    def own(self, files: Sequence[LogFile]) -> list[LogFile]:
        """The files, with a mark on those that belong to another store."""
        return mark_foreign(self.fs, self.paths, self.config, files)

    def require_same_log(self, summary: ArchiveSummary, files: Sequence[LogFile], location: str) -> None:
        """Raise ArchiveError unless the log, of these ``files``, continues the one in an archive."""
        if self.log_size != summary.log_size and files:
            raise ArchiveError(location, f"has log files of {summary.log_size} bytes, the store of {self.log_size}")
        for file in files:
            expected = summary.edges.get(log_name(file.base))
            if expected is not None and self._edges(file) not in (expected, ""):
                text = f"is an archive of another log: {file.path} differs; archive this store to another place"
                raise ArchiveError(location, text)
        end = summary.max_offset
        if not summary.edges or any(log_name(file.base) in summary.edges or file.base == end for file in files):
            return
        if not files or files[-1].end <= end:
            raise ArchiveError(location, f"the log of {self.paths.root} ends before the archive, which ends at {end}")
        text = f"the log of {self.paths.root} begins at {files[0].base}, after the end of the archive, {end}: "
        raise ArchiveError(location, text + "retention was faster; archive to another place")

    def _edges(self, file: LogFile) -> str:
        try:
            opened = self.fs.open(file.path)
        except FileNotFoundError:
            return ""
        try:
            return edges_of(opened, file.size_bytes)
        finally:
            opened.close()


class Ends(Protocol):
    """What has bytes at positions."""

    def read_at(self, position: int, length: int) -> bytes:
        """As :meth:`gantrymq.fs.api.File.read_at`."""
        ...


class StreamEnds:
    """The bytes of a stream that can seek."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read_at(self, position: int, length: int) -> bytes:
        """Bytes from ``position`` on."""
        self._stream.seek(position)
        return bytes(self._stream.read(length))


def edges_of(file: Ends, size: int) -> str:
    """A checksum of both ends of a file of ``size`` bytes."""
    ends = file.read_at(0, min(_EDGE_BYTES, size)), file.read_at(max(size - _EDGE_BYTES, 0), _EDGE_BYTES)
    return hashlib.sha256(b"".join(ends)).hexdigest()


def chunks_of_file(file: File, size: int) -> Iterator[bytes]:
    """The content of a file of ``size`` bytes. Raises DiskError."""
    for position in range(0, size, CHUNK_BYTES):
        yield file.read_at(position, min(CHUNK_BYTES, size - position))


class HeldFiles(ForwardingFileSystem):
    """A file system in which some open files of ``inner`` keep their names. It implements FileSystem."""

    def __init__(self, inner: FileSystem, held: Mapping[Path, File]) -> None:
        super().__init__(inner)
        self._held = held

    def open(self, path: Path, **options: Any) -> File:
        """Open a file; a held one stays open when its user closes it."""
        held = self._held.get(path)
        return self._inner.open(path, **options) if held is None else cast(File, _StaysOpen(held))


class _StaysOpen(ForwardingFile):
    def close(self) -> None:
        pass


@contextmanager
def held(fs: FileSystem, files: Sequence[LogFile]) -> Iterator[dict[Path, File]]:
    """Open files for a block; those at the begin that retention has deleted are left out.

    Raises StoreError if a later one is missing.
    """
    opened: dict[Path, File] = {}
    try:
        for file in files:
            try:
                opened[file.path] = fs.open(file.path)
            except FileNotFoundError:
                if opened:
                    raise StoreError(file.path, "was deleted while it was archived") from None
        yield opened
    finally:
        for each in opened.values():
            each.close()
