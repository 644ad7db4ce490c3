"""A directory of results that has its name only when it is whole.

Where the target does not exist, the work is done in ``.NAME.unfinished`` beside it, which is renamed at the end. Where
it exists (it may be a mount, or its parent may not be writable), the work is done in ``.unfinished`` within it, and its
entries are moved one level up at the end, the one that says that all is there last. Readers of files pass over hidden
names.

What a killed process leaves is removed by the next one: a directory of that name with the marker, which no living
process has locked, and the entries that the marker says were being moved. Nothing else is ever removed.

Thread rule: one thread. Other processes may write below ``path`` while it is there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gantrymq.errors import StoreError

MARKER = ".gantrymq-unfinished"
_SUFFIX = ".unfinished"
_LONGEST_NAME = 255


class UnfinishedDirectory:
    """Use as a context: write below ``path``, then :meth:`publish`. Left without that, everything is removed."""

    def __init__(self, target: Path, what: str) -> None:
        """``what`` is being made, for people: "an export"."""
        self._target = target
        self._what = what
        self._is_inside = target.exists() or len(os.fsencode(f".{target.name}{_SUFFIX}")) > _LONGEST_NAME
        self._made_target = False
        self._lock: int | None = None
        self.path = target / _SUFFIX if self._is_inside else target.with_name(f".{target.name}{_SUFFIX}")

    def __enter__(self) -> UnfinishedDirectory:
        """Make the directory. Raises StoreError where the target is not empty, or another process is at work in it."""
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
        """Remove what was not published."""
        try:
            if self.path.exists():
                _remove(self.path, self._target if self._is_inside else None)
            if self._made_target:
                with suppress(OSError):  # it is not empty once it was published
                    self._target.rmdir()
        finally:
            self._unlock()

    def clear(self) -> None:
        """Begin again: remove what was written."""
        for entry in self.path.iterdir():
            if entry.name != MARKER:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def publish(self, *, last: str) -> None:
        """Give everything its name; the entry ``last`` says that all is there."""
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
        """Remove what a killed process left of its work on the same target."""
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
    """Remove an unfinished directory, first the entries that were moved out of it, its marker last."""
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
