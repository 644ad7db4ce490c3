"""Creates commit log files before they are needed, and lends write buffers (transientStorePoolEnable).

With write buffers a message is acknowledged once it is in the buffer. CommitRealTimeService writes the buffers to their
files, and only then can the message be read. If the process ends, uncommitted messages are lost; this is the meaning of
the setting.

Thread rule: any thread may borrow and return buffers.

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

_UNITS_BY_RECORDS = 4  # a record is more than four times as long as its unit
_MAX_LEFT_BYTES = 64 << 20


class TransientStorePool:
    """``count`` buffers of ``size`` bytes each, locked in memory if the system allows it."""

    def __init__(self, count: int, size: int) -> None:
        self._guard = threading.Lock()
        self._free = [_locked_buffer(size) for _ in range(count)]

    @property
    def available(self) -> int:
        """The number of free buffers."""
        return len(self._free)

    def borrow(self) -> Bytes | None:
        """Return a buffer, or None if all are lent; the file is then written through its mapping."""
        with self._guard:
            return self._free.pop() if self._free else None

    def give_back(self, buffer: Bytes) -> None:
        """Return a buffer to the pool. Its content may be overwritten."""
        with self._guard:
            self._free.append(buffer)


def _locked_buffer(size: int) -> Bytes:
    buffer = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    # A failure (RLIMIT_MEMLOCK) only costs speed under memory pressure. RocketMQ ignores it too.
    ctypes.CDLL(None).mlock(ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(size))
    return buffer


class NoBufferError(GantrymqError):
    """All buffers of the TransientStorePool are lent, and fastFailIfNoBufferInStorePool is set."""


class AllocateMappedFileService:
    """Keeps one file ahead of the log, with its space reserved, so that rolling over does not wait for it.

    It begins with the first put: many stores are opened only for recovery or for reading, and need no new file.
    """

    name = "AllocateMappedFileService"
    interval_ms = 100

    def __init__(self, log: CommitLog, *, warm: bool) -> None:
        self._log = log
        self._warm = warm
        self._began_at = log.wrote_offset

    def step(self, now_ms: int) -> bool:
        """Create the next file if it does not exist."""
        if self._log.wrote_offset > self._began_at:
            self._log.queue.prepare_next(warm=self._warm)
        return False

    def drain(self) -> None:
        """Remove the file that was created and not used."""
        self._log.queue.drop_ahead()


def lend_buffer(pool: TransientStorePool, file: MappedFile, *, fail_fast: bool) -> None:
    """Give ``file`` a write buffer.

    Without a free one it writes to its mapping; with ``fail_fast`` raise NoBufferError.
    """
    buffer = pool.borrow()
    if buffer is not None:
        file.write_into(buffer, pool.give_back)
    elif fail_fast:
        raise NoBufferError("no buffer is left in the TransientStorePool")


def left_for_queues_bytes(dispatch_behind_bytes: int, file_size: int) -> int:
    """Return the disk space (bytes) that a new log file must leave free for the consume queue units of its records.

    A record in the log must also get its unit.
    """
    return min((dispatch_behind_bytes + 2 * file_size) // _UNITS_BY_RECORDS, _MAX_LEFT_BYTES)
