"""Time as the store saw it: only the seconds in which it was written to or recovered.

In between a Python process starts, or everything is read back to be compared; drawn to scale, a demo of seconds would
show little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.storing import Episode

WRITING = "writing"
RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Work without a break, in seconds of the monotonic clock."""

    what: str
    begin_s: float
    end_s: float


class WorkTime:
    """Puts the moments of ``stretches``, which are in order and do not overlap, one behind the other."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = list(stretches)

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> WorkTime:
        """Each writer from its first acknowledgement on, and each recovery."""
        stretches = []
        for episode in episodes:
            life = episode.life
            if life.heard:
                stretches.append(Stretch(WRITING, life.heard[0][0], life.killed_s or life.heard[-1][0]))
            if episode.recovered is not None:
                stretches.append(Stretch(RECOVERING, episode.recovered.started_s, episode.recovered.ended_s))
        return cls(stretches)

    def at(self, moment_s: float) -> float:
        """How many seconds of work lie in front of a moment."""
        return sum(min(one.end_s, max(moment_s, one.begin_s)) - one.begin_s for one in self.stretches)

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(one.end_s - one.begin_s for one in self.stretches)
