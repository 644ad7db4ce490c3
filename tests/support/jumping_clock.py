"""A clock whose wall time is corrected while time passes as ever."""

from __future__ import annotations

import pytest

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOUR_MS, 2 * DAY_MS, -HOUR_MS, -2 * DAY_MS])


class JumpingClock:
    """A wall clock that is corrected, and a monotonic one that time alone moves."""

    def __init__(self) -> None:
        self.wall_ms, self.passed_ms = 1_700_000_000_000, 50_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.passed_ms / 1000

    def jump(self, by_ms: int) -> None:
        """Set the wall clock to another time."""
        self.wall_ms += by_ms

    def wait(self, ms: int) -> None:
        """Let time pass on both."""
        self.wall_ms, self.passed_ms = self.wall_ms + ms, self.passed_ms + ms
