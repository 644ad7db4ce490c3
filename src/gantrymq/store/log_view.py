"""A reader's private view of a commit log that lacks files: it is made whole, so that the rest can be read.

A missing file becomes one blank, and one of a wrong length gets the right one, with a blank behind its last record. Of
two files of one name, in two directories, one counts.
Nothing is written: the file system is the overlay.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import (
    DuplicateFileError,
    MissingFileError,
    MissingLogEndError,
    MissingLogError,
    StoreError,
    WrongFileSizeError,
)
from gantrymq.format.names import parse_offset_name
from gantrymq.format.record import BLANK_SIZE, encode_blank
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.kernels import codes
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.log_scanner import LogScanner
from gantrymq.store.missing_log import fill_gap
from gantrymq.store.paths import StorePaths
from gantrymq.store.record_scan import LARGE_BATCH_RECORDS, RecordScan


def fill_view(
    fs: OverlayFileSystem, paths: StorePaths, config: MessageStoreConfig, problems: Iterable[StoreError]
) -> bool:
    """Give the view files of the right length, one after the other; False where the log as a whole is missing.

    Raises MissingFileError where so many are missing that the name of the next one cannot be right.
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
    """End the files that were too short with a blank, but for the last: the log goes on behind them.

    A record that the end of its file had cut goes: zeros in place of its last bytes would make it look whole.
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
