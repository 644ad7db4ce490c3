"""Directories of results: checked for disk space first, and complete before they get their final names.

**Disk space.** A tool that fills the disk also fails and cleans up, but only hours later. A lower bound of the output
is known: the whole records, or the bodies of messages. Counting them means reading the log, so it is done only if the
disk has less free space than the log is long. Holes of a log take no space and are not counted. A file system that
compresses can take more than its free space; nothing is refused there.

**Export.** If the target does not exist, the work is done in ``.NAME.unfinished`` beside it, which is renamed at the
end. If it exists (it may be a mount, or its parent may not be writable), the work is done in ``.unfinished`` within it.
At the end the entries move one level up, the marker of completion last. Readers of files skip hidden names. The next
process removes the leftovers of a killed one: a directory of that name with the marker that no living process has
locked, and the entries that the marker lists as being moved. Nothing else is ever removed.

**Salvage.** The new store is made in ``OUT/salvage.tmp``. A mark, ``OUT/salvage.unfinished``, is on the disk before its
first byte and is removed when the last one is durable. Every command refuses a store with the mark. RocketMQ does not
know the mark, so the commit log moves to its place last: before that RocketMQ finds no store. OUT is empty when the
mark is made, so everything beside it was made by a salvage, and the next one may remove it. Entries of an OUT without
the mark, and names that no salvage gives, are never touched.

Thread rule: one thread. Other processes may write below ``path`` while it exists.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from gantrymq.errors import NoRoomError, StoreError
from gantrymq.format import names
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from gantrymq.model.size import size_text
from gantrymq.store.entries import SALVAGE_WORK, Use, names_for
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.recovery.swap_journal import clear_directory
from gantrymq.tools.read.intact_records import IntactRecords

_SMALLEST_RECORD_SIZE = 91


def require_room(fs: FileSystem, target: Path, most_bytes: int, least_bytes: Callable[[], int], advice: str) -> None:
    """Raise NoRoomError if the output certainly does not fit on the disk of ``target``.

    ``most_bytes`` is a quick upper bound. Only if that does not fit, ``least_bytes()`` is called for a lower bound,
    which may be slow. ``advice`` is the end of the error text.
    """
    free = fs.free_bytes(target)
    if free is None or free >= most_bytes:
        return
    if (needed := least_bytes()) > free:
        text = f"no room on the disk: at least {size_text(needed)} ({needed} bytes) would be written, of which "
        raise NoRoomError(target, needed, f"{text}{size_text(free)} fit; nothing was written; {advice}")


def log_bytes(files: list[LogFile]) -> int:
    """The total length of the log files in bytes, holes included."""
    return sum(file.size_bytes for file in files)


def record_bytes(fs: FileSystem, files: list[LogFile]) -> int:
    """The total size of the whole records in bytes."""
    records = IntactRecords(fs, files)
    for _ in records:
        pass
    return records.contents.record_bytes


def most_unit_bytes(files: list[LogFile]) -> int:
    """An upper bound for the size of the queue units of a log, in bytes."""
    return log_bytes(files) // _SMALLEST_RECORD_SIZE * UNIT_SIZE


def unit_bytes(fs: FileSystem, files: list[LogFile]) -> int:
    """The size of the queue units of the records that enter a queue, in bytes."""
    units = 0
    for batch in IntactRecords(fs, files, moves_records=False):
        kinds = batch.columns[codes.SYS_FLAG, : batch.count] & TRANSACTION_MASK
        units += int(np.isin(kinds, (TRANSACTION_NONE, TRANSACTION_COMMIT)).sum())
    return units * UNIT_SIZE


MARKER = ".gantrymq-unfinished"
_SUFFIX = ".unfinished"
_LONGEST_NAME = 255


class UnfinishedDirectory:
    """A context manager: write below ``path``, then call :meth:`publish`.

    Leaving the context without that removes everything.
    """

    def __init__(self, target: Path, what: str) -> None:
        """``what`` is the noun for messages, such as "an export"."""
        self._target = target
        self._what = what
        self._is_inside = target.exists() or len(os.fsencode(f".{target.name}{_SUFFIX}")) > _LONGEST_NAME
        self._made_target = False
        self._lock: int | None = None
        self.path = target / _SUFFIX if self._is_inside else target.with_name(f".{target.name}{_SUFFIX}")

    def __enter__(self) -> UnfinishedDirectory:
        """Create the directory. Raises StoreError if the target is not empty, or another process works in it."""
        self._remove_left_over()
        if self._target.exists() and (not self._target.is_dir() or any(self._target.iterdir())):
            raise StoreError(self._target, f"is not an empty directory; {self._what} needs one of its own")
        if self._is_inside and not self._target.exists():
            self._target.mkdir(parents=True)
            self._made_target = True
        self.path.mkdir(parents=True)
        self._lock = os.open(self.path / MARKER, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove everything that was not published."""
        try:
            if self.path.exists():
                _remove(self.path, self._target if self._is_inside else None)
            if self._made_target:
                with suppress(OSError):  # a published target is not empty
                    self._target.rmdir()
        finally:
            self._unlock()

    def clear(self) -> None:
        """Remove what was written, to begin again."""
        for entry in self.path.iterdir():
            if entry.name != MARKER:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def publish(self, *, last: str) -> None:
        """Move everything to its final name. The entry ``last``, which marks completion, is moved last."""
        if not self._is_inside:
            self.path.rename(self._target)
            _sync(self._target.parent)
            (self._target / MARKER).unlink()
            return
        names = [entry.name for entry in self.path.iterdir() if entry.name not in (MARKER, last)] + [last]
        (self.path / MARKER).write_bytes(b"\0".join(map(os.fsencode, names)))
        _sync(self.path / MARKER)
        for name in names:
            (self.path / name).rename(self._target / name)
        _sync(self._target)
        (self.path / MARKER).unlink()
        self.path.rmdir()

    def _remove_left_over(self) -> None:
        """Remove the leftovers of a killed process on the same target."""
        if not self.path.exists():
            return
        try:
            lock = os.open(self.path / MARKER, os.O_RDWR)
        except FileNotFoundError:
            text = f"is in the way of {self._what}, which did not make it; move it away"
            raise StoreError(self.path, text) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(self._target, f"another process is writing {self._what} into it") from None
        finally:
            os.close(lock)
        _remove(self.path, self._target if self._is_inside else None)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _remove(path: Path, moved_to: Path | None) -> None:
    """Remove an unfinished directory: first the entries that were moved out of it, the marker last."""
    if moved_to is not None:
        names = [os.fsdecode(name) for name in (path / MARKER).read_bytes().split(b"\0") if name]
        for name in names:
            moved = moved_to / name
            shutil.rmtree(moved) if moved.is_dir() else moved.unlink(missing_ok=True)
    for entry in path.iterdir():
        if entry.name != MARKER:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink(missing_ok=True)
    (path / MARKER).unlink(missing_ok=True)
    path.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SalvageTarget:
    """The target directory ``root`` of a salvage: missing, empty, or left by an interrupted salvage."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._mark = root / names.SALVAGE_MARK
        self.work = root / SALVAGE_WORK

    def require_free(self) -> None:
        """Raise StoreError if the directory has entries that no salvage has made."""
        present = {entry.name for entry in self._fs.scan(self._root)}
        if present and names.SALVAGE_MARK not in present:
            raise StoreError(self._root, "is not empty; a salvaged store needs a directory of its own")
        if foreign := present - {names.SALVAGE_MARK, SALVAGE_WORK, *names_for(Use.SALVAGED)}:
            text = "was not made by the salvage that was interrupted in this directory; move it, or name another one"
            raise StoreError(self._root / min(foreign), text)

    def begin(self, source: Path) -> None:
        """Set the mark, remove the leftovers of an interrupted salvage, and create the work directory."""
        self._fs.make_directory(self._root)
        mark = self._fs.open(self._mark, writable=True, create=True)
        try:
            mark.write_at(
                0,
                f"gantrymq store salvage of {source} was not finished: run it again\n".encode(errors="surrogateescape"),
            )
            mark.sync()
        finally:
            mark.close()
        self._fs.sync_directory(self._root)
        self._clear()
        self._fs.make_directory(self.work)

    def finish(self) -> None:
        """Move the parts of the new store, all durable, to their places, and then remove the mark."""
        made = {entry.name for entry in self._fs.scan(self.work)}
        for name in names_for(Use.SALVAGED):
            if name in made:
                self._fs.rename(self.work / name, self._root / name)
        self._fs.sync_directory(self.work, self._root)
        clear_directory(self._fs, self.work)
        self._remove_mark()

    def give_up(self) -> None:
        """Remove everything after a failed salvage. If that fails too, the mark stays."""
        with suppress(StoreError, OSError):
            self._clear()
            self._remove_mark()

    def _clear(self) -> None:
        for directory in (self.work, *(self._root / name for name in names_for(Use.SALVAGED))):
            entry = next((listed for listed in self._fs.scan(self._root) if listed.name == directory.name), None)
            if entry is not None and entry.is_directory and not entry.is_link:
                clear_directory(self._fs, directory)
            elif entry is not None:
                self._fs.remove(directory)
        self._fs.sync_directory(self._root)

    def _remove_mark(self) -> None:
        self._fs.sync_directory(self._root)
        self._fs.remove(self._mark)
        self._fs.sync_directory(self._root)
