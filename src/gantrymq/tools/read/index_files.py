"""The index files of a store and their geometry, and the file sizes of a store in which some files are damaged.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, StoreError
from gantrymq.format.index import HEADER_SIZE, decode_header, file_size
from gantrymq.format.names import is_index_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Bytes, Entry, File, FileSystem
from gantrymq.fs.reads import read_by_pages
from gantrymq.store.geometry import (
    INDEX_KEYS,
    QUEUE_SIZE_KEY,
    find_index_geometry,
    log_file_size,
    settled_size,
    usual_size,
)
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.tools.read.bad_disk import ReadableBytes
from gantrymq.tools.read.queue_files import queue_directories


@dataclass(slots=True)
class IndexFiles:
    """The entries of the index directory.

    ``names`` are the index files of one size, oldest first; ``odd`` those of another size; ``others`` are no index
    files. ``slots`` and ``entries`` are 0 if no geometry explains the files.
    """

    directory: Path
    names: list[str] = field(default_factory=list)
    odd: list[Entry] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    size_bytes: int = 0
    slots: int = 0
    entries: int = 0

    @property
    def is_readable(self) -> bool:
        """Whether there are index files and their geometry is known."""
        return bool(self.names) and self.slots > 0


def find_index_files(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]
) -> IndexFiles:
    """List the index directory. Raises AmbiguousGeometryError if more than one geometry fits."""
    files = IndexFiles(paths.index)
    entries = fs.scan(paths.index)
    named = [
        entry for entry in entries if not entry.is_directory and not entry.is_special and is_index_name(entry.name)
    ]
    files.others = [entry for entry in entries if entry not in named]
    given_size = file_size(config.max_hash_slot_num, config.max_index_num)
    sizes = [entry.size_bytes for entry in named]
    files.size_bytes = given_size if given_size in sizes else usual_size(sizes)
    files.names = [entry.name for entry in named if entry.size_bytes == files.size_bytes]
    files.odd = [entry for entry in named if entry.size_bytes != files.size_bytes]
    if files.names:
        sized = find_index_geometry(_Only(fs, files.names), paths, config, given)  # type: ignore[arg-type]
        if file_size(sized.max_hash_slot_num, sized.max_index_num) == files.size_bytes:
            files.slots, files.entries = sized.max_hash_slot_num, sized.max_index_num
    return files


class _Only:
    """A directory of which only some names are visible, with the methods that find_index_geometry needs."""

    def __init__(self, fs: FileSystem, names: Collection[str]) -> None:
        self._fs = fs
        self._names = names

    def scan(self, path: Path) -> list[Entry]:
        return [entry for entry in self._fs.scan(path) if entry.name in self._names]

    def open(self, path: Path) -> File:
        return _Readable(self._fs.open(path))  # type: ignore[return-value]


class _Readable:
    """A file whose unreadable pages read as zeros, with the methods that find_index_geometry needs."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._unreadable: dict[tuple[int, int, int], str] = {}

    def map(self) -> Bytes:
        data = ReadableBytes(self._file)
        data.prefault(0, len(data.array))
        self._unreadable = data.unreadable
        return data.array

    def fetch(self, position: int, length: int) -> None:
        """Do nothing: all of the file is in memory."""

    def data_from(self, position: int) -> int:
        return self._file.data_from(position)

    def lost_in(self, position: int, length: int) -> DiskError | None:
        for (_, begin, end), reason in sorted(self._unreadable.items()):
            if begin < position + length and position < end:
                return DiskError(self._file.path, reason, max(begin, position))
        return None

    def close(self) -> None:
        self._file.close()


def count_kept(fs: FileSystem, files: IndexFiles, checkpoint_ms: int) -> int:
    """The number of index files that a recovery after an abnormal exit keeps (IndexService.load).

    ``checkpoint_ms`` is the checkpoint's indexMsgTimestamp. The first file that is not full, or that is newer than the
    checkpoint, and all files after it are filled again.
    """
    before_ms = 0
    for number, name in enumerate(files.names):
        file = fs.open(files.directory / name)
        try:
            header = decode_header(read_by_pages(file, 0, HEADER_SIZE, lambda *_: None).ljust(HEADER_SIZE, b"\0"))
        finally:
            file.close()
        flushed_ms = checkpoint_ms - (number > 0 and before_ms == checkpoint_ms)
        if header.index_count < files.entries or header.end_timestamp_ms > flushed_ms:
            return number
        before_ms = header.end_timestamp_ms
    return len(files.names)


def queue_file_size(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> int:
    """The size of most consume queue files, unless it is given. Raises ConfigError (geometry.settled_size)."""
    queues, _ = queue_directories(fs, paths.consume_queue)
    sizes = [file.size_bytes for _, _, path in queues for file in offset_files(fs, [path])]
    whole = [size for size in sizes if size % UNIT_SIZE == 0]
    return settled_size(QUEUE_SIZE_KEY, config.mapped_file_size_consume_queue, whole, given)


def store_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str], *, index: bool
) -> MessageStoreConfig:
    """``config`` with the sizes that most files have; with ``index`` also the geometry of the index files.

    Index files that no geometry explains are ignored. Raises AmbiguousGeometryError, ConfigError.
    """
    config = replace(
        config,
        mapped_file_size_commit_log=log_file_size(fs, paths, config, given),
        mapped_file_size_consume_queue=queue_file_size(fs, paths, config, given),
    )
    if not index or all(key in given for key in INDEX_KEYS):
        return config
    files = find_index_files(fs, paths, config, given)
    if files.is_readable:
        config = replace(config, max_hash_slot_num=files.slots, max_index_num=files.entries)
    return config


def found_sizes(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]
) -> MessageStoreConfig:
    """As :func:`store_sizes` with the index, for readers: an unknown geometry leaves that of ``config``."""
    try:
        return store_sizes(fs, paths, config, given, index=True)
    except StoreError:
        return store_sizes(fs, paths, config, given, index=False)
