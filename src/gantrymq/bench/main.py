"""What ``gantrymq bench`` calls: who races, what is raced, and the run itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gantrymq.bench import accepted
from gantrymq.bench.process import JavaSide
from gantrymq.bench.programme import chosen
from gantrymq.bench.race import Outcome, Race
from gantrymq.bench.session import Session
from gantrymq.bench.track import Track


@dataclass(frozen=True)
class Run:
    """How races are run: ``rounds`` each, growth at ``sizes_gib``, stores below ``scratch``, results into ``out``."""

    track: Track
    rounds: int
    sizes_gib: Sequence[int]
    scratch: Path | None
    out: Path
    as_json: bool


def find_java(jar: Path | None) -> JavaSide | None:
    """The real RocketMQ, from the jar that is named or the checkout's; None where it is not here."""
    return JavaSide.find(jar)


def missing_java(jar: Path | None) -> str:
    """Why :func:`find_java` finds nothing, and what helps, as one line."""
    return JavaSide.missing(jar)


def track(java: JavaSide | None, scale: float, one_sided: str) -> Track:
    """What every race is built with; ``one_sided`` says why RocketMQ is left out, where it is."""
    return Track(java, scale, one_sided)


def programme(on: Track, words: tuple[str, ...]) -> list[Race]:
    """The races whose name holds one of ``words``; all where there is none."""
    return chosen(on, words)


def try_places(out: Path, accept: Path | None) -> None:
    """Make ``out``, and see that what is kept at the end can be written: no race is to be run in vain.

    Raises OSError naming what cannot.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in (out / "bench.json", accept):
        if path is None:
            continue
        was_there = path.exists()
        path.open("ab").close()
        if not was_there:
            path.unlink()


def race(races: Sequence[Race], run: Run) -> list[Outcome]:
    """Run them with stores in a directory of their own within ``run.scratch``."""
    with tempfile.TemporaryDirectory(dir=run.scratch, prefix="gantrymq-bench-") as folder:
        return Session(run.track, races, run.rounds, run.sizes_gib, Path(folder)).run(run.out, as_json=run.as_json)


def ratios(path: Path) -> dict[str, float]:
    """Those accepted; raises AcceptedError."""
    return accepted.load(path)


def compare(
    races: Sequence[Race], outcomes: Sequence[Outcome], ratios: Mapping[str, float], run: Run
) -> list[accepted.Change]:
    """Print what has become of the ratios; returns what collapsed, twice.

    What collapsed is raced a second time before it counts: another program may have had the machine.
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


def accept(outcomes: Sequence[Outcome], path: Path) -> None:
    """Keep the ratios as those to compare with."""
    accepted.save(path, outcomes)
