"""When the disk of a store is full at the rate of its last days, and what retention deletes next.

Both follow the rules of :mod:`gantrymq.store.retention`. Nothing is deleted here.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.reader import StoreReader
from gantrymq.store.retention import DiskSpace, is_time_to_do
from gantrymq.tools.read.store_days import DAY_MS
from gantrymq.tools.usage import Growth

_HOUR_MS = 3_600_000
_HOURS_A_DAY = 24
_MAX_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class DiskOutlook:
    """The disk of the log at ``path``: its free bytes, and when it is full if the store grows on without retention.

    ``bytes_a_day`` are those of the commit log and the queues; None if the growth is unknown. Above
    ``refused_above_percent`` the broker refuses messages. The times are in ms, None if they are further than 100 years.
    """

    path: Path
    used_percent: float
    free_bytes: int | None
    bytes_a_day: int | None
    refused_above_percent: int
    refused_ms: int | None
    full_ms: int | None


@dataclass(frozen=True, slots=True)
class NextDeletion:
    """A file of the log that retention deletes from ``deleted_ms`` on; it expires at ``expires_ms``."""

    path: Path
    size_bytes: int
    expires_ms: int
    deleted_ms: int
    is_for_space: bool


def disk_outlook(reader: StoreReader, growth: Growth | None, now_ms: int, fs: FileSystem) -> DiskOutlook | None:
    """The outlook of the log's disk; of several directories, the one with the most free bytes. None without one."""
    config, paths = reader.config, reader.paths
    free = {path: _free_bytes(fs, path) for path in paths.writable_commit_logs if fs.exists(path)}
    if not free:
        return None
    path = max(free, key=lambda directory: free[directory] or 0)
    used = fs.used_ratio(path)
    bytes_a_day = None
    if growth is not None:
        bytes_a_day = growth.a_day(growth.log_bytes + UNIT_SIZE * growth.messages)
    refused_percent = min(max(config.disk_space_warning_level_ratio, 35), 90)
    whole = (free[path] or 0) / max(1 - used, 0.01)
    left_bytes = max(whole * (refused_percent / 100 - used), 0)
    return DiskOutlook(
        path,
        used * 100,
        free[path],
        bytes_a_day,
        refused_percent,
        _reached_ms(now_ms, left_bytes if free[path] is not None else None, bytes_a_day),
        _reached_ms(now_ms, free[path], bytes_a_day),
    )


def _free_bytes(fs: FileSystem, path: Path) -> int | None:
    try:
        return fs.free_bytes(path)
    except (OSError, StoreError):
        return None


def _reached_ms(now_ms: int, left_bytes: float | None, bytes_a_day: int | None) -> int | None:
    if left_bytes is None or not bytes_a_day or left_bytes / bytes_a_day > _MAX_DAYS:
        return None
    return now_ms + round(left_bytes / bytes_a_day * DAY_MS)


def next_deletions(
    fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, now_ms: int
) -> Iterator[NextDeletion]:
    """Yield the files of the log in the order in which retention deletes them; the last file stays."""
    files = offset_files(fs, paths.commit_logs)
    modified = {entry.name: entry.modified_ms for path in paths.commit_logs for entry in fs.scan(path)}
    is_short, whatever_age = DiskSpace(fs, paths, config).update()
    whatever_age = whatever_age and config.clean_file_forcibly_enable
    earliest_ms = now_ms
    for file in files[:-1]:
        expires_ms = modified[file.path.name] + config.file_reserved_time_hours * _HOUR_MS
        deleted_ms = now_ms if whatever_age else max(expires_ms, earliest_ms)
        if not is_short:
            deleted_ms = _next_hour_ms(config.delete_when, deleted_ms)
        earliest_ms = deleted_ms
        yield NextDeletion(file.path, file.size_bytes, expires_ms, deleted_ms, is_short)


def _next_hour_ms(when: str, from_ms: int) -> int:
    """The first moment at or after ``from_ms`` in an hour of ``when`` (deleteWhen)."""
    for hours in range(_HOURS_A_DAY + 1):
        moment_ms = from_ms if not hours else from_ms - from_ms % _HOUR_MS + hours * _HOUR_MS
        if is_time_to_do(when, moment_ms):
            return moment_ms
    return from_ms
