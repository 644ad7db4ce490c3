"""One run of the track: every race, progress on stderr, results printed and kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gantrymq.bench import machine, report
from gantrymq.bench.race import Outcome, Race, run
from gantrymq.bench.races.growth import Costs, measure
from gantrymq.bench.track import Track


@dataclass
class Session:
    """The races to run, how often, at which sizes growth is measured, and where stores are made."""

    track: Track
    races: Sequence[Race]
    rounds: int
    sizes_gib: Sequence[int]
    scratch: Path

    def run(self, out: Path, *, as_json: bool) -> list[Outcome]:
        """Run everything, print and keep the result: after each race, for who ends a long run early."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        described = self._described()
        outcomes: list[Outcome] = []
        growth: list[Costs] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        try:
            with Progress(*columns, console=Console(stderr=True)) as progress:
                task = progress.add_task("races", total=len(self.races) + len(self.sizes_gib))
                say = lambda text: progress.update(task, description=text)  # noqa: E731
                for race in self.races:
                    outcomes += run(race, self.rounds, self.scratch, say)
                    keep(out, described, outcomes, growth)
                    progress.advance(task)
                for costs in measure(self.track, self.scratch, self.sizes_gib, say):
                    growth.append(costs)
                    keep(out, described, outcomes, growth)
                    progress.advance(task)
        except KeyboardInterrupt:
            if outcomes or growth:
                print(f"what was raced until now is kept in {out}", file=sys.stderr)
            raise
        whole = keep(out, described, outcomes, growth)
        if as_json:
            print(whole.decode())
        else:
            _print(outcomes, growth, described["limits"])
        plots = _plot(out, outcomes, growth)
        print(f"Kept in {out}: {', '.join(['bench.json', 'bench.md', *plots])}", file=sys.stderr)
        return outcomes

    def again(self) -> list[Outcome]:
        """Run the races once more; nothing is printed or kept."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        return [outcome for race in self.races for outcome in run(race, self.rounds, self.scratch, lambda text: None)]

    def _described(self) -> dict[str, Any]:
        java = self.track.java
        return machine.describe(self.scratch) | {
            "rocketmq": java.version if java else "",
            "scale": self.track.scale,
            "rounds": self.rounds,
            "limits": machine.limits(self.scratch),
        }


def keep(out: Path, described: dict[str, Any], outcomes: Sequence[Outcome], growth: Sequence[Costs]) -> bytes:
    """Write the result, as JSON and as Markdown; returns the former."""
    whole = report.as_json(described, outcomes, growth)
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_bytes(whole)
    (out / "bench.md").write_text(report.markdown(described, outcomes, growth))
    return whole


def _plot(out: Path, outcomes: Sequence[Outcome], growth: Sequence[Costs]) -> list[str]:
    """The names of what was plotted."""
    plotted = []
    try:
        if any(one.ratio for one in outcomes):
            report.save_plot(outcomes, out / "bench.svg")
            plotted.append("bench.svg")
        if growth:
            report.save_growth_plot(growth, out / "growth.svg")
            plotted.append("growth.svg")
    except ImportError as error:
        print(f"no plot without the module {error.name}: pip install 'gantrymq[demo]'", file=sys.stderr)
    return plotted


def _print(outcomes: Sequence[Outcome], growth: Sequence[Costs], limits: dict[str, float]) -> None:
    console = Console()
    if outcomes:
        console.print(report.race_table(outcomes))
        for line in report.remarks(outcomes):
            console.print(line, highlight=False, markup=False)
    if growth:
        console.print(report.growth_table(growth))
    console.print("The hardware: " + ", ".join(f"{name} {value:g}" for name, value in limits.items()))
