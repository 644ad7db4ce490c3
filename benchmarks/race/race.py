"""One race, and how it is run: both sides in turn, round after round."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

JAVA = "RocketMQ"
OURS = "gantrymq"

# Does the work in a directory that has the files of ``prepare``. Returns its figures by name.
Side = Callable[[Path], Mapping[str, float]]


@dataclass(frozen=True)
class Row:
    """One figure of a race.

    ``measure`` is its name in the result of a side, ``unit`` its unit. With ``less_is_better`` it is a time or a size.
    ``goal`` is the ratio to reach, ours to theirs (theirs to ours if less is better), or None. ``least_share`` of an
    accepted ratio has to be left: CPU time varies less than the time of a busy machine, so its rows may ask for more.
    """

    name: str
    measure: str
    unit: str
    goal: float | None = None
    less_is_better: bool = False
    note: str = ""
    least_share: float = 0.5


@dataclass(frozen=True)
class Race:
    """One piece of work, with ``rows`` as its figures.

    Results under the names in ``agree`` must be equal for both sides, which shows that they did the same work.
    ``prepare`` makes the input once, in a directory that the sides must not change. ``standing`` is a context for
    servers that run in that directory from the first round to the last.
    """

    rows: Sequence[Row]
    sides: Mapping[str, Side]
    agree: Sequence[str] = ()
    prepare: Callable[[Path], None] = lambda folder: None
    standing: Callable[[Path], AbstractContextManager[object]] = nullcontext

    @property
    def name(self) -> str:
        """The name of the first figure."""
        return self.rows[0].name


@dataclass
class Outcome:
    """The samples of both sides for one figure, round by round; ``error`` if the race failed."""

    row: Row
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    @property
    def name(self) -> str:
        """The name of the figure."""
        return self.row.name

    def median(self, side: str) -> float | None:
        """The median of a side; None if it did not run."""
        found = self.samples.get(side)
        return statistics.median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """How many times better our side is; None without both sides or if the race failed."""
        java, ours = self.median(JAVA), self.median(OURS)
        if not java or not ours or self.error:
            return None
        return java / ours if self.row.less_is_better else ours / java

    @property
    def summary(self) -> str:
        """One line: the medians and the ratio, or the error."""
        if self.error:
            return f"{self.name} failed: {self.error}"
        medians = " to ".join(f"{self.median(side):,.0f}" for side in self.samples)
        return f"{self.name}: {medians} {self.row.unit}" + (f" ({self.ratio:.2f})" if self.ratio else "")


class DisagreementError(RuntimeError):
    """The sides did not do the same work."""


def run(race: Race, rounds: int, scratch: Path, report: Callable[[str], None]) -> list[Outcome]:
    """Run all sides in turn and return an outcome for each row; ``report`` gets a line before each step.

    An error ends this race only. The files in ``scratch`` are removed.
    """
    outcomes = [Outcome(row) for row in race.rows]
    folder = scratch / race.name.replace(" ", "-").replace(",", "")
    try:
        folder.mkdir(parents=True)
        report(f"{race.name}: preparing")
        race.prepare(folder)
        with race.standing(folder):
            for number in range(1, rounds + 1):
                _round(race, folder, outcomes, f"round {number} of {rounds}", report)
    except Exception as error:
        for outcome in outcomes:
            outcome.error = " ".join(str(error).split()) or type(error).__name__
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def _round(race: Race, folder: Path, outcomes: Sequence[Outcome], which: str, report: Callable[[str], None]) -> None:
    done: dict[str, list[float]] = {}
    for name, side in race.sides.items():
        report(f"{race.name}: {name}, {which}")
        figures = side(folder)
        done[name] = [figures[measure] for measure in race.agree]
        for outcome in outcomes:
            outcome.samples.setdefault(name, []).append(figures[outcome.row.measure])
    if any(one != done[OURS] for one in done.values()):
        raise DisagreementError(f"the sides did not do the same: {', '.join(race.agree)} are {done}")
