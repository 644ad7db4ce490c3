"""A run of races with its results, and the comparison with the accepted ratios."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.race import accepted
from benchmarks.race.race import Outcome, Race
from benchmarks.race.session import Session
from benchmarks.race.track import Track


@dataclass(frozen=True)
class Run:
    """How races are run: ``rounds`` each, growth at ``sizes_gib``, stores below ``scratch``, results into ``out``."""

    track: Track
    rounds: int
    sizes_gib: Sequence[int]
    scratch: Path | None
    out: Path
    as_json: bool


def try_places(out: Path, accept: Path | None) -> None:
    """Create ``out`` and check that the results can be written, so that no race is run in vain.

    Raises OSError with the path that cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in (out / "bench.json", accept):
        if path is None:
            continue
        was_there = path.exists()
        path.open("ab").close()
        if not was_there:
            path.unlink()


def run_races(races: Sequence[Race], run: Run) -> list[Outcome]:
    """Run the races, with stores in a new directory within ``run.scratch``."""
    with tempfile.TemporaryDirectory(dir=run.scratch, prefix="gantrymq-bench-") as folder:
        return Session(run.track, races, run.rounds, run.sizes_gib, Path(folder)).run(run.out, as_json=run.as_json)


def compare(
    races: Sequence[Race], outcomes: Sequence[Outcome], ratios: Mapping[str, float], run: Run
) -> list[accepted.Change]:
    """Print the changes of the ratios and return the collapsed ones.

    A race whose ratio collapsed is run a second time before it counts: another program may have used the machine.
    """
    found = accepted.changes(ratios, outcomes)
    doubtful = {one.name for one in found if one.is_collapse}
    if doubtful:
        suspects = [one for one in races if doubtful & {row.name for row in one.rows}]
        with tempfile.TemporaryDirectory(dir=run.scratch, prefix="gantrymq-bench-") as folder:
            again = Session(run.track, suspects, run.rounds, (), Path(folder)).again()
        found = [one for one in found if not one.is_collapse]
        found += [one for one in accepted.changes(ratios, again) if one.name in doubtful]
    Console(stderr=run.as_json).print(accepted.table(found))
    return [one for one in found if one.is_collapse]
