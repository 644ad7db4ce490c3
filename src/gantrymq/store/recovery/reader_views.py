"""Completes a reader's private view of a store with missing files, over the overlay file system. Nothing is written.

In the commit log a missing file becomes one blank. A file of a wrong length gets the right length, with a blank after
its last record. Of two files with one name in two directories, one is used. In a consume queue the units from a missing
file on are made again from the commit log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import (
    DuplicateFileError,
    MisfiledQueueError,
    MissingFileError,
    MissingLogEndError,
    MissingLogError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.format.names import offset_name, parse_offset_name
from gantrymq.format.queue_entry import UNIT_SIZE, decode_entry
from gantrymq.format.queue_ext import is_address
from gantrymq.format.record import BLANK_SIZE, encode_blank
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.fs.reads import LostPages
from gantrymq.kernels import codes
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.log_scanner import LogScanner
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, RecordScan
from gantrymq.store.paths import OffsetFile, StorePaths, offset_files
from gantrymq.store.queue.consume_queue import REBUILD, ConsumeQueue
from gantrymq.store.queue.consume_queue_ext import REBUILD_EXT
from gantrymq.store.queue.owner import JudgedFile
from gantrymq.store.queue.queue_listing import is_topic_name, list_queues
from gantrymq.store.recovery.missing_log import fill_gap


def fill_view(
    fs: OverlayFileSystem, paths: StorePaths, config: MessageStoreConfig, problems: Iterable[StoreError]
) -> bool:
    """Give the view files of the right length without gaps. Returns False if the log as a whole is missing.

    Raises MissingFileError if the gap before a file is too large for the name of that file to be right.
    """
    is_whole, size = True, config.mapped_file_size_commit_log
    for problem in problems:
        if isinstance(problem, MissingFileError):
            fill_gap(fs, paths, size, problem)
        elif isinstance(problem, WrongFileSizeError):
            fs.open(problem.path, writable=True).resize(size)
        elif isinstance(problem, DuplicateFileError):
            fs.remove(problem.path)
        elif isinstance(problem, MissingLogError) and not isinstance(problem, MissingLogEndError):
            is_whole = config.accept_missing_commit_log
    return is_whole


def end_short_files(log: CommitLog, problems: Iterable[StoreError]) -> None:
    """End the files that were too short with a blank, except the last file, so that the log continues after them.

    A record that was cut by the end of its file is zeroed: with zeros in place of its last bytes it would look whole.
    """
    for problem in problems:
        offset = parse_offset_name(problem.path.name)
        file = log.queue.find(offset) if offset is not None else None
        if not isinstance(problem, WrongFileSizeError) or file is None or file.path != problem.path:
            continue
        was_end = file.file_from_offset + min(problem.size_bytes, file.size)
        scanner = LogScanner(log, file.file_from_offset, was_end, RecordScan(codes.CHECK_MARK, LARGE_BATCH_RECORDS))
        end = file.file_from_offset
        for batch in scanner:
            is_cut = batch.end_offset > was_end
            end = batch.base + int(batch.columns[codes.POS, batch.count - 1]) if is_cut else batch.end_offset
        position = end - file.file_from_offset
        if end < scanner.offset:
            file.file.write_at(position, bytes(was_end - end))
        is_open = scanner.stop is not StopReason.BLANK and file is not log.queue.last
        if is_open and file.size - position >= BLANK_SIZE:
            file.file.write_at(position, encode_blank(file.size - position))


_READ_BYTES = 1 << 20


def cut_damaged_queues(
    fs: OverlayFileSystem, paths: StorePaths, file_size: int, lost: Collection[Path] = ()
) -> tuple[list[StoreError], int]:
    """Remove the files of each queue from the first missing, wrong or ``lost`` one on from the view.

    Returns the problems, and the physical offset from which the log must be read for the removed units.
    """
    problems, begin = [], 1 << 62
    for _, directory, files in list_queues(fs, paths.consume_queue):
        while files and not files[-1].size_bytes:  # a power cut took its size; load() removes it
            files.pop()
        for number, file in enumerate(files):
            problem = _problem(directory, files[:number], file, file_size)
            if problem is not None:
                problems.append(problem)
            elif file.path not in lost:
                continue
            begin = min(begin, _last_phy_offset(fs, files[:number]))
            for later in offset_files(fs, [directory]):
                if later.offset >= file.offset:
                    fs.remove(later.path)
            break
    return problems, begin


def cut_misfiled_queues(
    fs: OverlayFileSystem, misfiled: Iterable[tuple[JudgedFile, MisfiledQueueError]]
) -> tuple[list[StoreError], int]:
    """Remove the files of each queue from its first ``misfiled`` one on from the view. Returns like cut_damaged_queues.

    An empty directory is removed too: either no queue has this name, or the log creates the queue again.
    """
    problems: list[StoreError] = []
    begin = 1 << 62
    for judged, error in misfiled:
        problems.append(error)
        directory = judged.file.path.parent
        files = offset_files(fs, [directory])
        remaining = [file for file in files if file.offset < judged.file.offset]
        begin = min(begin, _last_phy_offset(fs, remaining))
        for file in files[len(remaining) :]:
            fs.remove(file.path)
        fs.remove_directory(directory)
        fs.remove_directory(directory.parent)
    return problems, begin


def read_queues(queues: Iterable[ConsumeQueue]) -> None:
    """Read every file of the queues once, so that the view knows their unreadable parts."""
    for queue in queues:
        for file in queue.files.files:
            for position in range(0, file.wrote_position, _READ_BYTES):
                file.file.read_at(position, min(_READ_BYTES, file.wrote_position - position))
            file.close_if_idle()


def lost_page_errors(lost: LostPages) -> Iterator[StoreError]:
    """Return the errors about lost parts, except those of directories below consumequeue/ that cannot be a topic's."""
    foreign = {error.path for error in lost.directories.values() if not is_topic_name(error.path.name)}
    return (error for error in lost.errors() if error.path not in foreign)


def _problem(
    directory: Path, before: list[OffsetFile], file: OffsetFile, file_size: int, remedy: str = REBUILD
) -> StoreError | None:
    expected = before[-1].offset + file_size if before else file.offset
    if file.offset > expected:
        count = (file.offset - expected) // file_size
        return MissingFileError(directory / offset_name(expected), count, expected, file.offset, remedy)
    if file.size_bytes != file_size or file.offset % file_size:
        return WrongFileSizeError(file.path, file.size_bytes, f"{file_size} like the others or as configured; {remedy}")
    return None


def _last_phy_offset(fs: OverlayFileSystem, files: list[OffsetFile]) -> int:
    """Return where the last unit of these files points, or 0 if it points nowhere."""
    if not files:
        return 0
    file = fs.open(files[-1].path)
    try:
        entry = decode_entry(file.read_at(files[-1].size_bytes - UNIT_SIZE, UNIT_SIZE))
    finally:
        file.close()
    return 0 if entry.is_filler else max(entry.phy_offset, 0)


def damaged_ext_files(fs: FileSystem, paths: StorePaths, file_size: int) -> list[StoreError]:
    """Return the problem of each queue's extended units: the first missing or wrong file, or no file at all."""
    problems: list[StoreError] = []
    for (topic, queue_id), _, queue_files in list_queues(fs, paths.consume_queue):
        directory = paths.consume_queue_ext / topic / str(queue_id)
        files = offset_files(fs, [directory])
        while files and not files[-1].size_bytes:
            files.pop()
        file_problems = (
            _problem(directory, files[:number], file, file_size, REBUILD_EXT) for number, file in enumerate(files)
        )
        if (problem := next((problem for problem in file_problems if problem is not None), None)) is not None:
            problems.append(problem)
        elif not files and _has_extended_unit(fs, queue_files):
            problems.append(StoreError(directory, f"holds no file, but the queue's entries point there; {REBUILD_EXT}"))
    return problems


def require_ext_files(fs: FileSystem, paths: StorePaths, file_size: int) -> None:
    """Raise the first problem with extended units: new ones would get the addresses of lost ones."""
    for problem in damaged_ext_files(fs, paths, file_size):
        raise problem


def _has_extended_unit(fs: FileSystem, files: Sequence[OffsetFile]) -> bool:
    """Whether the first unit of the queue's last file has its tags code in an extended unit."""
    if not files:
        return False
    file = fs.open(files[-1].path)
    try:
        raw = file.read_at(0, UNIT_SIZE)
    finally:
        file.close()
    return len(raw) == UNIT_SIZE and is_address(decode_entry(raw).tags_code)
