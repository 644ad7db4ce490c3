"""Replaces the queues and the index by new files, in steps that a crash cannot break.

When all new files are on the disk, a mark in ``rebuild.tmp`` (JSON with a CRC) says which file goes where, and what the
checkpoint covers afterwards. A kill after that leaves a swap that the next open, or the next rebuild, finishes.
Dispatching again instead would be less safe: if the log is damaged, recovery would cut it.

The swap goes directory by directory. If the names differ, the old files are removed first, newest first. The new files
are moved in oldest first. Each directory therefore holds an unbroken run of files at any time. A moved file is no
longer at its source, so repeating all moves from the beginning does only what is left.

The mark also says how the log ended. RocketMQ's broker does not know the mark. If it has appended to the log since, the
new files are out of date and nothing is moved. A damaged mark counts as a missing one. Files are moved only from
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
from gantrymq.format.names import is_index_name, parse_offset_name
from gantrymq.format.record import BLANK_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.fs.replaced_file import ReplacedFile
from gantrymq.model.java import LONG_MAX
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.entries import REBUILD_WORK, Use, names_for
from gantrymq.store.paths import StorePaths, offset_files

WORK_DIRECTORY = REBUILD_WORK  # the directory of a store in which a rebuild makes its files
_MARK = "ready.json"
_END_BYTES = 4096


class FileSwap:
    """Collects directories (:meth:`add`), then moves all of their files (:meth:`run`). The new files must be durable.

    ``root`` is the directory of the store. All other directories are below it.
    """

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self.moves: list[tuple[Path, Path, list[str]]] = []
        """The planned moves: (source directory, target directory, file names)."""

    @property
    def count(self) -> int:
        """The number of new files."""
        return sum(len(names) for _, _, names in self.moves)

    def add(self, source: Path, target: Path) -> None:
        """Plan that the files of ``source`` replace all files of ``target``.

        Raises StoreError if they are on different disks.
        """
        require_same_disk(self._fs, source, target)
        self.moves.append((source, target, self._files(source)))

    def add_below(self, source: Path, target: Path) -> None:
        """Plan the same for each TOPIC/QUEUE below ``source``.

        Directories that are only below ``target`` stay as they are.
        """
        for topic in self._fs.scan(source):
            for queue in self._fs.scan(source / topic.name):
                self.add(source / topic.name / queue.name, target / topic.name / queue.name)

    def remove_unless_added(self, source: Path, target: Path) -> None:
        """Plan that ``target`` loses all its files, unless new files are planned for it.

        Then it is removed if it is empty.

        ``source`` is a directory that does not exist.
        """
        if target not in [added for _, added, _ in self.moves]:
            self.add(source, target)

    def run(self) -> int:
        """Move the files. Returns how many old files were removed without a new file of the same name."""
        removed_count = sum(self._move(source, target, names) for source, target, names in self.moves)
        # All at once, because a rebuild has thousands. The parents are synced too: a killed store may not have synced
        # the name of an existing directory, and a power cut would take the moved files with it.
        self._fs.sync_directory(
            *dict.fromkeys(directory for _, target, _ in self.moves for directory in self._down_to(target))
        )
        return removed_count

    def _down_to(self, target: Path) -> Iterator[Path]:
        """Yield the directories from the store's down to ``target``."""
        below = target.relative_to(self._root)
        yield from (self._root / above for above in (*reversed(below.parents), below))

    def _move(self, source: Path, target: Path, names: list[str]) -> int:
        # The obvious way: rename the old directory away, rename the new one to its place, remove the old one. It fails
        # three times. A queue's directory can be a mount or a link, which cannot be renamed; foreign files in it would
        # go with it; and between the two renames the queue has no files at all, which RocketMQ takes for a queue
        # without messages: it makes new files at 0 and serves them. The second obvious way, to rename file over file,
        # leaves a mixture after a kill: units of the old numbering in one file, of the new one in the next.
        #
        # The mark is durable before the first file moves, so a swap that began is always finished: by the next open,
        # the next rebuild, or by this process. Only the order within a directory is left to choose. At each moment a
        # reader must find an unbroken run of files, because a gap ends a queue:
        #
        #   names of the old and the new files    what is done
        #   the same                              each rename replaces one file; the run is unbroken at each step
        #   old ones begin earlier or end later   old ones are removed first, newest first; then new ones come, oldest
        #                                         first
        #   there are no old ones                 new ones come, oldest first
        #   there are no new ones                 old ones are removed, newest first, and the directory with them
        #
        # Finished twice is finished once. A file that moved is no longer at its source (``left``), so it counts as one
        # of the new files of the target (``moved``) and is not removed as an old one:
        #
        #   killed                                what a second run finds
        #   before the first removal              everything as planned
        #   between two removals                  fewer old files; the newest of them are removed next
        #   between removals and moves            no old file; the sync of the directory keeps it so after a power cut
        #   between two moves                     some names only at the target; the others are moved
        #   behind the last move                  nothing to do; then the mark is removed
        #
        # What makes the mark itself safe: its CRC (a torn mark counts as none, and nothing had moved yet), the end of
        # the log with a checksum (RocketMQ does not know the mark; if it appended meanwhile, the new files are out of
        # date), and that a source below rebuild.tmp and a target of a queue or the index are the only paths that are
        # accepted.
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
        """Return the names of the store's files. Other names are ignored."""
        files = [entry.name for entry in self._fs.scan(directory) if not (entry.is_directory or entry.is_special)]
        return [name for name in files if parse_offset_name(name) is not None or is_index_name(name)]


def require_same_disk(fs: FileSystem, source: Path, target: Path) -> None:
    """Raise StoreError if files cannot be renamed from ``source`` to ``target``. Either may be missing."""
    if not fs.can_rename(source, target):
        raise StoreError(target, f"lies on another disk or mount than {source}, so that no file can be moved there")


def clear_directory(fs: FileSystem, directory: Path) -> None:
    """Remove a directory and its content; links are removed, not followed. A missing directory is fine."""
    for entry in fs.scan(directory):
        if entry.is_directory and not entry.is_link:
            clear_directory(fs, directory / entry.name)
        else:
            fs.remove(directory / entry.name)
    fs.remove_directory(directory)


@dataclass(slots=True)
class SwapMark:
    """The content of a mark. ``checkpoint`` has the numbers of the checkpoint after the swap.

    ``log_end`` is the end of the log and the checksum of the bytes around it. ``moves`` are those of a FileSwap, as
    paths below the store.
    """

    checkpoint: tuple[int, int, int, int, int, int]
    log_end: tuple[int, int]
    moves: list[tuple[str, str, list[str]]]

    def encode(self) -> bytes:
        """Return the mark as the bytes of its file."""
        return json.dumps({"crc": self._crc(), "mark": asdict(self)}).encode("ascii")

    @classmethod
    def parse(cls, raw: bytes) -> SwapMark:
        """Parse a mark. Raises ValueError if these bytes are not a valid mark."""
        # Imported here, because few stores have a mark and the import takes milliseconds.
        import msgspec

        try:
            value = json.loads(raw)
            mark = msgspec.convert(value["mark"], cls)
        except (msgspec.ValidationError, RecursionError, LookupError, TypeError) as error:
            raise ValueError(f"it is no mark: {error}") from error
        if value.get("crc") != mark._crc():
            raise ValueError("its CRC is wrong")
        if not all(-LONG_MAX - 1 <= number <= LONG_MAX for number in mark.checkpoint):
            raise ValueError("its checkpoint has an invalid number")
        for source, target, _ in mark.moves:
            if not (_is_in(source, WORK_DIRECTORY) and _is_in(target, *names_for(Use.REBUILT))):
                raise ValueError(f"it moves nothing from {source!r} to {target!r}")
        return mark

    def _crc(self) -> int:
        return crc32(json.dumps([self.checkpoint, self.log_end, self.moves]).encode("ascii"))


def _is_in(path: str, *directories: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[:1] in [(directory,) for directory in directories] and ".." not in parts


class ReadySwap:
    """The mark of the store at ``paths``."""

    def __init__(self, fs: FileSystem, paths: StorePaths) -> None:
        self._fs = fs
        self._paths = paths
        self._work = paths.root / WORK_DIRECTORY
        self._mark = self._work / _MARK

    @property
    def is_set(self) -> bool:
        """Whether there is a mark: a rebuild is moving its files, or was interrupted while it did."""
        return self._fs.exists(self._mark)

    def set(self, swap: FileSwap, page: Checkpoint, log_end: int) -> None:
        """Write the mark. All files that ``swap`` moves are on the disk, made from the log up to ``log_end``.

        ``page`` is the checkpoint after the swap.
        """
        moves = [(self._below(source), self._below(target), names) for source, target, names in swap.moves]
        crc, error = self._log_end_crc(log_end)
        # a transient read error must not put a checksum into the mark that the next check rejects
        if error is not None:
            crc, _ = self._log_end_crc(log_end)
        mark = SwapMark(astuple(page), (log_end, crc), moves)
        ReplacedFile(self._fs, self._mark).replace(mark.encode())

    def give_up(self) -> None:
        """Remove the new files after a failed rebuild.

        Keep them if the mark is set, because the swap can still be finished.
        """
        # the caller raises an error already, and the next open clears the directory too
        with suppress(StoreError, OSError):
            if not self.is_set:
                clear_directory(self._fs, self._work)

    def clear(self) -> None:
        """Remove the mark, then the rest of the work directory, after the swap or to abandon it.

        Raises StoreError if something else has the name of the directory.
        """
        if self._fs.exists(self._work) and not self._is_ours():
            raise StoreError(self._work, "is no directory of this store, and a rebuild makes its files in one")
        if self.is_set:
            self._fs.remove(self._mark)
            self._fs.sync_directory(self._work)
        clear_directory(self._fs, self._work)

    def finish(self) -> None:
        """Finish an interrupted swap, if there is one, and remove the work directory of an interrupted rebuild.

        Raises DiskFullError, DiskError. Raises StoreError before anything is moved if a directory is now on another
        disk or mount: the new files may be of a damaged log and are then only right together, so a part of them must
        not be moved. Also raises if the end of the log cannot be read and could be when the mark was set.
        """
        if not self._fs.exists(self._work) or not self._is_ours():
            return
        mark = self._read()
        if mark is None or not self._is_of_this_log(mark):
            with suppress(StorePermissionError):  # the leftover does no harm
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
        """Whether the work directory is a real directory. A link may point to a directory that must not be cleared."""
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
        """Whether the log has not been continued since the mark was set. Raises the error if the disk cannot tell."""
        end, expected = mark.log_end
        crc, error = self._log_end_crc(end)
        if crc != expected and error is not None:
            raise error
        return crc == expected

    def _log_end_crc(self, end: int) -> tuple[int, Exception | None]:
        """Return a checksum that changes if the log is continued, or cut and then continued.

        Unreadable parts do not count. The last read error is returned with the checksum.
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
        """Return the bytes of a file before ``end``, and those that would be the head of a record at ``end``."""
        file = self._fs.open(path)
        try:
            begin = max(end - base - _END_BYTES, 0)
            # Trailing zeros do not count, nor does a file that holds nothing else: they are not guaranteed to last.
            return file.read_at(begin, max(end - base, 0) - begin + BLANK_SIZE).rstrip(b"\0")
        finally:
            file.close()
