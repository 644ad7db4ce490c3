"""A reader's private view of a commit log that lacks files: it is made whole, so that the rest can be read.

A missing file becomes one blank, and one of a wrong length gets the right one, with a blank behind its last record.
Nothing is written: the file system is the overlay.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import MissingFileError, MissingLogEndError, MissingLogError, StoreError, WrongFileSizeError
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
        elif isinstance(problem, MissingLogError) and not isinstance(problem, MissingLogEndError):
            is_whole = config.accept_missing_commit_log
    return is_whole


def end_short_files(log: CommitLog, problems: Iterable[StoreError]) -> None:
    """End the files that were too short with a blank, but for the last: the log goes on behind them."""
    for problem in problems:
        offset = parse_offset_name(problem.path.name) if isinstance(problem, WrongFileSizeError) else None
        file = log.queue.find(offset) if offset is not None else None
        if file is None or file is log.queue.last:
            continue
        scanner = LogScanner(
            log, file.file_from_offset, file.end_offset, RecordScan(codes.CHECK_MARK, LARGE_BATCH_RECORDS)
        )
        for _ in scanner:
            pass
        position = scanner.offset - file.file_from_offset
        if scanner.stop is not StopReason.BLANK and file.size - position >= BLANK_SIZE:
            blank = encode_blank(file.size - position)
            file.file.write_at(position, blank)
