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
from gantrymq.store.record_batch import RecordBatch
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.log_reader import LogFileReader

_LOOK_BYTES = 8 << 20
_HOUR_MS = 3_600_000


def is_younger_than_retention(
    fs: FileSystem, files: Sequence[LogFile], config: MessageStoreConfig, clock: Clock
) -> bool:
    """Whether the first record that is left is so young that no time can have expired what was in front of it."""
    for file in files:
        try:
            for event in LogFileReader(fs, replace(file, size_bytes=min(file.size_bytes, _LOOK_BYTES))):
                if isinstance(event, RecordBatch):
                    stored_ms = int(event.columns[codes.STORE_TIMESTAMP, 0])
                    return clock.now_ms() - stored_ms < config.file_reserved_time_hours * _HOUR_MS
        except FileNotFoundError:
            continue
    return False
