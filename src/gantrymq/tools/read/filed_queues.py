"""Finds queue files that lie in the wrong directory, and reads the old queues as if they lay in the right one.

The units of old queues are evidence of which messages existed (:mod:`gantrymq.tools.audit.queue_account`), where a
queue began, and which offsets were given out. If a directory was swapped, renamed or copied, that evidence would be
credited to the wrong queue. Old queues are therefore read through :func:`filed`, which shows such files under their
right name, or hides them. :class:`FiledQueues` finds them.

Thread rule: as the inner file system, after :meth:`FiledQueues.find_misfiled` has returned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Entry, File, FileSystem
from gantrymq.fs.forwarding import ForwardingFileSystem
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.owner import JudgedFile, RecordLocation, Slot, judge_queue_files
from gantrymq.store.queue.queue_listing import QueueName, list_queues
from gantrymq.tools.read.log_extent import LogExtent, LostPlaces
from gantrymq.tools.read.record_lookup import RecordLookup, claims_at
from gantrymq.tools.reports import MisfiledQueue

FiledAs = Mapping[Path, Path | None]
"""The right path of each misfiled file; None: the file is hidden."""


class FiledFileSystem(ForwardingFileSystem):
    """``inner`` with the files of ``filed_as`` under their right names. For reading only.

    It implements FileSystem; all other methods are those of ``inner``.
    """

    def __init__(self, inner: FileSystem, filed_as: FiledAs) -> None:
        super().__init__(inner)
        self._filed_as = dict(filed_as)
        self._sources = {target: source for source, target in filed_as.items() if target is not None}
        # By directory: the names in it that lead to such a file, which are the file itself and the directories above
        # it.
        self._names = defaultdict[Path, set[str]](set)
        for target in self._sources:
            for path in (target, *target.parents[:-1]):
                self._names[path.parent].add(path.name)

    def scan(self, path: Path) -> list[Entry]:
        """List a directory, with moved files under their right names."""
        entries = {entry.name: entry for entry in self._inner.scan(path) if path / entry.name not in self._filed_as}
        for name in self._names.get(path, ()):
            source = self._sources.get(path / name)
            if source is not None:
                size = next(
                    (entry.size_bytes for entry in self._inner.scan(source.parent) if entry.name == source.name), 0
                )
                entries[name] = Entry(name, size, is_directory=False, modified_ms=0)
            else:
                entries.setdefault(name, Entry(name, 0, is_directory=True, modified_ms=0))
        return [entries[name] for name in sorted(entries)]

    def open(self, path: Path, **options: Any) -> File:
        """Open a file by its right name. Raises FileNotFoundError for a hidden one."""
        source = self._sources.get(path)
        if source is None and path in self._filed_as:
            raise FileNotFoundError(path)
        return self._inner.open(source or path, **options)

    def exists(self, path: Path) -> bool:
        """Whether a file or a directory has this name."""
        if path in self._sources or path in self._names:
            return True
        return path not in self._filed_as and self._inner.exists(path)


def filed(fs: FileSystem, filed_as: FiledAs) -> FileSystem:
    """``fs`` with each file under its right name."""
    return FiledFileSystem(fs, filed_as).as_file_system() if filed_as else fs


class FiledQueues:
    """Finds the right place of the queue files of the store at ``paths``, from the records in the log ``files``."""

    def __init__(self, paths: StorePaths, files: Sequence[LogFile]) -> None:
        self._paths = paths
        self._files = files
        self._foreign: list[JudgedFile] = []
        self._judged: list[JudgedFile] = []
        self.filed_as: dict[Path, Path | None] = {}

    def copy(self) -> FiledQueues:
        """The same findings, for a plan that adds its own."""
        copied = FiledQueues(self._paths, self._files)
        copied._judged, copied.filed_as = self._judged, dict(self.filed_as)
        return copied

    def find_misfiled(self, fs: FileSystem) -> None:
        """Find the files that belong to another queue."""
        if not self._files:
            return
        with closing(RecordLookup.of(fs, self._files)) as lookup:

            def slots_at(locations: Sequence[RecordLocation]) -> list[Slot | None]:
                claims = claims_at(lookup, [phy_offset for phy_offset, _ in locations])
                sizes = [(claims.get(phy_offset), size) for phy_offset, size in locations]
                return [claim[:3] if claim is not None and claim.size_bytes == size else None for claim, size in sizes]

            begin, end = self._files[0].base, self._files[-1].end
            queues = ((name, files) for name, _, files in list_queues(fs, self._paths.consume_queue))
            self._judged = list(judge_queue_files(fs, queues, slots_at, begin, end))
        present = {file.file.path for file in self._judged if file.owner is None}
        for judged in self._judged:
            if judged.owner is not None:
                target = self._target(judged)
                self.filed_as[judged.file.path] = None if target in present else target
                present |= {target} if target is not None else set()

    def _target(self, judged: JudgedFile) -> Path | None:
        assert judged.owner is not None
        base = judged.file.offset + judged.owner.distance * UNIT_SIZE
        if base < 0 or base % judged.file.size_bytes:
            return None
        return self._paths.consume_queue / judged.owner.topic / str(judged.owner.queue_id) / offset_name(base)

    def hide_foreign(self, extent: LogExtent) -> None:
        """Hide files of another store: most of their entries point to no record, although ``extent`` lost none there.

        If that is true of half of the files or more, the log is the one that was replaced. Then no file is hidden, and
        all of them count as evidence.
        """
        lost = LostPlaces(extent.lost)
        foreign = [judged for judged in self._judged if judged.owner is None and self._is_foreign(judged, extent, lost)]
        if 2 * len(foreign) < len(self._judged):
            self._foreign = foreign
            self.filed_as |= {judged.file.path: None for judged in foreign}

    @staticmethod
    def _is_foreign(judged: JudgedFile, extent: LogExtent, lost: LostPlaces) -> bool:
        nowhere = sum(phy_offset < extent.end and lost.reason(phy_offset) is None for phy_offset in judged.nowhere)
        return nowhere > 1 and 2 * nowhere > judged.looked_at

    @property
    def misfiled(self) -> list[MisfiledQueue]:
        """What was found, by directory and true queue."""
        counts = Counter[tuple[Path, QueueName | None]]()
        for judged in self._judged:
            if judged.owner is not None:
                counts[judged.file.path.parent, judged.owner[:2]] += 1
        for judged in self._foreign:
            counts[judged.file.path.parent, None] += 1
        ordered = sorted(counts.items(), key=lambda item: (item[0][0], item[0][1] or ("", -1)))
        return [MisfiledQueue(path, owner, count) for (path, owner), count in ordered]

    def without_own_files(self) -> list[Path]:
        """The directories of queues in which no file belongs to that queue."""
        paths = [judged.file.path for judged in self._judged]
        return sorted({path.parent for path in paths} - {path.parent for path in paths if path not in self.filed_as})
