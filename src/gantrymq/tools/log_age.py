"""Whether retention can have removed what is missing in front of a log.

Retention deletes a file when it is older than fileReservedTime. What lay in front of the first record that is left was
stored before it, but hardly earlier.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gantrymq.clock import Clock
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.log_reader import LogFileReader

_LOOK_BYTES = 64 << 10
_HOUR_MS = 3_600_000


def is_younger_than_retention(
    fs: FileSystem, files: Sequence[LogFile], config: MessageStoreConfig, clock: Clock
) -> bool:
    """Whether the first record that is left is so young that no time can have expired what was in front of it."""
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
