"""The index files of a store, in the order of their names.

Thread rule: the dispatcher puts. Queries run from any thread over the tuple of files at their start. The tuple is
replaced and never changed in place; while the store is open the dispatcher and retention replace it, under ``_guard``.

Source: IndexService.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gantrymq.errors import GantrymqError, NotInPlaceError
from gantrymq.format.index import HEADER_SIZE, IndexHeader, decode_header, file_size, key_hash
from gantrymq.format.names import following_index_name, index_name, is_index_name
from gantrymq.fs.api import File, FileSystem
from gantrymq.kernels.arrays import Int32s
from gantrymq.store.index.index_file import IndexFile
from gantrymq.store.log.record_batch import IndexEntries

EVERYTHING_MS = 0x7FFFFFFFFFFFFFFF


class IndexService:
    """The files in ``directory``, each with ``slots`` slots and ``entries`` entries.

    ``full_file_flushed`` is called with the end timestamp (ms) of a full file once it is durable. With ``streams`` new
    files are written past the page cache, and answer no query, until :meth:`end_rewriting` or :meth:`flush`.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        slots: int,
        entries: int,
        full_file_flushed: Callable[[int], None],
        *,
        streams: bool = False,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._full_file_flushed = full_file_flushed
        self._streams = streams
        self._files: tuple[IndexFile, ...] = ()
        self._guard = threading.Lock()
        self._doubtful: list[IndexFile] = []

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first, as a snapshot."""
        return self._files

    @property
    def newest(self) -> tuple[int, int]:
        """The store time (ms) of the last indexed record, and its physical offset; 0 and 0 if there is none."""
        header = self._files[-1].header if self._files else None
        return (header.end_timestamp_ms, header.end_phy_offset) if header is not None else (0, 0)

    @property
    def end_phy_offset(self) -> int:
        """The physical offset of the last indexed record, or 0 if there is none."""
        return self._files[-1].header.end_phy_offset if self._files else 0

    def load(self, newest_ms: int | None = None) -> list[tuple[Path, int]]:
        """Load the files. Returns the doubtful ones, each with the physical offset at which its content begins.

        After an abnormal exit ``newest_ms`` is the checkpoint's index timestamp. A file with a later entry is doubtful.
        So is one that is not full or that follows another with that timestamp, because a power cut may have taken a
        part of it. After any exit a file of a wrong length is doubtful, and so are the files after it. A doubtful file
        counts as dropped, and the next puts fill it again. Call :meth:`end_rewriting` when the log has been read.
        """
        files: list[IndexFile] = []
        dropped: list[tuple[Path, int]] = []
        for entry in self._fs.scan(self._directory):
            path = self._directory / entry.name
            if entry.is_directory or entry.is_special or not is_index_name(entry.name):
                continue
            is_whole = entry.size_bytes == file_size(self._slots, self._entries)
            doubtful = bool(dropped) or not is_whole
            doubtful = doubtful or (newest_ms is not None and self._is_doubtful(path, files, newest_ms))
            if doubtful:
                before = files[-1].header.end_phy_offset if files else 0
                dropped.append((path, max(self._peek(path).begin_phy_offset, before) if is_whole else before))
            if is_whole:
                file = IndexFile(self._fs.open(path, writable=True), self._slots, self._entries)
                (self._doubtful if doubtful else files).append(file)
            else:
                self._fs.remove(path)
        self._files = tuple(files)
        return dropped

    def _is_doubtful(self, path: Path, files: list[IndexFile], newest_ms: int) -> bool:
        header = self._peek(path)
        flushed_ms = newest_ms - (bool(files) and files[-1].header.end_timestamp_ms == newest_ms)
        return header.index_count < self._entries or header.end_timestamp_ms > flushed_ms

    def end_rewriting(self) -> None:
        """End the rewriting of doubtful files: all entries are in the index again, so the old files are removed."""
        self._streams = False
        if self._files:
            self._files[-1].settle()
        for file in self._doubtful:
            file.close()
            self._fs.remove(file.path)
        self._doubtful = []

    def log_ended_at(self, end_offset: int) -> None:
        """Lower the end offsets of the files to ``end_offset``. Entries that point past it stay, as in RocketMQ."""
        for file in self._files:
            file.end_at(end_offset)

    def destroy(self) -> None:
        """Remove the files, because there is no log that they could point into."""
        files, self._files = self._files, ()
        for file in files:
            file.close()
            self._fs.remove(file.path)

    def _peek(self, path: Path) -> IndexHeader:
        file = self._fs.open(path)
        try:
            return decode_header(file.read_at(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        finally:
            file.close()

    def put(self, entries: IndexEntries, start: int, now_ms: int | None) -> int:
        """Index entries from ``start`` on until a file is full. Returns how many.

        A new file is named after ``now_ms``, or with None after its first entry's store time, so that a rebuild is
        repeatable. Raises DiskFullError before any entry of this call is written, or if a streamed file is lost.
        """
        hashes = entries.hashes[start:]
        if not self._files or self._files[-1].is_full:
            first_ms = int(entries.store_timestamps_ms[entries.records[start]])
            self._begin_file(first_ms if now_ms is None else now_ms, hashes)
        self._files[-1].reserve(hashes)
        return self._files[-1].put(entries, start)

    def _begin_file(self, timestamp_ms: int, hashes: Int32s) -> None:
        last = self._files[-1] if self._files else None
        is_old = bool(self._doubtful)
        fresh = self._doubtful[0] if is_old else self._new_file(timestamp_ms, last, hashes)
        try:
            if last is not None:
                self._flush_full(last)
            self._fs.sync_directory(self._directory)
        except Exception:
            # A doubtful file stays doubtful: the next attempt uses it, or end_rewriting() removes it.
            if not is_old:
                self._take_back(fresh)
            raise
        if is_old:
            self._doubtful.pop(0).begin_again()
        elif self._streams:
            fresh.stream()
        if last is not None:
            fresh.begin_after(last.header)
        with self._guard:
            self._files = (*self._files, fresh)

    def _new_file(self, timestamp_ms: int, last: IndexFile | None, hashes: Int32s) -> IndexFile:
        self._fs.make_directory(self._directory)
        name = index_name(timestamp_ms)
        if last is not None and name <= last.path.name:
            # The name is taken, or would sort before an older file.
            name = following_index_name(last.path.name)
        path = self._directory / name
        file = self._fs.open(path, writable=True, create=True)
        try:
            file.resize(file_size(self._slots, self._entries))
            fresh = IndexFile(file, self._slots, self._entries, is_new=True)
            fresh.reserve(hashes)
        except Exception:
            self._take_back(file)
            raise
        return fresh

    def _take_back(self, file: File | IndexFile) -> None:
        """Remove a file that was not put into use. :meth:`flush` makes that durable.

        An error of the removal is ignored, because the first error is raised.
        """
        file.close()
        with suppress(GantrymqError):
            self._fs.remove(file.path)

    def require_in_place(self, file: IndexFile) -> None:
        """Raise NotInPlaceError if ``file`` was removed or resized by another program."""
        identity = self._fs.identity(file.path)
        if file not in self._files:  # retention has removed it
            return
        if identity is None:
            raise NotInPlaceError(file.path, "was removed")
        if identity.size_bytes != file.size:
            raise NotInPlaceError(file.path, f"was cut or extended to {identity.size_bytes} bytes")

    def _flush_full(self, file: IndexFile) -> None:
        file.settle()
        file.flush()
        self.require_in_place(file)
        self._full_file_flushed(file.header.end_timestamp_ms)

    def query(self, topic: str, key: str, max_num: int, begin_ms: int = 0, end_ms: int = EVERYTHING_MS) -> list[int]:
        """Return physical offsets that may have ``key``, newest first (queryOffset). Hashes are compared, not keys."""
        offsets: list[int] = []
        wanted = key_hash(topic, key)
        for file in reversed(self._files):
            if file.matches_time(begin_ms, end_ms):
                offsets += file.select(wanted, begin_ms, end_ms, max_num - len(offsets))
            if file.header.begin_timestamp_ms < begin_ms or len(offsets) >= max_num:
                break
        return offsets

    def remove_expired(self, min_phy_offset: int) -> list[Path]:
        """Remove the files that end before ``min_phy_offset``, but never the last. Returns their paths."""
        count = 0
        with self._guard:
            while count < len(self._files) - 1 and self._files[count].header.end_phy_offset < min_phy_offset:
                count += 1
            expired, self._files = self._files[:count], self._files[count:]
        for file in expired:
            # A running query keeps its view of the file.
            file.close()
            self._fs.remove(file.path)
        return [file.path for file in expired]

    def flush(self) -> None:
        """Make the last file and the directory durable. Older files were flushed when they were full."""
        if self._files:
            self._files[-1].flush()
        if self._fs.exists(self._directory):
            self._fs.sync_directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        for file in (*self._files, *self._doubtful):
            file.close()
        self._files, self._doubtful = (), []
