"""What a rebuild has made and is letting take the places of the old files, so that whoever comes next can finish it.

When all the new files are on the disk, a mark in ``rebuild.tmp`` says which go where, and what the checkpoint may vouch
for then. From there on a kill leaves a swap that the next open, or the next rebuild, takes up where it was: that is
surer than to dispatch again, for where the log is damaged a recovery would cut it.

The mark says how the log ended, too. A broker of RocketMQ knows nothing of the mark, and where one has gone on in the
log meanwhile the new files are of the past: then nothing is moved. Nor is it by a mark that is damaged, which is none,
and never anything but from ``rebuild.tmp`` to where queues and index lie. What is not to be moved is cleared away.

Thread rule: one thread, under the lock of the store, or over a view of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from zlib import crc32

from gantrymq.errors import StoreError, StorePermissionError, UnusableFileError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import BLANK_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.file_swap import WORK_DIRECTORY, FileSwap, clear_directory, require_same_disk
from gantrymq.store.offset_files import offset_files
from gantrymq.store.paths import StorePaths
from gantrymq.store.swap_mark import SwapMark

_MARK = "ready.json"
_END_BYTES = 4096


class ReadySwap:
    """The mark of the store at ``paths``."""

    def __init__(self, fs: FileSystem, paths: StorePaths) -> None:
        self._fs = fs
        self._paths = paths
        self._work = paths.root / WORK_DIRECTORY
        self._mark = self._work / _MARK

    @property
    def is_set(self) -> bool:
        """Whether a rebuild is letting files take their places, or was."""
        return self._fs.exists(self._mark)

    def set(self, swap: FileSwap, page: Checkpoint, log_end: int) -> None:
        """All that ``swap`` is to move is on the disk, made of the log up to ``log_end``; ``page`` is for then."""
        moves = [(self._below(source), self._below(target), names) for source, target, names in swap.moves]
        crc, error = self._log_end_crc(log_end)
        if error is not None:  # one that passes must not make the mark say what the next look will deny
            crc, _ = self._log_end_crc(log_end)
        mark = SwapMark(astuple(page), (log_end, crc), moves)
        ReplacedFile(self._fs, self._mark).replace(mark.encode())

    def give_up(self) -> None:
        """Whoever was to make the files has failed: they go, unless the mark is set, for then they can be moved."""
        with suppress(StoreError, OSError):  # there is an error to tell already, and the next open clears away too
            if not self.is_set:
                clear_directory(self._fs, self._work)

    def clear(self) -> None:
        """All of it was moved, or is not wanted any more; the rest of what was made goes too. The mark goes first.

        Raises StoreError where something else has the name of the directory.
        """
        if self._fs.exists(self._work) and not self._is_ours():
            raise StoreError(self._work, "is no directory of this store, and a rebuild makes its files in one")
        if self.is_set:
            self._fs.remove(self._mark)
            self._fs.sync_directory(self._work)
        clear_directory(self._fs, self._work)

    def finish(self) -> None:
        """Do what a rebuild that was killed has left to do, if there is such; clear away what it has made for nothing.

        Raises DiskFullError and DiskError, and before anything is moved StoreError, where another disk or mount was put
        in its way meanwhile: what was moved before and what was not may be of a damaged log, and only together right.
        So does an end of the log that cannot be read, where it could be when the mark was set.
        """
        if not self._fs.exists(self._work) or not self._is_ours():
            return
        mark = self._read()
        if mark is None or not self._is_of_this_log(mark):
            with suppress(StorePermissionError):  # it is in nobody's way
                self.clear()
            return
        root = self._paths.root
        swap = FileSwap(self._fs, root)
        swap.moves += [(root / source, root / target, names) for source, target, names in mark.moves]
        for source, target, _ in swap.moves:
            require_same_disk(self._fs, source, target)
        swap.run()
        checkpoint = StoreCheckpoint(self._fs, self._paths.checkpoint)
        checkpoint.page = Checkpoint(*mark.checkpoint)
        checkpoint.flush()
        self.clear()

    def _is_ours(self) -> bool:
        """Whether it is a directory in the store: what a link leads to was not made here, and is not to be cleared."""
        here = (entry for entry in self._fs.scan(self._paths.root) if entry.name == WORK_DIRECTORY)
        return any(entry.is_directory and not entry.is_link for entry in here)

    def _read(self) -> SwapMark | None:
        try:
            return ReplacedFile(self._fs, self._mark).load(SwapMark.parse)
        except UnusableFileError:
            return None

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self._paths.root))

    def _is_of_this_log(self, mark: SwapMark) -> bool:
        """Whether nobody has gone on in the log since. Raises what kept the disk from saying so."""
        end, expected = mark.log_end
        crc, error = self._log_end_crc(end)
        if crc != expected and error is not None:
            raise error
        return crc == expected

    def _log_end_crc(self, end: int) -> tuple[int, Exception | None]:
        """A number that changes when somebody goes on in the log, or cuts it and then goes on.

        What the disk does not give back is no record and does not count; the last such error comes with it.
        """
        crc, failed = 0, None
        for path, base, size_bytes in offset_files(self._fs, self._paths.commit_logs):
            if base + size_bytes < end:
                continue
            try:
                crc = crc32(self._log_end(path, base, end), crc)
            except (OSError, StoreError) as error:
                failed = error
        return crc, failed

    def _log_end(self, path: Path, base: int, end: int) -> bytes:
        """What a file has in front of ``end``, and what would be the head of a record there, or at its begin."""
        file = self._fs.open(path)
        try:
            begin = max(end - base - _END_BYTES, 0)
            # Zeros say nothing, nor does a file that holds no more: nobody has promised that they last.
            return file.read_at(begin, max(end - base, 0) - begin + BLANK_SIZE).rstrip(b"\0")
        finally:
            file.close()
