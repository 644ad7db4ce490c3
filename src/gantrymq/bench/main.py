"""What ``gantrymq bench`` calls: who races, what is raced, and the run itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
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

    rounds: int
    sizes_gib: tuple[int, ...]
    scratch: Path | None
    out: Path
    as_json: bool


def find_java(jar: Path | None) -> JavaSide | None:
    """The real RocketMQ, from the jar that is named or the checkout's; None where it is not here."""
    return JavaSide.find(jar)


def programme(java: JavaSide | None, scale: float, words: tuple[str, ...]) -> list[Race]:
    """The races whose name holds one of ``words``; all where there is none."""
    return chosen(Track(java, scale), words)


def race(races: Sequence[Race], run: Run) -> list[Outcome]:
    """Run them with stores in a directory of their own within ``run.scratch``."""
    with tempfile.TemporaryDirectory(dir=run.scratch, prefix="gantrymq-bench-") as folder:
        return Session(races, run.rounds, run.sizes_gib, Path(folder)).run(run.out, as_json=run.as_json)


def compare(races: Sequence[Race], outcomes: Sequence[Outcome], against: Path, run: Run) -> list[accepted.Change]:
    """Print what has become of the ratios in ``against``; returns what collapsed, twice. Raises AcceptedError.

    What collapsed is raced a second time before it counts: another program may have had the machine.
    """
    ratios = accepted.load(against)
    found = accepted.changes(ratios, outcomes)
    doubtful = {one.name for one in found if one.is_collapse}
    if doubtful:
        again = race([one for one in races if one.name in doubtful], run)
        found = [one for one in found if not one.is_collapse] + accepted.changes(ratios, again)
    Console(stderr=run.as_json).print(accepted.table(found))
    return [one for one in found if one.is_collapse]


def accept(outcomes: Sequence[Outcome], path: Path) -> None:
    """Keep the ratios as those to compare with."""
    accepted.save(path, outcomes)
