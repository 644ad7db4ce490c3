"""The newest value of a function that is too expensive for a page view. A thread computes it when its key changes.

Thread rule: any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from gantrymq.clock import Clock

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """The latest value of ``compute()``, which is computed again when it is too old."""

    def __init__(self, compute: Callable[[], Value], clock: Clock) -> None:
        self._compute, self._clock = compute, clock
        self._began_s = 0.0
        self._changed = threading.Condition()
        self._key: Hashable = None
        self._value: Value | None = None
        self._error: Exception | None = None
        self._is_at_work = False

    def get(self, key: Hashable, wait_s: float) -> Value | None:
        """The newest value. If ``key`` differs from that of the newest value, a new one is computed.

        A new value is awaited until its computation takes ``wait_s``; then an older one is returned, or None before the
        first one. Raises the error of the computation.
        """
        with self._changed:
            if key != self._key and not self._is_at_work:
                self._is_at_work, self._began_s = True, self._clock.monotonic_s()
                threading.Thread(target=self._run, args=(key,), name="console-latest", daemon=True).start()
            waited_s = self._clock.monotonic_s() - self._began_s
            self._changed.wait_for(lambda: not self._is_at_work, max(wait_s - waited_s, 0.0))
            if self._error is not None:
                raise self._error
            return self._value

    def _run(self, key: Hashable) -> None:
        value: Value | None = None
        error: Exception | None = None
        try:
            value = self._compute()
        except Exception as raised:  # the page shows it
            error = raised
        with self._changed:
            self._key, self._value, self._error, self._is_at_work = key, value, error, False
            self._changed.notify_all()
