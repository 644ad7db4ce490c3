"""Replacing the queues and the index by new files, in steps that a crash cannot break.

When all new files are on the disk, a mark in ``rebuild.tmp`` (JSON with a CRC) says which file goes where, and what the
checkpoint covers afterwards. A kill after that leaves a swap that the next open, or the next rebuild, finishes. To
dispatch again instead would be less safe: where the log is damaged a recovery would cut it.

Directory by directory, the old files go first where the names differ, newest first; the new files come oldest first.
Each directory therefore holds an unbroken run of files at any time. A file that was moved is no longer at its source,
so the same moves, repeated from the beginning, do only what is left.

The mark also says how the log ended. RocketMQ's broker does not know the mark. If one has appended to the log since,
the new files are out of date and nothing is moved. A damaged mark counts as none. Files are moved only from
``rebuild.tmp`` to the directories of queues and index; everything else there is removed.

Thread rule: one thread, under the lock of the store or over a view of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path, PurePosixPath
from zlib import crc32

from gantrymq.errors import StoreError, StorePermissionError, UnusableFileError
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.names import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, is_index_name, parse_offset_name
from gantrymq.format.record import BLANK_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.model.java import LONG_MAX
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.paths import StorePaths, offset_files

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


@dataclass(slots=True)
class SwapMark:
    """``checkpoint`` are the numbers of the checkpoint when all is moved.

    ``log_end`` is where the log ended, and the number of what stands there; ``moves`` are those of a FileSwap, below
    the store.
    """

    checkpoint: tuple[int, int, int, int, int, int]
    log_end: tuple[int, int]
    moves: list[tuple[str, str, list[str]]]

    def encode(self) -> bytes:
        """The mark as it stands in its file."""
        return json.dumps({"crc": self._crc(), "mark": asdict(self)}).encode("ascii")

    @classmethod
    def parse(cls, raw: bytes) -> SwapMark:
        """A mark that somebody has set; raises ValueError where these bytes are none."""
        # Here, for nearly every store is opened without a mark, and this takes milliseconds to import.
        import msgspec

        try:
            value = json.loads(raw)
            mark = msgspec.convert(value["mark"], cls)
        except (msgspec.ValidationError, RecursionError, LookupError, TypeError) as error:
            raise ValueError(f"it is no mark: {error}") from error
        if value.get("crc") != mark._crc():
            raise ValueError("its CRC is wrong")
        if not all(-LONG_MAX - 1 <= number <= LONG_MAX for number in mark.checkpoint):
            raise ValueError("a number of its checkpoint is none")
        for source, target, _ in mark.moves:
            if not (_is_in(source, WORK_DIRECTORY) and _is_in(target, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)):
                raise ValueError(f"nothing is to be moved from {source!r} to {target!r}")
        return mark

    def _crc(self) -> int:
        return crc32(json.dumps([self.checkpoint, self.log_end, self.moves]).encode("ascii"))


def _is_in(path: str, *directories: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[:1] in [(one,) for one in directories] and ".." not in parts


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
