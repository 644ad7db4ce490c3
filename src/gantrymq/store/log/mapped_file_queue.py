"""The files of a commit log, a consume queue or its extension: files of one size that form one address space.

A commit log may lie in several directories (:class:`MultiPathMappedFileQueue`). A new file goes to the next directory
with room, and a file may be found in any of them.

Invariant: file i + 1 begins where file i ends. Only the last file may be partly written. ``flushed_where`` and
``committed_where`` are offsets in the address space, with flushed_where ≤ committed_where ≤ max_offset.

Thread rule: the tuple of files is replaced and never changed in place, so readers take it without a lock. The writer,
recovery and retention replace it under ``_guard``.

Source: MappedFileQueue, MultiPathMappedFileQueue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from gantrymq.errors import DuplicateFileError, GantrymqError, MissingFileError, NotInPlaceError, WrongFileSizeError
from gantrymq.format.names import offset_name
from gantrymq.fs.api import File, FileSystem
from gantrymq.store.log.mapped_file import PAGE_SIZE, MappedFile, SelectMappedBufferResult
from gantrymq.store.paths import OffsetFile, StorePaths, offset_files

# The advice in errors and findings about a commit log with missing or damaged files.
SALVAGE = "`gantrymq store salvage` makes a new store of the readable part"
ACCEPT = "--set acceptMissingCommitLog=true"

_DESTROY_AT_ONCE_MS = 0


class MappedFileQueue:
    """The files of ``directory``, each ``file_size`` bytes long.

    With ``reserve_space`` a new file reserves its disk space at once, which a file that is written through its mapping
    needs; ``leave_bytes()`` of the disk must stay free then. ``on_new_file`` is called with each new file before
    anything is written to it. The name of a new file is made durable at once. With ``defer_sync`` that is called
    instead, with the directory that must be synced later. ``remedy`` is the advice in errors about missing files and
    wrong sizes.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        file_size: int,
        *,
        reserve_space: bool,
        on_new_file: Callable[[MappedFile], None] | None = None,
        defer_sync: Callable[[Path], None] | None = None,
        remedy: str,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.flushed_where = 0
        self.committed_where = 0
        self.had_empty_file = False  # set by load()
        self._empty: list[Path] = []
        self.leave_bytes: Callable[[], int] = lambda: 0
        self._fs = fs
        self._reserve_space = reserve_space
        self._lend_buffer = on_new_file
        self._sync_later = defer_sync
        self._remedy = remedy
        self._ahead: dict[int, MappedFile] = {}  # by start offset: files on the disk that are not in ``_files`` (yet)
        self._making = threading.Lock()
        self._files: tuple[MappedFile, ...] = ()
        self._guard = threading.Lock()
        self._removing = threading.Lock()
        self._needs_sync = True  # the previous writer may not have synced the directory

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files in order, as a snapshot."""
        return self._files

    @property
    def first(self) -> MappedFile | None:
        """The first file, or None without files."""
        files = self._files
        return files[0] if files else None

    @property
    def last(self) -> MappedFile | None:
        """The last file, or None without files."""
        files = self._files
        return files[-1] if files else None

    @property
    def min_offset(self) -> int:
        """The offset at which the first file begins, or -1 without files."""
        first = self.first
        return first.file_from_offset if first else -1

    @property
    def max_offset(self) -> int:
        """The offset after the last byte that may be read, or 0 without files."""
        last = self.last
        return last.end_offset if last else 0

    def load(self, begin: int = 0) -> None:
        """Load the files of the directory that begin at ``begin`` or later. All of them count as fully written.

        Zero-length files at the end count as missing until :meth:`drop_empty` removes them: a power cut took their size
        before anything in them was flushed. Entries whose name is not an offset, and entries that are not regular
        files, are ignored. Changes nothing on the disk.

        Raises WrongFileSizeError if a file has another size or its name is not a multiple of the size,
        DuplicateFileError if two files begin at the same offset, and MissingFileError if a file in between is missing.
        """
        entries = [entry for entry in self._entries() if entry.offset >= begin]
        empty = []
        while entries and entries[-1].size_bytes == 0:
            empty.append(entries.pop().path)
        files: list[MappedFile] = []
        for path, offset, size_bytes in entries:
            if size_bytes != self.file_size:
                raise WrongFileSizeError(
                    path, size_bytes, f"{self.file_size} like the others or as configured; {self._remedy}"
                )
            if offset % self.file_size:
                raise WrongFileSizeError(
                    path, size_bytes, f"a name that is a multiple of the size {self.file_size}; {self._remedy}"
                )
            if files and offset == files[-1].file_from_offset:
                raise DuplicateFileError(path, files[-1].path, self._remedy)
            if files and offset > files[-1].file_from_offset + self.file_size:
                raise self._missing(files[-1], offset)
            file = self._mapped(path, offset)
            file.set_positions(self.file_size)
            files.append(file)
        self.had_empty_file, self._empty = bool(empty), empty
        self._files = tuple(files)
        self.flushed_where = self.committed_where = self.max_offset

    def drop_empty(self) -> None:
        """Remove the zero-length files that the last load found."""
        for path in self._empty:
            self._fs.remove(path)
        self._empty = []

    def _entries(self) -> list[OffsetFile]:
        return offset_files(self._fs, self._directories)

    @property
    def _directories(self) -> tuple[Path, ...]:
        """The directories that hold the files."""
        return (self.directory,)

    def _directory_for(self, offset: int) -> Path:
        """Return the directory for a new file that begins at ``offset``."""
        return self.directory

    def _missing(self, before: MappedFile, offset: int) -> MissingFileError:
        begin = before.file_from_offset + self.file_size
        count = (offset - begin) // self.file_size
        path = self._directory_for(begin) / offset_name(begin)
        return MissingFileError(path, count, begin, offset, self._remedy)

    def _mapped(self, path: Path, offset: int) -> MappedFile:
        return MappedFile(path, offset, self.file_size, partial(self._fs.open, path, writable=True))

    def find(self, offset: int, *, first_if_missing: bool = False) -> MappedFile | None:
        """Return the file that contains ``offset``, or None (findMappedFileByOffset)."""
        files = self._files
        if not files:
            return None
        index = (offset - files[0].file_from_offset) // self.file_size
        if 0 <= index < len(files):
            return files[index]
        return files[0] if first_if_missing else None

    def select(self, offset: int, length: int) -> SelectMappedBufferResult | None:
        """Return a held view of ``length`` bytes at ``offset``, or None unless all are written and in one file.

        Raises DiskError.
        """
        file = self.find(offset)
        return file.select(offset - file.file_from_offset, length) if file else None

    def roll_next_file(self, offset: int) -> int:
        """Return the offset at which the file after the one that contains ``offset`` begins (rollNextFile)."""
        return offset + self.file_size - offset % self.file_size

    def last_for_append(self, start_offset: int = 0) -> MappedFile:
        """Return the file to write to: the last one, or a new one if there is none or the last one is full.

        The very first file is the one that contains ``start_offset``. Raises DiskFullError.
        """
        files = self._files
        last = files[-1] if files else None
        if last is not None and last.wrote_position < last.size:
            return last
        offset = last.file_from_offset + self.file_size if last else start_offset - start_offset % self.file_size
        return self._create(offset)

    def _create(self, offset: int) -> MappedFile:
        with self._making:
            mapped = self._ahead.get(offset)
            identity = self._fs.identity(mapped.path) if mapped is not None else None
            if mapped is None or identity is None or identity.size_bytes != self.file_size:
                mapped = self._make(offset)  # also if another program removed or truncated it
            if self._lend_buffer is not None:
                self._lend_buffer(mapped)
            # A file is prepared ahead only after this one is in the tuple: prepare_next() looks at the last file.
            with self._guard:
                self._files = (*self._files, mapped)
            self._ahead.pop(offset, None)
        return mapped

    def prepare_next(self, *, warm: bool) -> bool:
        """Create the file after the last one before it is needed. Returns False if it exists already.

        With ``warm`` its pages are touched too, so that later writes find them in memory. Raises DiskFullError.
        """
        with self._making:
            last = self.last
            if last is None or self._ahead:
                return False
            mapped = self._make(last.file_from_offset + self.file_size)
            if warm:
                file = self._fs.open(mapped.path, writable=True)
                file.map()[::PAGE_SIZE] = 0
                file.close()
            self._ahead[mapped.file_from_offset] = mapped
            return True

    def drop_ahead(self) -> None:
        """Remove the files that were created ahead or set aside and are not used."""
        with self._making:
            ahead, self._ahead = self._ahead, {}
            self._drop([ahead[offset] for offset in sorted(ahead, reverse=True)])

    def _make(self, offset: int) -> MappedFile:
        directory = self._directory_for(offset)
        mapped = self._mapped(directory / offset_name(offset), offset)
        self._fs.make_directory(directory, synced=self._sync_later is None)
        file = self._fs.open(mapped.path, writable=True, create=True)
        try:
            self._prepare(file)
        except Exception:
            file.close()
            self._fs.remove(mapped.path)
            raise
        file.close()
        (self._sync_later or self._fs.sync_directory)(directory)
        return mapped

    def _prepare(self, file: File) -> None:
        # The size is set first: a crash in between leaves an empty file or one of full size, and load() accepts both.
        file.resize(self.file_size)
        if self._reserve_space:
            file.reserve(0, self.file_size, leave=self.leave_bytes())

    def reserve_rest(self) -> None:
        """Reserve the space after the last byte of the last file. Another program may have left a hole there."""
        last = self.last
        if last is not None and self._reserve_space:
            last.file.reserve(last.wrote_position, self.file_size - last.wrote_position)

    def truncate_dirty(self, offset: int, *, wipe: bool, sets_aside: bool = False) -> list[Path]:
        """Truncate the queue at ``offset`` (truncateDirtyFiles).

        Returns the paths of the files that are no longer part of it.

        With ``wipe`` the rest of the file that contains ``offset`` reads as zeros afterwards, so that truncated bytes
        cannot pass for written ones when the end moves on. In the commit log the zeros must be durable
        (:meth:`flush_all`) before the next record is written: otherwise a power cut brings the truncated records back
        after it.

        With ``sets_aside`` the removed files stay on the disk and are reused, with their old content, when the queue
        grows that far again. :meth:`drop_ahead` removes the others; call it before any earlier file is removed.
        """
        removed = [file for file in self._files if file.file_from_offset > offset]
        file = self.find(offset)
        if file is not None:
            file.cut_to(offset - file.file_from_offset)
            if wipe:
                file.wipe_rest()
        if sets_aside:
            self._set_aside(removed)
        else:
            self._drop(removed[::-1])
        self.committed_where = min(offset, self.max_offset) if self._files else offset
        self.flushed_where = min(self.flushed_where, self.committed_where) if self._files else offset
        return [file.path for file in removed]

    def _set_aside(self, files: Sequence[MappedFile]) -> None:
        with self._guard:
            self._files = self._files[: len(self._files) - len(files)]
        for file in files:
            file.set_positions(0)
            self._ahead[file.file_from_offset] = file

    def drop_unused(self) -> None:
        """Remove the last file if nothing is written in it.

        It stays if it is the only record of how far the queue had come.
        """
        files = self._files
        if files and files[-1].wrote_position == 0 and (len(files) > 1 or files[-1].file_from_offset == 0):
            self._drop(files[-1:])

    def mark_unflushed(self, offset: int) -> None:
        """Flush the bytes after ``offset`` again: their writer may have been killed before its sync."""
        self.flushed_where = min(max(offset, self.min_offset, 0), self.flushed_where)
        for file in self._files:
            file.flushed_position = min(file.flushed_position, max(self.flushed_where - file.file_from_offset, 0))

    def first_modified_ms(self) -> int:
        """Return the modification time of the first file (ms), or 0 without files."""
        first = self.first
        for entry in self._fs.scan(first.path.parent) if first else ():
            if first is not None and entry.name == first.path.name:
                return entry.modified_ms
        return 0

    def remove_first(self, now_ms: int, interval_forcibly_ms: int) -> bool:
        """Try to remove the first file. Returns False while the file is held and cannot go.

        The last file stays, and so does a file that is followed by nothing durable: a power cut would leave no file,
        and the log would begin at 0 again. Raises SyncFailedError.
        """
        files = self._files
        if len(files) < 2 or not self._is_durable(files[1]):
            return False
        if not files[0].shutdown(now_ms, interval_forcibly_ms):
            return False
        self._drop(files[:1])
        return True

    def _is_durable(self, file: MappedFile) -> bool:
        """Whether a part of ``file`` is on the disk, or, if nothing is written in it, at least its length."""
        if self.flushed_where == file.file_from_offset and not file.wrote_position:
            file.file.sync()
            return True
        return self.flushed_where > file.file_from_offset

    def remove_before(self, count: int) -> list[Path]:
        """Remove the first ``count`` files, but never the last one. Returns their paths."""
        files = self._files
        removed = files[: max(min(count, len(files) - 1), 0)]
        self._drop(removed)
        return [file.path for file in removed]

    def _drop(self, removed: Sequence[MappedFile]) -> None:
        """Remove files in the given order.

        The order begins at an end of the queue, so that a crash in between leaves no gap.
        """
        if not removed:
            return
        with self._removing:
            self._needs_sync = True
            for file in removed:
                self._remove(file)
            self._sync_names()

    def sync_names(self) -> int:
        """Make removals durable, and the names that the previous process has made.

        Returns the offset at which the first file begins, which a power cut can no longer change.

        A file that is held or is being removed still counts. Raises SyncFailedError.
        """
        with self._removing:
            self._sync_names()
            return self.min_offset

    def _sync_names(self) -> None:
        if self._needs_sync:
            self._fs.sync_directory(*self._directories)
            self._needs_sync = False

    def _remove(self, file: MappedFile) -> None:
        """Remove one file. If that fails the file returns to the queue, so that no later file is removed before it."""
        was_in_row = file in self._files
        with self._guard:
            self._files = tuple(other for other in self._files if other is not file)
        file.shutdown(0, _DESTROY_AT_ONCE_MS)
        try:
            self._fs.remove(file.path)
        except (GantrymqError, OSError):
            if was_in_row:
                again = self._mapped(file.path, file.file_from_offset)
                again.set_positions(file.wrote_position)
                with self._guard:
                    self._files = tuple(sorted((*self._files, again), key=lambda mapped: mapped.file_from_offset))
            raise

    def commit(self, least_pages: int = 0) -> bool:
        """Commit the file that contains ``committed_where``.

        Returns True if there was nothing to do, as RocketMQ does.
        """
        file = self.find(self.committed_where, first_if_missing=self.committed_where == 0)
        if file is None:
            return True
        where = file.file_from_offset + file.commit(least_pages)
        unchanged = where == self.committed_where
        self.committed_where = where
        return unchanged

    def flush(self, least_pages: int = 0) -> bool:
        """Flush the file that contains ``flushed_where``. Returns True if there was nothing to do, as RocketMQ does."""
        file = self.find(self.flushed_where)
        if file is None and self.flushed_where < self.min_offset:
            file = self.first  # retention has removed the file
        if file is None:
            return True
        where = file.file_from_offset + file.flush(least_pages)
        unchanged = where == self.flushed_where
        if not unchanged:  # a sync also succeeds on a file that was removed
            self.require_in_place(file)
        self.flushed_where = where
        self.committed_where = max(self.committed_where, where)
        return unchanged

    def require_in_place(self, file: MappedFile) -> None:
        """Raise NotInPlaceError if ``file`` was removed, replaced or resized by another program."""
        identity = self._fs.identity(file.path)
        opened = file.identity()
        if file not in self._files or not file.is_available:  # this process removes it
            return
        if identity is None:
            raise NotInPlaceError(file.path, "was removed")
        if opened is not None and identity[:2] != opened[:2]:
            raise NotInPlaceError(file.path, "was replaced")
        if identity.size_bytes != file.size:
            raise NotInPlaceError(file.path, f"was cut or extended to {identity.size_bytes} bytes")

    def begin_flush(self) -> None:
        """Start writing to the disk what :meth:`flush_all` will wait for."""
        for file in self._files:
            if file.file_from_offset + file.size > self.flushed_where:
                file.begin_flush()

    def flush_all(self) -> None:
        """Flush until nothing is left to flush."""
        while not self.flush(0):
            pass

    def for_each(self, visit: Callable[[MappedFile], None]) -> None:
        """Call ``visit`` with every file in order."""
        for file in self._files:
            visit(file)

    def clear(self) -> list[Path]:
        """Remove every file, those created ahead first. Returns the paths of the others."""
        self.drop_ahead()
        files = self._files
        self._drop(files[::-1])
        self.flushed_where = self.committed_where = 0
        return [file.path for file in files]

    def destroy(self) -> list[Path]:
        """Remove every file and the directories. Returns the paths of the files."""
        removed = self.clear()
        for directory in self._directories:
            self._fs.remove_directory(directory)
        return removed

    def close(self) -> None:
        """Close every file."""
        self.for_each(MappedFile.close)


class MultiPathMappedFileQueue(MappedFileQueue):
    """The files of the commit log in the directories of ``paths``.

    No new file is created in ``full_directories()``, unless all directories are full.
    """

    def __init__(
        self, fs: FileSystem, paths: StorePaths, file_size: int, on_new_file: Callable[[MappedFile], None] | None
    ) -> None:
        super().__init__(fs, paths.commit_log, file_size, reserve_space=True, on_new_file=on_new_file, remedy=SALVAGE)
        self.full_directories: Callable[[], Collection[Path]] = tuple
        self._paths = paths

    @property
    def _directories(self) -> tuple[Path, ...]:
        return self._paths.commit_logs

    def _directory_for(self, offset: int) -> Path:
        return self._paths.directory_for(offset // self.file_size, self.full_directories())
