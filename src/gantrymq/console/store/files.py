"""The files of a store and the state of each: what the store map draws.

=========  ===========================================================================================================
state      of a file
=========  ===========================================================================================================
damaged    it is missing, has a wrong length, cannot be read, or the last verify found damage in it
live       the end of what is written is in it: the next write goes here
unflushed  it is full, and the checkpoint does not cover all of it: a power cut may cost its end
expiring   it is older than fileReservedTime, or points only to such files; retention deletes it in the hour deleteWhen
flushed    all of it is durable
reserved   nothing is written to it yet: it was created ahead
present    it is there; its state is not examined
foreign    it is not part of a store
=========  ===========================================================================================================

A state comes from names, sizes, times of change, the checkpoint, and a few bytes of each file. No record is read,
except the first ones of some log files. Damage inside of a file is known after a verify.

Thread rule: plain functions.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from gantrymq.console.store.opened import OpenStore, Snapshot
from gantrymq.errors import GantrymqError, StoreError
from gantrymq.format.index import HEADER_SIZE, IndexHeader, decode_header
from gantrymq.format.names import is_index_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Entry, FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.texts import count_text
from gantrymq.store.entries import group_of
from gantrymq.store.geometry import find_index_geometry
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.queue.consume_queue import ConsumeQueue
from gantrymq.store.queue.queue_listing import queue_directories
from gantrymq.store.timer.timer_files import TimerCheckpointFile
from gantrymq.tools.check.small_files_check import check_names

_HOUR_MS = 3_600_000
MAX_CELLS = 480
_MAX_EXAMINED = 5_000  # files of queues whose last unit is read to find those that expire
_FOREIGN = "its name is not that of a file here; it is ignored"


class Part(StrEnum):
    """The parts of a store, in the order of the map."""

    LOG = "commit log"
    QUEUES = "consume queues"
    EXT = "extended queues"
    INDEX = "index"
    TIMERS = "timer log"
    OTHERS = "other files"


class FileState(StrEnum):
    """The states, the most urgent first."""

    DAMAGED = "damaged"
    LIVE = "live"
    UNFLUSHED = "not flushed"
    EXPIRING = "expiring"
    FLUSHED = "flushed"
    RESERVED = "reserved"
    PRESENT = "present"
    FOREIGN = "foreign"


_Listed = tuple[int, Path, Entry]
_RANK = {state: rank for rank, state in enumerate(FileState)}


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file. ``name`` is relative to the store. ``begin`` is the offset in its name, None for another name.

    ``used_bytes`` are written, None if that is not known. ``text`` says more about the state.
    """

    part: Part
    name: Path
    size_bytes: int
    modified_ms: int
    state: FileState
    begin: int | None = None
    used_bytes: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the map: ``count`` neighbouring files from number ``first`` on, with the most urgent of their states.

    ``file`` is the first file in that state. ``tenths`` are how much of the files is written.
    """

    first: int
    count: int
    file: StoreFile
    tenths: int


@dataclass(frozen=True, slots=True)
class Strip:
    """The cells of one part, and how many of its files have each state, the most urgent first."""

    part: Part
    cells: list[Cell]
    counts: dict[FileState, int]
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The files by part, sorted. ``notes`` name what could not be listed or examined. Make one with :meth:`of`."""

    taken_ms: int
    parts: Mapping[Part, Sequence[StoreFile]]
    notes: Sequence[str]
    strips: Sequence[Strip]
    by_name: Mapping[str, StoreFile]

    @classmethod
    def of(cls, taken_ms: int, parts: Mapping[Part, Sequence[StoreFile]], notes: Sequence[str]) -> StoreFiles:
        """Draw the strips of the parts."""
        strips = [_strip(part, files) for part, files in parts.items() if files]
        return cls(taken_ms, parts, notes, strips, {str(file.name): file for some in parts.values() for file in some})


def _strip(part: Part, files: Sequence[StoreFile]) -> Strip:
    counts: dict[FileState, int] = {}
    for file in files:
        counts[file.state] = counts.get(file.state, 0) + 1
    ordered = dict(sorted(counts.items(), key=lambda item: _RANK[item[0]]))
    return Strip(part, cells_of(files, MAX_CELLS), ordered, len(files), sum(file.size_bytes for file in files))


def cells_of(files: Sequence[StoreFile], max_cells: int) -> list[Cell]:
    """At most ``max_cells`` cells for the files."""
    width = max(-(-len(files) // max_cells), 1)
    cells = []
    for first in range(0, len(files), width):
        some = files[first : first + width]
        worst = min(some, key=lambda file: _RANK[file.state])
        size = sum(file.size_bytes for file in some)
        used = sum(file.size_bytes if file.used_bytes is None else file.used_bytes for file in some)
        cells.append(Cell(first, len(some), worst, min(-(-10 * used // size), 10) if size else 10))
    return cells


def with_damage(files: StoreFiles, damage: Mapping[str, str]) -> StoreFiles:
    """The files with the damage that a verify has found: by name, one text for each. Missing files are added."""
    if not damage:
        return files
    parts = {part: [_damaged(file, damage) for file in some] for part, some in files.parts.items()}
    known = {str(file.name) for some in parts.values() for file in some}
    for name in sorted(damage.keys() - known):
        path = Path(name)
        lost = StoreFile(_part_of(path), path, 0, 0, FileState.DAMAGED, text=damage[name])
        parts[lost.part] = sorted([*parts.get(lost.part, []), lost], key=lambda file: file.name)
    return StoreFiles.of(files.taken_ms, parts, files.notes)


def _damaged(file: StoreFile, damage: Mapping[str, str]) -> StoreFile:
    text = damage.get(str(file.name))
    return file if text is None else replace(file, state=FileState.DAMAGED, text=text)


def _part_of(name: Path) -> Part:
    first = name.parts[0] if name.parts else ""
    return Part(group_of(first).value)


def list_files(store: OpenStore, snapshot: Snapshot | None, now_ms: int) -> StoreFiles:
    """List the files of a store. Without ``snapshot`` the states are only those that names and sizes show.

    Costs O(files): not for a page view.
    """
    lister = _Lister(store, snapshot, now_ms)
    parts: dict[Part, list[StoreFile]] = {}
    for part, listed in (
        (Part.LOG, lister.log),
        (Part.QUEUES, lister.queues),
        (Part.EXT, lister.ext),
        (Part.INDEX, lister.index),
        (Part.TIMERS, lister.timers),
        (Part.OTHERS, lister.others),
    ):
        parts[part] = []
        try:
            parts[part] += listed()
        except (StoreError, OSError) as error:
            lister.notes.append(str(error))
    for name, text in lister.unlisted_problems(parts):
        lost = StoreFile(_part_of(name), name, 0, 0, FileState.DAMAGED, text=text)
        parts[lost.part] = sorted([*parts[lost.part], lost], key=lambda file: file.name)
    return StoreFiles.of(now_ms, parts, lister.notes)


class _Lister:
    """Lists the parts of one store. The log comes first: what expires with it is known then."""

    def __init__(self, store: OpenStore, snapshot: Snapshot | None, now_ms: int) -> None:
        self._fs: FileSystem = RealFileSystem()
        self._paths: StorePaths = store.paths
        self._config = snapshot.reader.config if snapshot is not None else store.reading.config
        self._given = store.reading.given
        self._snapshot, self._now_ms = snapshot, now_ms
        self._is_closed = snapshot is not None and snapshot.reader.last_exit_ok
        problems = (*snapshot.summary.problems, *snapshot.summary.notes) if snapshot is not None else ()
        self._problems = {self._paths.name_of(path): text for path, text in problems}
        self._kept_from = 0  # the physical offset at which the files begin that do not expire
        self._examined = 0
        self.notes: list[str] = []

    def unlisted_problems(self, parts: Mapping[Part, Sequence[StoreFile]]) -> Iterator[tuple[Path, str]]:
        """Yield the problems about paths that no file of the map has."""
        known = {file.name for files in parts.values() for file in files}
        yield from ((name, text) for name, text in self._problems.items() if name not in known and name != Path())

    def _file(self, part: Part, path: Path, entry: Entry, state: FileState, **more: object) -> StoreFile:
        name = self._paths.name_of(path)
        if name in self._problems:
            state, more["text"] = FileState.DAMAGED, self._problems[name]
        return StoreFile(part, name, entry.size_bytes, entry.modified_ms, state, **more)  # type: ignore[arg-type]

    # The log

    def log(self) -> list[StoreFile]:
        """The files of the log."""
        listed, odd = self._scan(self._paths.commit_logs)
        end = self._snapshot.reader.max_phy_offset if self._snapshot is not None else None
        size = self._snapshot.reader.log.file_size if self._snapshot is not None else None
        durable = self._durable_log_end([offset for offset, _, _ in listed])
        expires_before_ms = self._now_ms - self._config.file_reserved_time_hours * _HOUR_MS
        files, is_expiring = [], True
        for number, (offset, path, entry) in enumerate(listed):
            state, used = _of_offsets(offset, entry.size_bytes, end, durable)
            # Retention deletes from the front: a young file keeps all files after it. The last one stays.
            is_expiring = is_expiring and number < len(listed) - 1 and entry.modified_ms <= expires_before_ms
            text = ""
            if is_expiring and state is FileState.FLUSHED:
                state, self._kept_from = FileState.EXPIRING, offset + entry.size_bytes
                text = f"changed more than {count_text(self._config.file_reserved_time_hours, 'hour')} ago"
            if size is not None and entry.size_bytes != size:
                state, text = FileState.DAMAGED, f"is {entry.size_bytes} bytes long, the others {size}"
            files.append(self._file(Part.LOG, path, entry, state, begin=offset, used_bytes=used, text=text))
        return files + [self._file(Part.LOG, path, entry, FileState.FOREIGN, text=_FOREIGN) for path, entry in odd]

    def _durable_log_end(self, offsets: Sequence[int]) -> int:
        """The offset before which all files of the log are durable: where the first file begins that may not be."""
        if self._snapshot is None or self._is_closed or not offsets:
            return 1 << 63
        return self._durable_before(self._snapshot.reader.checkpoint.physic_msg_timestamp_ms, offsets)

    def _durable_before(self, checkpoint_ms: int, offsets: Sequence[int]) -> int:
        snapshot = self._snapshot
        assert snapshot is not None

        def stored_ms(offset: int) -> int:
            message = snapshot.reader.message_at(offset)
            return message.store_timestamp_ms if message is not None else 1 << 62

        at = bisect.bisect_right(_Lazy(offsets, stored_ms), checkpoint_ms)
        return offsets[at - 1] if at else 0

    # The queues

    def queues(self) -> Iterator[StoreFile]:
        """The files of all consume queues."""
        durable = 1 << 63
        if self._snapshot is not None and not self._is_closed:
            page = self._snapshot.reader.checkpoint
            offsets = [file.file_from_offset for file in self._snapshot.reader.log.queue.files]
            durable = page.logics_physical_offset or self._durable_before(page.logics_msg_timestamp_ms, offsets)
        for topic, queue_id in queue_directories(self._fs, self._paths.consume_queue):
            directory = self._paths.consume_queue / topic / str(queue_id)
            try:
                listed, odd = self._scan([directory])
            except (StoreError, OSError) as error:
                self.notes.append(str(error))
                continue
            queue = self._snapshot.reader.consume_queues.get(topic, queue_id) if self._snapshot is not None else None
            yield from self._queue_files(queue, listed, durable)
            yield from (self._file(Part.QUEUES, path, entry, FileState.FOREIGN, text=_FOREIGN) for path, entry in odd)

    def _queue_files(self, queue: ConsumeQueue | None, listed: Sequence[_Listed], durable: int) -> list[StoreFile]:
        """The files of one queue. From the last to the first one, a unit is read until one is durable."""
        files, is_durable, expires = [], self._is_closed, False
        for offset, path, entry in reversed(listed):
            end = queue.files.max_offset if queue is not None else None
            state, used = _of_offsets(offset, entry.size_bytes, end, 1 << 63)
            if queue is not None and state is FileState.FLUSHED:
                last = queue.entry((offset + entry.size_bytes) // UNIT_SIZE - 1) if not is_durable else None
                is_durable = is_durable or (last is not None and last.phy_offset < durable)
                expires = expires or self._points_to_expiring(queue, offset + entry.size_bytes)
                state = FileState.EXPIRING if expires else state if is_durable else FileState.UNFLUSHED
            files.append(self._file(Part.QUEUES, path, entry, state, begin=offset, used_bytes=used))
        return files[::-1]

    def _points_to_expiring(self, queue: ConsumeQueue, end: int) -> bool:
        """Whether all units before ``end`` (bytes) point to files of the log that expire."""
        if not self._kept_from:
            return False
        self._examined += 1
        if self._examined > _MAX_EXAMINED:
            if self._examined == _MAX_EXAMINED + 1:
                self.notes.append(f"of the consume queues, only {_MAX_EXAMINED:,} files were examined for retention")
            return False
        unit = queue.entry(end // UNIT_SIZE - 1)
        return unit is not None and unit.phy_offset < self._kept_from

    def ext(self) -> Iterator[StoreFile]:
        """The files of extended units. No table says how far they are written, so their state is not examined."""
        for topic, queue_id in queue_directories(self._fs, self._paths.consume_queue_ext):
            listed, _ = self._scan([self._paths.consume_queue_ext / topic / str(queue_id)])
            for offset, path, entry in listed:
                yield self._file(Part.EXT, path, entry, FileState.PRESENT, begin=offset)

    # Index and timers

    def index(self) -> Iterator[StoreFile]:
        """The files of the index."""
        entries = [entry for entry in self._fs.scan(self._paths.index) if not entry.is_directory]
        named = [entry.name for entry in entries if is_index_name(entry.name)]
        flushed_ms = self._snapshot.reader.checkpoint.index_msg_timestamp_ms if self._snapshot is not None else 0
        most_entries = self._entries_an_index_file() if named else 0
        for entry in entries:
            path = self._paths.index / entry.name
            if entry.name not in named:
                yield self._file(Part.INDEX, path, entry, FileState.FOREIGN, text=_FOREIGN)
                continue
            try:
                header = decode_header(read_part(self._fs, path, 0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
            except (StoreError, OSError) as error:
                yield self._file(Part.INDEX, path, entry, FileState.DAMAGED, text=f"cannot be read: {error}")
                continue
            state = self._index_state(header, flushed_ms, is_last=entry.name == named[-1])
            share = min(header.index_count / most_entries, 1.0) if most_entries else None
            used, text = share and int(share * entry.size_bytes), count_text(header.index_count - 1, "entry")
            yield self._file(Part.INDEX, path, entry, state, used_bytes=used, text=text)

    def _entries_an_index_file(self) -> int:
        """The number of entries of a full index file; 0 if the files do not tell."""
        try:
            return find_index_geometry(self._fs, self._paths, self._config, self._given).max_index_num
        except (GantrymqError, OSError):
            return 0  # verify reports it

    def _index_state(self, header: IndexHeader, flushed_ms: int, *, is_last: bool) -> FileState:
        if self._snapshot is None:
            return FileState.PRESENT
        if is_last:
            return FileState.LIVE
        if not self._is_closed and header.end_timestamp_ms > flushed_ms:
            return FileState.UNFLUSHED
        return FileState.EXPIRING if header.end_phy_offset < self._kept_from else FileState.FLUSHED

    def timers(self) -> Iterator[StoreFile]:
        """The files of the timer log."""
        listed, odd = self._scan([self._paths.timer_log])
        checkpoint = TimerCheckpointFile(self._fs, self._paths.timer_checkpoint)
        checkpoint.load()
        flushed = checkpoint.page.timer_log_flush_pos
        for number, (offset, path, entry) in enumerate(listed):
            is_last, end = number == len(listed) - 1, offset + entry.size_bytes
            if end <= flushed:
                state = FileState.FLUSHED
            else:
                state = FileState.LIVE if is_last or offset <= flushed else FileState.UNFLUSHED
            used = min(max(flushed - offset, 0), entry.size_bytes)
            text = "" if state is FileState.FLUSHED else f"durable up to position {flushed}"
            yield self._file(Part.TIMERS, path, entry, state, begin=offset, used_bytes=used, text=text)
        yield from (self._file(Part.TIMERS, path, entry, FileState.FOREIGN, text=_FOREIGN) for path, entry in odd)

    # The rest

    def others(self) -> Iterator[StoreFile]:
        """The files of the root and of config/."""
        foreign = {finding.path: finding for finding in check_names(self._fs, self._paths)}
        for directory in (self._paths.root, self._paths.config):
            for entry in self._fs.scan(directory):
                name = self._paths.name_of(directory / entry.name)
                finding = foreign.get(name)
                if entry.is_directory and finding is None:
                    continue
                state = FileState.PRESENT if finding is None else FileState.FOREIGN
                text = finding.text if finding is not None else ""
                yield self._file(Part.OTHERS, directory / entry.name, entry, state, text=text)

    def _scan(self, directories: Iterable[Path]) -> tuple[list[_Listed], list[tuple[Path, Entry]]]:
        """(offset, path, entry) of the files that are named by an offset, sorted; and the other files."""
        named, odd = [], []
        for directory in directories:
            offsets = {file.path.name: file.offset for file in offset_files(self._fs, [directory])}
            for entry in self._fs.scan(directory):
                path = directory / entry.name
                if entry.name in offsets:
                    named.append((offsets[entry.name], path, entry))
                else:
                    odd.append((path, entry))
        return sorted(named, key=lambda item: (item[0], str(item[1]))), odd


def _of_offsets(begin: int, size: int, end: int | None, durable: int) -> tuple[FileState, int | None]:
    """The state of a file [begin, begin + size) of an address space that ends at ``end``, and its used bytes."""
    if end is None:
        return FileState.PRESENT, None
    if begin > end:
        return FileState.RESERVED, 0
    if begin + size > end:
        return FileState.LIVE, end - begin
    return (FileState.FLUSHED if begin + size <= durable else FileState.UNFLUSHED), size


class _Lazy(Sequence[int]):
    """A sequence whose numbers are computed when a binary search asks for them."""

    def __init__(self, items: Collection[int], value: Callable[[int], int]) -> None:
        self._items, self._value = list(items), value

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __getitem__(self, at: int) -> int:  # type: ignore[override]
        """Return the value of an item."""
        return self._value(self._items[at])
