"""Which errors of a repeated landing pass, and for how long they are waited out.

A broker, a name server or a catalog may restart. A landing that repeats itself tries again for a quarter of an hour. An
error that a repetition cannot change ends it at once.

Thread rule: one thread.
"""

from __future__ import annotations

from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import (
    ConfigError,
    DiskFullError,
    GantrymqError,
    MQBrokerError,
    NoRouteError,
    RemotingError,
    StoreError,
)
from gantrymq.tables.errors import AnotherLanderError, ForeignTableError, TableError

WAIT_MS = 15 * 60 * 1000
_FINAL = (ConfigError, DiskFullError, AnotherLanderError, ForeignTableError)
_PASSING = (RemotingError, NoRouteError, MQBrokerError, StoreError, TableError, OSError)


class Patience:
    """Counts how long passes have failed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._failing_since_ms: int | None = None

    def succeeded(self) -> None:
        """Note a pass without an error."""
        self._failing_since_ms = None

    def allows(self, error: Exception) -> bool:
        """Whether to try again after ``error``."""
        if isinstance(error, _FINAL) or not isinstance(error, (GantrymqError, OSError)):
            return False
        if not isinstance(error, _PASSING):
            return False
        now_ms = self._clock.now_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        return now_ms - self._failing_since_ms < WAIT_MS
