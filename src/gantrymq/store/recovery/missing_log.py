"""Checks whether files of the commit log are missing that the rest of the store refers to.

A store whose log is on a disk that is not mounted, or at another path than the settings say, looks like a store with an
empty log, and a recovery would drop its queues and its index. A file that is missing in the middle is the same on a
small scale. Such a store opens for writing only with acceptMissingCommitLog=true. A file that is missing in the middle
then becomes one blank, which RocketMQ and this store both skip. RocketMQ 5.5.0 opens such a store without a warning.

The oldest files need care. Retention removes them and leaves queue units that point to them. A log directory that is
not mounted looks the same, except for the time: retention removes what is older than fileReservedTime, and the records
before the log's first record were stored shortly before it. A full disk makes retention remove younger files, so the
time alone does not prove damage. A directory that the settings name and that holds no file does.

A reader makes the same checks in its private view, where a file that is too short is also filled up.

Thread rule: plain functions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import (
    DiskError,
    DuplicateFileError,
    MissingFileError,
    MissingLogBeginError,
    MissingLogEndError,
    MissingLogError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.format.index import HEADER_SIZE, decode_header
from gantrymq.format.names import is_index_name, offset_name
from gantrymq.format.queue_entry import UNIT_SIZE, decode_entry
from gantrymq.format.record import BLANK_SIZE, MAGIC_V1, MAGIC_V2, PHY_OFFSET_AT, Layout, encode_blank, read_layout
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.mapped_file_queue import ACCEPT, SALVAGE
from gantrymq.store.paths import OffsetFile, StorePaths, offset_files
from gantrymq.store.queue.queue_listing import ListedQueue, QueueListing
from gantrymq.store.recovery.missing_end import missing_end, read_checkpoint

_HOUR_MS = 3_600_000
_HEAD = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MAX_MISSING_FILES = 4096
_HEAD_SIZE = PHY_OFFSET_AT + 8
_BACK = "mount or copy it back, or give all directories of the log (storePathCommitLog, -c)"


class MissingBegin(NamedTuple):
    """The evidence that the log's first files are missing.

    ``directory`` is a log directory of the settings that holds no file, or None if each holds one.
    """

    path: Path
    begin: int
    queue: Path
    hours: int
    directory: Path | None

    def problem(self, *, exists: bool) -> MissingLogBeginError:
        """Return the error that refuses the store for writing.

        ``directory`` must be set; ``exists`` is whether it exists.
        """
        assert self.directory is not None, "else there is a note"
        state = "holds no file of the log" if exists else "does not exist"
        advice = f"is its disk mounted? {ACCEPT} opens the store without it, as with a new directory"
        return MissingLogBeginError(self.directory, f"{state}, and the log lacks its first files: {self._seen}", advice)

    def note(self) -> StoreError:
        """Return the finding to report when the store is opened."""
        reason = f"is not there: {self._seen}; the files were removed by hand or for a full disk, "
        return StoreError(self.path, f"{reason}or not all directories of the log are given (storePathCommitLog, -c)")

    @property
    def _seen(self) -> str:
        queue = f"{self.queue.parent.name}/{self.queue.name}"
        young = f"its first record is younger than fileReservedTime ({self.hours} hours)"
        return f"the log begins at {self.begin}, consume queue {queue} has entries before that, and {young}"


def missing_begin(
    fs: FileSystem,
    paths: StorePaths,
    files: Sequence[OffsetFile],
    queues: Iterable[ListedQueue],
    config: MessageStoreConfig,
    now_ms: int,
) -> MissingBegin | None:
    """Return the evidence that the log recently began before the first of ``files``, or None if there is none."""
    first = files[0] if files else None
    if first is None or not first.offset:
        return None
    stored_ms = _first_stored_ms(fs, first.path)
    hours = config.file_reserved_time_hours
    if stored_ms is None or now_ms - stored_ms >= hours * _HOUR_MS:
        return None
    queue = _queue_in_front(fs, queues, first.offset)
    if queue is None:
        return None
    number = first.offset // config.mapped_file_size_commit_log - 1
    path = paths.directory_for(max(number, 0)) / f"{max(first.offset - config.mapped_file_size_commit_log, 0):020d}"
    empty = (directory for directory in paths.commit_logs if not offset_files(fs, [directory]))
    return MissingBegin(path, first.offset, queue, hours, next(empty, None))


def _first_stored_ms(fs: FileSystem, path: Path) -> int | None:
    """Return the store time (ms) of a file's first record, or None if there is none or it cannot be read."""
    try:
        file = fs.open(path)
    except (DiskError, FileNotFoundError):
        return None
    try:
        size = _HEAD.unpack(file.read_at(0, _HEAD.size).ljust(_HEAD.size, b"\0"))[0]
        raw = memoryview(file.read_at(0, min(max(size, 0), file.size())))
    except DiskError:
        return None
    finally:
        file.close()
    layout = read_layout(raw, 0, len(raw))
    return int(_LONG.unpack_from(raw, layout.store_timestamp_at)[0]) if isinstance(layout, Layout) else None


def _queue_in_front(fs: FileSystem, queues: Iterable[ListedQueue], begin: int) -> Path | None:
    """Return the directory of a queue whose first unit points before ``begin``, or None."""
    for _, directory, files in queues:
        if not files:
            continue
        try:
            file = fs.open(files[0].path)
            try:
                unit = decode_entry(file.read_at(0, UNIT_SIZE).ljust(UNIT_SIZE, b"\0"))
            finally:
                file.close()
        except (DiskError, FileNotFoundError):
            continue
        if unit.is_message and unit.phy_offset < begin:
            return directory
    return None


class LogFindings(NamedTuple):
    """What is wrong with the log's files.

    ``problems`` keep the store from opening for writing, the most severe first; empty for a healthy or a new store.
    ``notes`` are findings to report that do not keep it from opening.
    """

    problems: list[StoreError]
    notes: list[StoreError]


def log_state(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, now_ms: int | None = None) -> LogFindings:
    """Check the directories of the log and, if necessary, the queues, in at most one walk.

    ``config`` has the sizes that the files have. ``now_ms`` decides what is younger than fileReservedTime (None: now).
    """
    queues = QueueListing(fs, paths.consume_queue)
    files, duplicates = one_of_each(fs, offset_files(fs, paths.commit_logs))
    listed, size = files.copy(), config.mapped_file_size_commit_log
    if not any(_has_record(fs, file) for file in files):
        end = files[-1].offset + size if files else 0
        if files and fs.exists(paths.abort) and _checkpoint_offset(fs, paths) <= end:
            return LogFindings([], [])  # a power cut took the records: the names of log files are durable before them
        if files and 0 < _checkpoint_offset(fs, paths) <= files[0].offset:
            return LogFindings([], [])  # retention has removed all records, and the next file was ready
        if (reason := _known_records(fs, paths, queues, has_files=bool(files))) is not None:
            return LogFindings([_missing_log(fs, paths, reason, has_files=bool(files))], [])
        return LogFindings([], [])
    while not files[-1].size_bytes:  # a power cut took its size; load() removes it
        files.pop()
    renamed = dict(_renamed_files(fs, paths, size))
    problems: list[StoreError] = [*duplicates, *_missing_files(paths, files, size, renamed)]
    problems += _wrong_sizes(files, size)
    if (stray := renamed.get(files[-1].offset + size)) is not None:
        name = offset_name(files[-1].offset + size)
        reason = f"has the records after the last file of the log; rename it to {name}, or move it away"
        problems.insert(0, MissingLogError(stray, reason))
    else:
        problems += _missing_end(fs, paths, listed, queues, config)
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    begin = missing_begin(fs, paths, listed, queues, config, now_ms)
    if begin is None:
        return LogFindings(problems, [])
    if begin.directory is None:
        return LogFindings(problems, [begin.note()])
    problem = begin.problem(exists=fs.exists(begin.directory))
    if not any(log_problem.path == problem.path for log_problem in problems):
        problems.append(problem)
    return LogFindings(problems, [])


def one_of_each(fs: FileSystem, files: list[OffsetFile]) -> tuple[list[OffsetFile], list[DuplicateFileError]]:
    """Return one file for each offset, and the duplicates.

    Of several files with one offset, the first whose first record has that offset is used.
    """
    chosen_files, duplicates = [], []
    for offset, group in groupby(files, lambda file: file.offset):
        same = list(group)
        chosen = same[0]
        if len(same) > 1:
            chosen = next((file for file in same if first_record_offset(fs, file.path) == offset), chosen)
            duplicates += [DuplicateFileError(file.path, chosen.path, SALVAGE) for file in same if file is not chosen]
        chosen_files.append(chosen)
    return chosen_files, duplicates


def require_whole_log(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    now_ms: int | None = None,
    *,
    accepts_end: bool = False,
) -> LogFindings:
    """Raise the most severe problem, unless the settings accept it. Fill files missing in the middle with a blank.

    With ``accepts_end`` the newest files may be missing too, for a caller that reports what recovery cuts then. Returns
    the accepted problems. A file of a wrong length is left to load(), which refuses it.
    """
    state = log_state(fs, paths, config, now_ms)
    missing = [problem for problem in state.problems if not isinstance(problem, WrongFileSizeError)]
    for problem in missing:
        if not config.accept_missing_commit_log and not (accepts_end and isinstance(problem, MissingLogEndError)):
            raise problem
    for problem in missing:
        if isinstance(problem, MissingFileError):
            fill_gap(fs, paths, config.mapped_file_size_commit_log, problem)
    return LogFindings(missing, state.notes)


def fill_gap(fs: FileSystem, paths: StorePaths, file_size: int, gap: MissingFileError) -> None:
    """Create the missing files of ``gap``. Each consists of one blank and appears complete. Raises DiskFullError."""
    if gap.count > _MAX_MISSING_FILES:
        raise gap
    for offset in range(gap.begin, gap.end, file_size):
        path = paths.directory_for(offset // file_size) / offset_name(offset)
        fs.make_directory(path.parent)
        part = path.with_name(f"{path.name}.part")
        file = fs.open(part, writable=True, create=True)
        file.resize(file_size)
        file.write_at(0, encode_blank(file_size))
        file.sync()
        file.close()
        fs.rename(part, path)
        fs.sync_directory(path.parent)


def _has_record(fs: FileSystem, file: OffsetFile) -> bool:
    try:
        return any(_head(fs, file.path)[:BLANK_SIZE]) or _is_lost(fs, file.path)
    except DiskError:  # there is something that cannot be read
        return True


def _is_lost(fs: FileSystem, path: Path) -> bool:
    """Whether the head of a file is unreadable, so that a view shows zeros."""
    file = fs.open(path)
    try:
        return file.lost_in(0, BLANK_SIZE) is not None
    finally:
        file.close()


def _head(fs: FileSystem, path: Path) -> bytes:
    file = fs.open(path)
    try:
        return file.read_at(0, _HEAD_SIZE)
    finally:
        file.close()


# Files missing in the middle


def _missing_files(
    paths: StorePaths, files: list[OffsetFile], size: int, renamed: dict[int, Path]
) -> Iterator[MissingFileError]:
    for before, after in pairwise(files):
        begin = before.offset + size
        if after.offset > begin and not (after.offset - begin) % size:
            path = paths.directory_for(begin // size) / offset_name(begin)
            hint = f"{renamed[begin]} holds its records: rename it" if begin in renamed else _BACK
            hint = f"{hint}; {SALVAGE}; {ACCEPT} continues without it, as RocketMQ does"
            yield MissingFileError(path, (after.offset - begin) // size, begin, after.offset, hint)


def _wrong_sizes(files: list[OffsetFile], size: int) -> Iterator[WrongFileSizeError]:
    for file in files:
        if file.size_bytes != size:
            yield WrongFileSizeError(file.path, file.size_bytes, f"{size} like the others or as configured; {SALVAGE}")


def _renamed_files(fs: FileSystem, paths: StorePaths, size: int) -> Iterator[tuple[int, Path]]:
    """Yield (offset, path) of files with another name whose first record has that offset."""
    for directory in paths.commit_logs:
        known = {file.path for file in offset_files(fs, [directory])}
        for entry in fs.scan(directory):
            path = directory / entry.name
            if entry.is_directory or entry.is_special or entry.size_bytes != size or path in known:
                continue
            if (offset := first_record_offset(fs, path)) is not None:
                yield offset, path


def first_record_offset(fs: FileSystem, path: Path) -> int | None:
    """Return the physical offset in the record at the start of a file, or None without a readable record."""
    try:
        head = _head(fs, path)
    except (OSError, StoreError):
        return None
    is_record = int.from_bytes(head[4:8], "big") in (MAGIC_V1, MAGIC_V2) and len(head) == _HEAD_SIZE
    return int.from_bytes(head[PHY_OFFSET_AT:], "big") if is_record else None


# Files missing at the end, or all files


def _missing_end(
    fs: FileSystem,
    paths: StorePaths,
    files: list[OffsetFile],
    queues: Iterable[ListedQueue],
    config: MessageStoreConfig,
) -> Iterator[MissingLogError]:
    """Yield the error if the log ends too early, by what points past its last file.

    A directory without files comes first.
    """
    problem = missing_end(fs, paths, files, queues, config)
    end, reached = files[-1].offset + config.mapped_file_size_commit_log, _checkpoint_offset(fs, paths)
    reached = reached if problem is None else problem.reached
    empty = [path for path in paths.commit_logs if not offset_files(fs, [path])]
    if empty and reached > end:
        reason = f"holds no file of the log, which ends at {end}, but the store says that it reached {reached}; "
        yield MissingLogError(empty[0], f"{reason}is its disk mounted? {ACCEPT} continues with the remaining files")
    elif problem is not None:
        yield problem


def _missing_log(fs: FileSystem, paths: StorePaths, reason: str, *, has_files: bool) -> MissingLogError:
    shown = paths.commit_log
    state = "holds only zeros" if has_files else "holds no file" if fs.exists(shown) else "does not exist"
    cause = "is its disk mounted, is storePathCommitLog of the broker.conf given (-c)?"
    return MissingLogError(shown, f"{state}, but {reason}; {cause} {ACCEPT} drops what is left of the store")


def _known_records(fs: FileSystem, paths: StorePaths, queues: Iterable[ListedQueue], *, has_files: bool) -> str | None:
    """Return the evidence that the log had records, or None.

    If the log's files exist and hold only zeros, only the queues count: a recovery that cut the whole log leaves the
    index as it is.
    """
    if (queue := _queue_with_units(fs, queues)) is not None:
        return f"consume queue {queue.name} of {queue.parent.name} has entries"
    if has_files:
        return None
    if (reached := _checkpoint_offset(fs, paths)) > 0:
        return f"the checkpoint says that it reached {reached}"
    for entry in fs.scan(paths.index):
        if entry.is_directory or not is_index_name(entry.name) or entry.size_bytes < HEADER_SIZE:
            continue
        file = fs.open(paths.index / entry.name)
        try:
            count = decode_header(file.read_at(0, HEADER_SIZE)).index_count
        finally:
            file.close()
        if count > 1:
            return f"the index has entries ({entry.name})"
    return None


def _checkpoint_offset(fs: FileSystem, paths: StorePaths) -> int:
    page = read_checkpoint(fs, paths)
    return max(page.confirm_phy_offset, page.logics_physical_offset)


def _queue_with_units(fs: FileSystem, queues: Iterable[ListedQueue]) -> Path | None:
    for _, directory, files in queues:
        if any(any(_head(fs, file.path)[:UNIT_SIZE]) for file in files):
            return directory
    return None
