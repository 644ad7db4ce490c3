"""One race, and how it is run: both sides in turn, round after round."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

JAVA = "RocketMQ"
OURS = "gantrymq"

# Does the work in a directory of its own (what ``prepare`` made is there) and says how much it did a second, or took.
Side = Callable[[Path], float]


@dataclass(frozen=True)
class Race:
    """One piece of work.

    ``unit`` is that of what a side returns; with ``less_is_better`` it is a time or a size. ``goal`` is the ratio to
    reach, ours over theirs (theirs over ours where less is better); None where there is none. ``prepare`` makes what
    the sides need, once, in a directory that they must not change. ``standing`` is what runs beside them in that
    directory from the first round to the last: servers.
    """

    name: str
    unit: str
    sides: Mapping[str, Side]
    goal: float | None = None
    less_is_better: bool = False
    prepare: Callable[[Path], None] = lambda folder: None
    note: str = ""
    standing: Callable[[Path], AbstractContextManager[object]] = nullcontext


@dataclass
class Outcome:
    """What the sides of a race reached, round by round; ``error`` where the race could not be run to its end."""

    name: str
    unit: str
    goal: float | None
    less_is_better: bool
    note: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    def median(self, side: str) -> float | None:
        """The median of a side; None where it did not run."""
        found = self.samples.get(side)
        return statistics.median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; None without both sides."""
        java, ours = self.median(JAVA), self.median(OURS)
        if not java or not ours:
            return None
        return java / ours if self.less_is_better else ours / java


def run(race: Race, rounds: int, scratch: Path, report: Callable[[str], None]) -> Outcome:
    """Run all sides in turn; ``report`` is told what runs now. What was made in ``scratch`` is removed again."""
    outcome = Outcome(race.name, race.unit, race.goal, race.less_is_better, race.note)
    folder = scratch / race.name.replace(" ", "-").replace(",", "")
    try:
        folder.mkdir(parents=True)
        report(f"{race.name}: preparing")
        race.prepare(folder)
        with race.standing(folder):
            for number in range(rounds):
                for name, side in race.sides.items():
                    report(f"{race.name}: {name}, round {number + 1} of {rounds}")
                    outcome.samples.setdefault(name, []).append(side(folder))
    except (OSError, RuntimeError) as error:
        outcome.error = " ".join(str(error).split())[:300]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome
