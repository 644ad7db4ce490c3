"""The lock that one put at a time holds.

Whoever waits in a lock of Python's is woken when it is released, and has it before he has the interpreter's lock. The
holder of that one runs into the first at his next put, and from then on both take turns, put by put: two producers did
half of what one does where waking another processor takes 90 µs. Here a waiter looks again after a while, and meanwhile
the holder puts as long as the interpreter lets him.

Thread rule: for any threads; a thread that has it must not ask again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

_FIRST_WAIT_S, _LONGEST_WAIT_S = 100e-6, 5e-3  # the interpreter takes a thread's turn away after 5 ms
_TRIES = 10  # then he takes turns after all, so that nobody waits for ever


class PutLock:
    """A lock to be used as a context manager; where every call counts, ``acquire`` and ``release`` are Python's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acquire: Callable[[bool], bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release

    def __enter__(self) -> None:
        """Have the lock."""
        if not self._lock.acquire(blocking=False):
            self.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self._lock.release()

    def wait(self) -> None:
        """Have the lock, which another thread had a moment ago."""
        wait_s = _FIRST_WAIT_S
        for _ in range(_TRIES):
            time.sleep(wait_s)
            if self._lock.acquire(blocking=False):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._lock.acquire()
