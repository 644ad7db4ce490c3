"""Clocks as a parameter, so that a test can move the time.

Rule: only this module reads the operating system's clocks.
"""

import operator
import time
from typing import Protocol

_LATEST_MS = 253_000_000_000_000  # in the year 9987; calendars and names of index files end at 9999


class Clock(Protocol):
    """A source of time. Thread rule: any thread."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as RocketMQ stamps its messages."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back, for measuring durations."""
        ...


def monotonic_ms(clock: Clock) -> int:
    """Monotonic milliseconds: for timeouts, held requests and locks, never for a date."""
    return int(clock.monotonic_s() * 1000)


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()


class ManualClock:
    """A clock for tests that only :meth:`advance` moves. Thread rule: one thread moves it, any reads it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time that was set last."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """The same time in seconds."""
        return self._now_ms / 1000

    def advance(self, by_ms: int) -> None:
        """Move the clock forward by ``by_ms`` milliseconds."""
        self._now_ms += by_ms


class ShiftedClock:
    """The system's clock plus an offset that a test sets. Thread rule: any thread."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """The system's time plus the offset."""
        return self._system.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        """The system's; the offset does not count, so nothing appears to take longer."""
        return self._system.monotonic_s()

    def advance(self, by_ms: int) -> None:
        """Move the clock forward by ``by_ms`` milliseconds, or back.

        Raises TypeError unless it is an integer, ValueError if the time would be before 1970 or after 9986.
        """
        self._ahead_ms = self._ahead_after(by_ms)

    def _ahead_after(self, by_ms: int) -> int:
        """The offset after a move. Raises as :meth:`advance`."""
        ahead_ms = self._ahead_ms + operator.index(by_ms)
        if not 0 <= self._system.now_ms() + ahead_ms <= _LATEST_MS:
            raise ValueError(f"{by_ms} ms would lead out of the years 1970 to 9986")
        return ahead_ms
