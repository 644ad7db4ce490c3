"""Whether the oldest files of the commit log may be missing: queues lead in front of it, and retention cannot be why.

Retention removes the oldest files of a log, and leaves queue entries that lead into them. A directory of the log that
is not mounted, or was not given, looks the same, but for the time: retention takes what is older than fileReservedTime,
and what lay in front of the log's first record was stored before it, but hardly earlier. A full disk makes retention
take younger files, so this alone is no damage. Where a directory that the settings name holds no file, it is.

Thread rule: plain functions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import DiskError, MissingLogBeginError, StoreError
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, decode_entry
from gantrymq.format.record import Layout, read_layout
from gantrymq.fs.api import FileSystem
from gantrymq.store.offset_files import OffsetFile, offset_files
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue_listing import ListedQueue
from gantrymq.store.remedies import ACCEPT

_HOUR_MS = 3_600_000
_HEAD = struct.Struct(">i")
_LONG = struct.Struct(">q")


class MissingBegin(NamedTuple):
    """What says so. ``directory`` is one that the settings name and that holds no file; None where each holds one."""

    path: Path
    begin: int
    queue: Path
    hours: int
    directory: Path | None

    def problem(self, *, exists: bool) -> MissingLogBeginError:
        """Why the store is not opened for writing, where there is such a directory; ``exists``: it is there."""
        assert self.directory is not None, "else there is a note"
        state = "holds no file of the log" if exists else "does not exist"
        advice = f"is its disk mounted? {ACCEPT} opens the store without it, as with a new directory"
        return MissingLogBeginError(self.directory, f"{state}, and the log lacks its begin: {self._seen}", advice)

    def note(self) -> StoreError:
        """What people are told where the store is opened."""
        reason = f"is not there: {self._seen}; a full disk or somebody has removed the files, "
        return StoreError(self.path, f"{reason}or not all directories of the log are given (storePathCommitLog, -c)")

    @property
    def _seen(self) -> str:
        queue = f"{self.queue.parent.name}/{self.queue.name}"
        young = f"its first record is younger than fileReservedTime ({self.hours} hours)"
        return f"the log begins at {self.begin}, consume queue {queue} has entries in front of that, and {young}"


def missing_begin(
    fs: FileSystem,
    paths: StorePaths,
    files: Sequence[OffsetFile],
    queues: Iterable[ListedQueue],
    config: MessageStoreConfig,
    now_ms: int,
) -> MissingBegin | None:
    """What says that the log began in front of the first of ``files``, lately; None where nothing does."""
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
    empty = (one for one in paths.commit_logs if not offset_files(fs, [one]))
    return MissingBegin(path, first.offset, queue, hours, next(empty, None))


def _first_stored_ms(fs: FileSystem, path: Path) -> int | None:
    """When the first record of a file was stored; None where there is none, or it cannot be read."""
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
    """The directory of a queue whose first unit leads in front of ``begin``."""
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
        if 0 < unit.size_bytes != BLANK_UNIT_SIZE and 0 <= unit.phy_offset < begin:
            return directory
    return None
