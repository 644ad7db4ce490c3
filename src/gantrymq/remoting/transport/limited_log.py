"""Rate-limits warnings that clients can cause: a few lines for each event in an interval, then a count of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantrymq.logs import get_logger

LINES = 10
INTERVAL_S = 10.0
_LONGEST_TEXT = 300

log = get_logger("gantrymq.remoting")


class LimitedLog:
    """Writes at most ``LINES`` warnings for each event in ``INTERVAL_S``. Long texts are cut.

    Thread rule: one thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._events: dict[str, tuple[float, int]] = {}  # begin of the interval, and its number of lines

    def warning(self, event: str, **fields: Any) -> None:
        """Write a warning, or count it if the interval is full. The next interval begins with that count."""
        now = self._now()
        began, lines = self._events.get(event, (now, 0))
        if now - began >= INTERVAL_S:
            if lines > LINES:
                log.warning(event, left_out=lines - LINES, seconds=round(now - began))
            began, lines = now, 0
        self._events[event] = began, lines + 1
        if lines < LINES:
            log.warning(event, **{name: _cut(value) for name, value in fields.items()})


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT:
        return value
    return f"{value[:_LONGEST_TEXT]}… ({len(value)} characters)"
