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
from gantrymq.bench.races.growth import measure


@dataclass
class Session:
    """The races to run, how often, at which sizes growth is measured, and where stores are made."""

    races: Sequence[Race]
    rounds: int
    sizes_gib: tuple[int, ...]
    scratch: Path

    def run(self, out: Path, *, as_json: bool) -> list[Outcome]:
        """Run everything, print and keep the result: after each race, for who ends a long run early."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        described = machine.describe() | {"limits": machine.limits(self.scratch)}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("races", total=len(self.races) + len(self.sizes_gib))
            outcomes = []
            for race in self.races:
                outcomes.append(
                    run(race, self.rounds, self.scratch, lambda text: progress.update(task, description=text))
                )
                self._keep(out, described, outcomes, [])
                progress.advance(task)
            growth = measure(
                self.scratch, self.sizes_gib, lambda text: progress.update(task, description=text, advance=1)
            )
        whole = self._keep(out, described, outcomes, growth)
        self._plot(out, outcomes, growth)
        if as_json:
            print(whole.decode())
        else:
            self._print(outcomes, growth, described["limits"], out)
        return outcomes

    def _keep(
        self, out: Path, described: dict[str, Any], outcomes: Sequence[Outcome], growth: list[dict[str, Any]]
    ) -> bytes:
        whole = report.as_json(described, outcomes, growth)
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_bytes(whole)
        (out / "bench.md").write_text(report.markdown(outcomes))
        return whole

    def _plot(self, out: Path, outcomes: Sequence[Outcome], growth: list[dict[str, Any]]) -> None:
        try:
            if any(one.ratio for one in outcomes):
                report.save_plot(outcomes, out / "bench.svg")
            if growth:
                report.save_growth_plot(growth, out / "growth.svg")
        except ModuleNotFoundError as error:
            print(f"no plot without the module {error.name}: pip install 'gantrymq[demo]'", file=sys.stderr)

    def _print(
        self, outcomes: Sequence[Outcome], growth: list[dict[str, Any]], limits: dict[str, float], out: Path
    ) -> None:
        console = Console()
        if outcomes:
            console.print(report.race_table(outcomes))
        if growth:
            console.print(report.growth_table(growth))
        console.print("The hardware: " + ", ".join(f"{name} {value:g}" for name, value in limits.items()))
        plots = [name for name in ("bench.svg", "growth.svg") if (out / name).exists()]
        console.print(f"Kept in {out}: {', '.join(['bench.json', 'bench.md', *plots])}")
