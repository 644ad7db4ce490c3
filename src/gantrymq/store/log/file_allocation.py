"""Commit log files made before they are needed, and their write buffers (transientStorePoolEnable).

With write buffers a message is acknowledged when it is in the buffer. CommitRealTimeService writes the buffers to
their files, and only then the message can be read. A process that ends loses what was not committed: that is the
meaning of the setting.

Thread rule: buffers are borrowed and given back by any thread.

Source: AllocateMappedFileService, TransientStorePool, and MappedFile.init with a TransientStorePool.
"""

from __future__ import annotations

import ctypes
import mmap
import threading

import numpy as np

from gantrymq.errors import GantrymqError
from gantrymq.fs.api import Bytes
from gantrymq.store.log.commit_log import CommitLog
from gantrymq.store.log.mapped_file import MappedFile


class TransientStorePool:
    """``count`` buffers of ``size`` bytes, locked in memory where the system allows it."""

    def __init__(self, count: int, size: int) -> None:
        self._guard = threading.Lock()
        self._free = [_locked_buffer(size) for _ in range(count)]

    @property
    def available(self) -> int:
        """How many buffers nobody has."""
        return len(self._free)

    def borrow(self) -> Bytes | None:
        """A buffer, or None where all are lent: the caller then writes to the mapping."""
        with self._guard:
            return self._free.pop() if self._free else None

    def give_back(self, buffer: Bytes) -> None:
        """Return a buffer; what is in it is of no use any more."""
        with self._guard:
            self._free.append(buffer)


def _locked_buffer(size: int) -> Bytes:
    buffer = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    # A refusal (RLIMIT_MEMLOCK) costs speed under memory pressure, nothing else: RocketMQ ignores it too.
    ctypes.CDLL(None).mlock(ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(size))
    return buffer


_UNITS_BY_RECORDS = 4  # a record is more than four times as long as its unit
_MOST_LEFT_BYTES = 64 << 20


class NoBufferError(GantrymqError):
    """All buffers of the TransientStorePool are lent, and fastFailIfNoBufferInStorePool forbids to do without."""


class AllocateMappedFileService:
    """Keeps one file ahead of the log: whoever rolls over finds the next file there, its space taken.

    Not before something was put: many a store is opened to be recovered, or looked at, and closed.
    """

    name = "AllocateMappedFileService"
    interval_ms = 100

    def __init__(self, log: CommitLog, *, warm: bool) -> None:
        self._log = log
        self._warm = warm
        self._began_at = log.wrote_offset

    def step(self, now_ms: int) -> bool:
        """Make the next file if it is not there."""
        if self._log.wrote_offset > self._began_at:
            self._log.queue.prepare_next(warm=self._warm)
        return False

    def drain(self) -> None:
        """A file that was made and not used goes again."""
        self._log.queue.drop_ahead()


def lend_buffer(pool: TransientStorePool, file: MappedFile, *, fail_fast: bool) -> None:
    """Give ``file`` a write buffer; without one it writes to its mapping, or raises NoBufferError (``fail_fast``)."""
    buffer = pool.borrow()
    if buffer is not None:
        file.write_into(buffer, pool.give_back)
    elif fail_fast:
        raise NoBufferError("no buffer is left in the TransientStorePool")


def left_for_queues_bytes(dispatch_behind_bytes: int, file_size: int) -> int:
    """What a new log file must leave of the disk: a record that is in the log must get into its queue too."""
    return min((dispatch_behind_bytes + 2 * file_size) // _UNITS_BY_RECORDS, _MOST_LEFT_BYTES)
