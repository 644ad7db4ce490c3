"""Rate-limits warnings about a state that lasts: one when it begins, then one an interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

INTERVAL_SECONDS = 60.0


class LoggedOnce:
    """Remembers the last warning of each subject. Thread rule: one thread."""

    def __init__(self, interval_s: float = INTERVAL_SECONDS, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._interval_s, self._monotonic_s = interval_s, monotonic_s
        self._logged: dict[Hashable, tuple[str, float]] = {}

    def is_due(self, subject: Hashable, reason: str = "") -> bool:
        """Whether to log this warning now: it is new, has another reason, or was last logged an interval ago."""
        before, now_s = self._logged.get(subject), self._monotonic_s()
        if before is not None and before[0] == reason and now_s - before[1] < self._interval_s:
            return False
        self._logged[subject] = reason, now_s
        return True

    def is_over(self, subject: Hashable) -> bool:
        """Forget a subject whose state has ended. Returns whether a warning had been logged."""
        return self._logged.pop(subject, None) is not None
