"""Finds which part of the log each file holds, and whether retention can have deleted a missing beginning.

Every record carries its physical offset. If all records of a file are off by the same number of whole files, the file
has the wrong name: it was renamed, swapped with another or copied over one. It counts as the part that its records
name, unless the file of that name has that part; then it is a copy.

Retention deletes a file when it is older than fileReservedTime. The messages before the first record that is left were
stored shortly before it. A file under the name of an earlier part shows that retention had not come so far
(:func:`missing_front`).

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from gantrymq.clock import Clock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.names import parse_offset_name
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.store.log.log_reader import LogFile, LogFileReader
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.recovery.missing_log import one_of_each
from gantrymq.tools.reports import LostRange

LEFT_OUT = "it is a copy of another one, or its name is not an offset of the log"
"""The reason for which a file is left out."""

_FIRST_LOOK_BYTES = 64 << 10
_MIN_AGREEING = 2  # records that must agree, because a bit of a single one may be flipped


def log_files(fs: FileSystem, paths: StorePaths) -> tuple[list[LogFile], list[Path]]:
    """The files of the log in order, and all other paths in its directories.

    Of several files with one offset, the log has the first whose first record has that offset; see ``one_of_each``.
    """
    files, _ = one_of_each(fs, offset_files(fs, paths.commit_logs))
    paths_of_files = {file.path for file in files}
    present = (directory / entry.name for directory in paths.commit_logs for entry in fs.scan(directory))
    return [LogFile(*file) for file in files], [path for path in present if path not in paths_of_files]


def placed_files(fs: FileSystem, paths: StorePaths, size: int) -> tuple[list[LogFile], list[Path]]:
    """The log files in order, each at its true place and at most ``size`` bytes long; and the files left out.

    A file that is left out is a copy of another one, or its name is not a multiple of ``size`` and its records do not
    name a free place.
    """
    named, _ = log_files(fs, paths)
    files: dict[int, LogFile] = {}
    doubted: list[tuple[LogFile, int | None]] = []
    for file in named:
        cut = replace(file, size_bytes=min(file.size_bytes, size))
        base = _stated_base(fs, cut, size)
        if file.base % size == 0 and base in (None, file.base):
            files[file.base] = cut
        else:
            doubted.append((cut, base))
    for path in _others(fs, paths, {file.path for file in named}, size):
        file = LogFile(path, 0, size)
        if (base := _stated_base(fs, file, size)) is not None:
            doubted.append((file, base))
    skipped = []
    for file, base in doubted:
        if base is not None and base not in files:
            files[base] = replace(file, base=base)
        elif file.path.name.isdigit():
            skipped.append(file.path)
    return [files[base] for base in sorted(files)], sorted(skipped)


def missing_front(files: Sequence[LogFile], skipped: Collection[Path], size: int) -> LostRange | None:
    """The missing range before the first of the placed ``files``; None if retention may have deleted what was there.

    Retention deletes files from the first one on. A file that is there under the name of an earlier part shows that the
    log still had that part, although the file holds records of another part, or is one of the ``skipped`` copies.
    """
    paths = [*skipped, *(file.path for file in files)]
    named = [(base, path) for path in paths if (base := parse_offset_name(path.name)) is not None and not base % size]
    base, path = min(named, default=(0, Path()))
    return LostRange(path, base, files[0].base, StopReason.MISSING_FILES) if named and base < files[0].base else None


def _others(fs: FileSystem, paths: StorePaths, named: Collection[Path], size: int) -> list[Path]:
    """Files of the length of a log file without the name of one."""
    entries = [(directory / entry.name, entry) for directory in paths.commit_logs for entry in fs.scan(directory)]
    return [
        path for path, entry in entries if path not in named and not entry.is_directory and entry.size_bytes == size
    ]


def _stated_base(fs: FileSystem, file: LogFile, size: int) -> int | None:
    """The physical offset at which the file begins according to its records; None if they do not agree on one."""
    first = replace(file, size_bytes=min(file.size_bytes, _FIRST_LOOK_BYTES))
    distances = _distances(fs, first, _MIN_AGREEING)
    if len(distances) < _MIN_AGREEING and first != file:
        distances = _distances(fs, file, _MIN_AGREEING)
    if 0 in distances:
        return file.base if file.base % size == 0 else None
    stated = {file.base + distance for distance in distances if distances.count(distance) >= _MIN_AGREEING}
    if len(stated) != 1 or (base := stated.pop()) % size or base < 0:
        return None
    whole = _distances(fs, file, None)  # a part of the file may have been copied over another one
    return base if 2 * whole.count(base - file.base) > len(whole) else None


def _distances(fs: FileSystem, file: LogFile, min_agreeing: int | None) -> list[int]:
    """The error of each record's physical offset field. Stops when ``min_agreeing`` are equal, or one is 0."""
    distances: list[int] = []
    try:
        for event in LogFileReader(fs, file):
            if isinstance(event, RecordBatch):
                distances += _of_batch(event)
                if min_agreeing is not None and (0 in distances or _is_agreed(distances, min_agreeing)):
                    break
    except FileNotFoundError:
        pass
    return distances


def _of_batch(batch: RecordBatch) -> list[int]:
    columns = batch.columns[:, : batch.count]
    distances: list[int] = (columns[codes.PHY_OFFSET] - columns[codes.POS] - batch.base).tolist()
    return distances


def _is_agreed(distances: Sequence[int], min_agreeing: int) -> bool:
    return any(distances.count(distance) >= min_agreeing for distance in set(distances))


_LOOK_BYTES = 64 << 10
_HOUR_MS = 3_600_000


def is_within_retention(fs: FileSystem, files: Sequence[LogFile], config: MessageStoreConfig, clock: Clock) -> bool:
    """Whether the first record that is left is younger than fileReservedTime.

    Then retention by age cannot have deleted the messages before it.
    """
    for file in files if files and files[0].base else ():
        stored_ms = _first_stored_ms(fs, replace(file, size_bytes=min(file.size_bytes, _LOOK_BYTES)))
        if stored_ms is None:
            stored_ms = _first_stored_ms(fs, file)
        if stored_ms is not None:
            return clock.now_ms() - stored_ms < config.file_reserved_time_hours * _HOUR_MS
    return False


def _first_stored_ms(fs: FileSystem, file: LogFile) -> int | None:
    try:
        batches = (event for event in LogFileReader(fs, file) if isinstance(event, RecordBatch))
        first = next(batches, None)
        return int(first.columns[codes.STORE_TIMESTAMP, 0]) if first is not None else None
    except FileNotFoundError:
        return None
