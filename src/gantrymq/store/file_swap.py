"""Letting new files take the places of old ones, directory by directory.

A crash on the way leaves directories that can be loaded: in each one what is old goes first where the names differ,
newest first, and what is new comes oldest first, so that there is an unbroken run of files at any time. What was moved
is no longer at its source, so the same moves made once more, from the begin, only make what was left.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.format.names import is_index_name, parse_offset_name
from gantrymq.fs.api import FileSystem

WORK_DIRECTORY = "rebuild.tmp"  # of a store, where new files are made


class FileSwap:
    """Collects directories (:meth:`add`), then moves all of their files (:meth:`run`). The new files are durable.

    ``root`` is the directory of the store, which all the others lie in.
    """

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self.moves: list[tuple[Path, Path, list[str]]] = []
        """From where, to where, and the names of the files."""

    @property
    def count(self) -> int:
        """How many new files there are."""
        return sum(len(names) for _, _, names in self.moves)

    def add(self, source: Path, target: Path) -> None:
        """The files of ``target`` are to be those of ``source``, and no others. Raises StoreError: on another disk."""
        require_same_disk(self._fs, source, target)
        self.moves.append((source, target, self._files(source)))

    def add_below(self, source: Path, target: Path) -> None:
        """The same for TOPIC/QUEUE below both; directories that are only below ``target`` stay as they are."""
        for topic in self._fs.scan(source):
            for queue in self._fs.scan(source / topic.name):
                self.add(source / topic.name / queue.name, target / topic.name / queue.name)

    def remove_unless_added(self, source: Path, target: Path) -> None:
        """No file of ``target`` is to stay, and where nothing else is in it the directory is not, either.

        ``source`` is a name that nothing has. Where new files are to come into ``target`` nothing is to be done.
        """
        if target not in [added for _, added, _ in self.moves]:
            self.add(source, target)

    def run(self) -> int:
        """Move; returns how many old files are gone whose names are not taken again."""
        gone = sum(self._move(source, target, names) for source, target, names in self.moves)
        # All at once, for a rebuild has thousands of them; and those above, as a directory that was there may have a
        # name that a killed store had not synced: a power cut would take the moved files with it.
        self._fs.sync_directory(*dict.fromkeys(one for _, target, _ in self.moves for one in self._down_to(target)))
        return gone

    def _down_to(self, target: Path) -> Iterator[Path]:
        """The directories from the store's down to ``target``."""
        below = target.relative_to(self._root)
        yield from (self._root / above for above in (*reversed(below.parents), below))

    def _move(self, source: Path, target: Path, names: list[str]) -> int:
        left = self._files(source)
        moved = set(names) - set(left)
        old = [name for name in self._files(target) if name not in moved]
        self._fs.make_directory(target)
        if old and set(old) != set(left):
            for name in reversed(old):
                self._fs.remove(target / name)
            self._fs.sync_directory(target)
        for name in left:
            self._fs.rename(source / name, target / name)
        if not names:
            self._fs.remove_directory(target)
            self._fs.remove_directory(target.parent)
        return len(set(old) - set(names))

    def _files(self, directory: Path) -> list[str]:
        """The files of a store: what has another name belongs to somebody else."""
        files = [entry.name for entry in self._fs.scan(directory) if not (entry.is_directory or entry.is_special)]
        return [name for name in files if parse_offset_name(name) is not None or is_index_name(name)]


def require_same_disk(fs: FileSystem, source: Path, target: Path) -> None:
    """Raise StoreError where no file of ``source`` could be renamed to one of ``target``; either may be missing."""
    if not fs.can_rename(source, target):
        raise StoreError(target, f"lies on another disk or mount than {source}, so that no file can be moved there")


def clear_directory(fs: FileSystem, directory: Path) -> None:
    """Remove a directory and all that is in it, of links only themselves; fine where it is missing."""
    for entry in fs.scan(directory):
        if entry.is_directory and not entry.is_link:
            clear_directory(fs, directory / entry.name)
        else:
            fs.remove(directory / entry.name)
    fs.remove_directory(directory)
