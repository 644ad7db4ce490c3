"""Whether files of the commit log are missing that the rest of the store knows of.

A store whose log is on a disk that is not mounted, or elsewhere than the settings say, looks like one with an empty
log, and a recovery would drop its queues and its index. A file that is missing in the middle is the same on a small
scale. So a store is opened for writing only with acceptMissingCommitLog=true then; what is missing in the middle
becomes a file of one blank, over which RocketMQ and this store both read on. RocketMQ 5.5.0 opens such a store as if
nothing was missing.

A reader sees the same in its private view, where a file that is too short is filled up as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from gantrymq.clock import SystemClock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import (
    DiskError,
    DuplicateFileError,
    MissingFileError,
    MissingLogEndError,
    MissingLogError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.format.index import HEADER_SIZE, decode_header
from gantrymq.format.names import is_index_name, offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.record import BLANK_SIZE, MAGIC_V1, MAGIC_V2, PHY_OFFSET_AT, encode_blank
from gantrymq.fs.api import FileSystem
from gantrymq.store.missing_begin import missing_begin
from gantrymq.store.missing_end import missing_end, read_checkpoint
from gantrymq.store.offset_files import OffsetFile, offset_files
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue_listing import ListedQueue, QueueListing
from gantrymq.store.remedies import ACCEPT, SALVAGE

_MOST_MISSING_FILES = 4096
_HEAD_SIZE = PHY_OFFSET_AT + 8
_BACK = "mount or copy it back, or give all directories of the log (storePathCommitLog, -c)"


class LogState(NamedTuple):
    """What is wrong with the run of the log's files.

    ``problems`` are what a store is not opened for writing with, the gravest first; empty for a healthy or a new store.
    ``notes`` are what people should know, though a store with it is opened.
    """

    problems: list[StoreError]
    notes: list[StoreError]


def log_state(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, now_ms: int | None = None) -> LogState:
    """Look at the directories of the log, and where they make it necessary at the queues, in at most one walk.

    ``config`` has the sizes that the files say. ``now_ms`` says what is younger than fileReservedTime; now by default.
    """
    queues = QueueListing(fs, paths.consume_queue)
    files, duplicates = one_of_each(fs, offset_files(fs, paths.commit_logs))
    listed, size = files.copy(), config.mapped_file_size_commit_log
    if not any(_has_record(fs, file) for file in files):
        end = files[-1].offset + size if files else 0
        if files and fs.exists(paths.abort) and _checkpoint_offset(fs, paths) <= end:
            return LogState([], [])  # a power cut took it: the names of log files are durable before their records
        if (reason := _known_records(fs, paths, queues, has_files=bool(files))) is not None:
            return LogState([_missing_log(fs, paths, reason, has_files=bool(files))], [])
        return LogState([], [])
    while not files[-1].size_bytes:  # a power cut took its size; the load removes it
        files.pop()
    renamed = dict(_renamed_files(fs, paths, size))
    problems: list[StoreError] = [*duplicates, *_missing_files(paths, files, size, renamed)]
    problems += _wrong_sizes(files, size)
    if (stray := renamed.get(files[-1].offset + size)) is not None:
        name = offset_name(files[-1].offset + size)
        reason = f"holds the records behind the last file of the log; rename it to {name}, or move it away"
        problems.insert(0, MissingLogError(stray, reason))
    else:
        problems += _missing_end(fs, paths, listed, queues, config)
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    begin = missing_begin(fs, paths, listed, queues, config, now_ms)
    if begin is None:
        return LogState(problems, [])
    if begin.directory is None:
        return LogState(problems, [begin.note()])
    problem = begin.problem(exists=fs.exists(begin.directory))
    if not any(one.path == problem.path for one in problems):
        problems.append(problem)
    return LogState(problems, [])


def one_of_each(fs: FileSystem, files: list[OffsetFile]) -> tuple[list[OffsetFile], list[DuplicateFileError]]:
    """One file of each offset, of several the first one whose first record says that it lies there; and the others."""
    kept, told = [], []
    for offset, group in groupby(files, lambda file: file.offset):
        same = list(group)
        one = same[0]
        if len(same) > 1:
            one = next((file for file in same if first_record_offset(fs, file.path) == offset), one)
            told += [DuplicateFileError(file.path, one.path, SALVAGE) for file in same if file is not one]
        kept.append(one)
    return kept, told


def require_whole_log(
    fs: FileSystem,
    paths: StorePaths,
    config: MessageStoreConfig,
    now_ms: int | None = None,
    *,
    accepts_end: bool = False,
) -> LogState:
    """Raise the gravest problem, unless the settings accept it; files missing in the middle are filled with a blank.

    With ``accepts_end`` the newest files may be missing too: for who names what a recovery cuts then. The problems
    that are returned were accepted. A file of a wrong length is left to the load, which refuses it.
    """
    state = log_state(fs, paths, config, now_ms)
    missing = [one for one in state.problems if not isinstance(one, WrongFileSizeError)]
    for problem in missing:
        if not config.accept_missing_commit_log and not (accepts_end and isinstance(problem, MissingLogEndError)):
            raise problem
    for problem in missing:
        if isinstance(problem, MissingFileError):
            fill_gap(fs, paths, config.mapped_file_size_commit_log, problem)
    return LogState(missing, state.notes)


def fill_gap(fs: FileSystem, paths: StorePaths, file_size: int, gap: MissingFileError) -> None:
    """Make the missing files of ``gap``, each of one blank; each appears whole. Raises DiskFullError."""
    if gap.count > _MOST_MISSING_FILES:
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
    except DiskError:  # something is there, which the disk does not give back
        return True


def _is_lost(fs: FileSystem, path: Path) -> bool:
    """Whether a view shows zeros because the disk does not give back what is there."""
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


# In the middle


def _missing_files(
    paths: StorePaths, files: list[OffsetFile], size: int, renamed: dict[int, Path]
) -> Iterator[MissingFileError]:
    for before, after in pairwise(files):
        begin = before.offset + size
        if after.offset > begin and not (after.offset - begin) % size:
            path = paths.directory_for(begin // size) / offset_name(begin)
            hint = f"{renamed[begin]} holds its records: rename it" if begin in renamed else _BACK
            hint = f"{hint}; {SALVAGE}; {ACCEPT} goes on without it, as RocketMQ does"
            yield MissingFileError(path, (after.offset - begin) // size, begin, after.offset, hint)


def _wrong_sizes(files: list[OffsetFile], size: int) -> Iterator[WrongFileSizeError]:
    for file in files:
        if file.size_bytes != size:
            yield WrongFileSizeError(file.path, file.size_bytes, f"{size} like the others or as configured; {SALVAGE}")


def _renamed_files(fs: FileSystem, paths: StorePaths, size: int) -> Iterator[tuple[int, Path]]:
    """(offset, path) of files of another name whose first record says that it lies at that offset."""
    for directory in paths.commit_logs:
        known = {file.path for file in offset_files(fs, [directory])}
        for entry in fs.scan(directory):
            path = directory / entry.name
            if entry.is_directory or entry.is_special or entry.size_bytes != size or path in known:
                continue
            if (offset := first_record_offset(fs, path)) is not None:
                yield offset, path


def first_record_offset(fs: FileSystem, path: Path) -> int | None:
    """Where the record at the start of a file says that it lies; None where there is no record, or it is unreadable."""
    try:
        head = _head(fs, path)
    except (OSError, StoreError):
        return None
    is_record = int.from_bytes(head[4:8], "big") in (MAGIC_V1, MAGIC_V2) and len(head) == _HEAD_SIZE
    return int.from_bytes(head[PHY_OFFSET_AT:], "big") if is_record else None


# At the end, or everywhere


def _missing_end(
    fs: FileSystem,
    paths: StorePaths,
    files: list[OffsetFile],
    queues: Iterable[ListedQueue],
    config: MessageStoreConfig,
) -> Iterator[MissingLogError]:
    """Where the log ends too early, by what leads behind its last file; a directory without files is named first."""
    problem = missing_end(fs, paths, files, queues, config)
    end, reached = files[-1].offset + config.mapped_file_size_commit_log, _checkpoint_offset(fs, paths)
    reached = reached if problem is None else problem.reached
    empty = [path for path in paths.commit_logs if not offset_files(fs, [path])]
    if empty and reached > end:
        reason = f"holds no file of the log, which ends at {end}, but the store says that it reached {reached}; "
        yield MissingLogError(empty[0], f"{reason}is its disk mounted? {ACCEPT} goes on with what is there")
    elif problem is not None:
        yield problem


def _missing_log(fs: FileSystem, paths: StorePaths, reason: str, *, has_files: bool) -> MissingLogError:
    shown = paths.commit_log
    state = "holds only zeros" if has_files else "holds no file" if fs.exists(shown) else "does not exist"
    cause = "is its disk mounted, is storePathCommitLog of the broker.conf given (-c)?"
    return MissingLogError(shown, f"{state}, but {reason}; {cause} {ACCEPT} drops what is left of the store")


def _known_records(fs: FileSystem, paths: StorePaths, queues: Iterable[ListedQueue], *, has_files: bool) -> str | None:
    """What says that the log had records; None where nothing does.

    Where the files of the log are there and hold zeros only the queues count: a recovery that cut the whole log leaves
    the index as it is.
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
