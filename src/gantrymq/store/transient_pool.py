"""Buffers that take the writes of commit log files in place of their mappings (transientStorePoolEnable).

A message is acknowledged when it is in the buffer; CommitRealTimeService writes buffers to their files, and only then
can it be read. The process's end loses what was not committed: that is what this setting means.

Thread rule: borrow and give back from any thread.

Source: TransientStorePool.
"""

from __future__ import annotations

import ctypes
import mmap
import threading

import numpy as np

from gantrymq.fs.api import Bytes


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
