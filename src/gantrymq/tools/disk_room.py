"""Refusing work at its beginning that certainly does not fit onto the disk.

A tool that fills the disk fails as well, and cleans up, but hours later. What certainly is written can be known: the
records that are whole, or the bodies of messages. To count them takes reading the log, so that is done only where the
disk has less room than the log is long. Holes of a log take no space and are not counted. A file system that compresses
may take more than it has free: nothing is refused there.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gantrymq.errors import NoRoomError
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from gantrymq.model.size import size_text
from gantrymq.tools.intact_records import IntactRecords
from gantrymq.tools.log_files import LogFile

_SMALLEST_RECORD_SIZE = 91


def require_room(fs: FileSystem, target: Path, most_bytes: int, least_bytes: Callable[[], int], advice: str) -> None:
    """Raise NoRoomError where what is written at ``target`` certainly does not fit there; nothing is written before.

    ``least_bytes()`` finds out how much that is at least. It is asked only where ``most_bytes``, a quick guess that is
    more, does not fit. ``advice`` says what to do.
    """
    free = fs.free_bytes(target)
    if free is None or free >= most_bytes:
        return
    if (needed := least_bytes()) > free:
        text = f"no room on the disk: at least {size_text(needed)} ({needed} bytes) would be written, of which "
        raise NoRoomError(target, needed, f"{text}{size_text(free)} fit; nothing was written; {advice}")


def log_bytes(files: list[LogFile]) -> int:
    """How long the files of a log are, holes and all."""
    return sum(file.size_bytes for file in files)


def record_bytes(fs: FileSystem, files: list[LogFile]) -> int:
    """The sum of the whole records."""
    records = IntactRecords(fs, files)
    for _ in records:
        pass
    return records.found.record_bytes


def most_unit_bytes(files: list[LogFile]) -> int:
    """What the queue units of a log cannot be more than."""
    return log_bytes(files) // _SMALLEST_RECORD_SIZE * UNIT_SIZE


def unit_bytes(fs: FileSystem, files: list[LogFile]) -> int:
    """What the queue units of the records take that enter a queue."""
    units = 0
    for batch in IntactRecords(fs, files, moves_records=False):
        kinds = batch.columns[codes.SYS_FLAG, : batch.count] & TRANSACTION_MASK
        units += int(np.isin(kinds, (TRANSACTION_NONE, TRANSACTION_COMMIT)).sum())
    return units * UNIT_SIZE
