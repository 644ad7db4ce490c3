"""Verifying the directories of the commit log: what lies there beside its files, and whether the log is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import MissingLogError
from gantrymq.format.names import offset_name
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.recovery.missing_log import first_record_offset, log_state, one_of_each
from gantrymq.tools.findings import Finding, Kind, Level


def see_foreign_log_files(fs: FileSystem, paths: StorePaths, others: list[Path], file_size: int) -> Iterator[Finding]:
    """What belongs to somebody else, and files of records under a name that no log file has."""
    entries = {directory / entry.name: entry for directory in paths.commit_logs for entry in fs.scan(directory)}
    _, duplicates = one_of_each(fs, offset_files(fs, paths.commit_logs))
    for problem in duplicates:
        yield Finding(Kind.FOREIGN_FILE, paths.name_of(problem.path), problem.reason)
    for path in sorted(set(others).difference(problem.path for problem in duplicates)):
        entry, text = entries.get(path), "belongs to no RocketMQ store and stays; "
        place = None
        if entry is None or entry.is_directory:
            text += "a broker starts with it"
        elif not entry.is_special and (place := first_record_offset(fs, path)) is not None:
            begin = place - place % file_size
            text = f"holds records of the commit log from offset {place} on; `gantrymq store salvage` takes them"
            text += f", and a file of {file_size} bytes may be renamed to {offset_name(begin)} where that is missing"
        else:
            text += "gantrymq starts with it, RocketMQ 5.5.0 does not (an empty one that sorts last it deletes)"
        yield Finding(Kind.FOREIGN_FILE, paths.name_of(path), text, Level.NOTE, phy_offset=place)


def see_missing_log(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, now_ms: int) -> Iterator[Finding]:
    """Whether the log is missing as a whole, or its end or begin is, by what the rest of the store knows."""
    problems, notes = log_state(fs, paths, config, now_ms)
    for problem in problems:
        if isinstance(problem, MissingLogError):
            yield Finding(Kind.LOG_MISSING, paths.name_of(problem.path), problem.reason)
    for note in notes:
        yield Finding(Kind.LOG_MISSING, paths.name_of(note.path), note.reason, Level.NOTE)
