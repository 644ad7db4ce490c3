"""The audit log of users and policies: what was refused, in RocketMQ's words, at most once a minute for the same.

A client that repeats what it may not do, or guesses passwords, would otherwise fill the disk. The first refusal is
logged at once; repetitions are counted and logged together.

Source: DefaultAuthenticationProvider.doAuditLog, DefaultAuthorizationProvider.doAuditLog.
"""

from __future__ import annotations

from gantrymq.clock import Clock
from gantrymq.logs import get_logger

LOG_INTERVAL_S = 60.0
MAX_DIFFERENT = 1_024  # texts that are counted one by one
_SHOWN = 255
_OTHERS = "[OTHERS] more different requests were refused than are counted one by one"

log = get_logger("gantrymq.audit")


class RefusalLog:
    """Thread rule: the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: dict[str, tuple[float, int]] = {}  # when it was logged, and how often it came since

    def note(self, text: str) -> None:
        """Log a refusal, or count it if the same was logged within the last minute."""
        now_s = self._clock.monotonic_s()
        if text not in self._repeated and len(self._repeated) >= MAX_DIFFERENT:
            text = _OTHERS
        logged_s, count = self._repeated.get(text, (now_s - LOG_INTERVAL_S, 0))
        self._repeated[text] = logged_s, count + 1
        if now_s - logged_s >= LOG_INTERVAL_S:
            self._log(text, now_s)

    def flush(self) -> None:
        """Log the counts of a minute. Call it every second or so."""
        now_s = self._clock.monotonic_s()
        for text in [text for text, (at_s, _) in self._repeated.items() if now_s - at_s >= LOG_INTERVAL_S]:
            if self._repeated[text][1]:
                self._log(text, now_s)
            else:
                del self._repeated[text]

    def _log(self, text: str, now_s: float) -> None:
        log.warning(text, times=self._repeated[text][1])
        self._repeated[text] = now_s, 0


def shown(name: str) -> str:
    """A name that a stranger sent, as one short line."""
    name = name[:_SHOWN]
    return name if name.isprintable() else ascii(name)
