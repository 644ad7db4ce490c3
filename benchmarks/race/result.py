"""The result of a run: written to disk after each race, printed and plotted at the end."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.race import report
from benchmarks.race.race import Outcome
from benchmarks.race.races.growth import Costs


@dataclass
class Result:
    """The outcomes and costs of a run.

    ``described`` is the machine (:func:`benchmarks.race.machine.describe`) and the options.
    """

    described: dict[str, Any]
    outcomes: list[Outcome] = field(default_factory=list)
    growth: list[Costs] = field(default_factory=list)

    def as_json(self) -> bytes:
        """The whole result with every sample, as JSON."""
        return report.as_json(self.described, self.outcomes, self.growth)

    def keep(self, out: Path) -> None:
        """Write the result to ``out`` as JSON and as Markdown."""
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_bytes(self.as_json())
        (out / "bench.md").write_text(report.markdown(self.described, self.outcomes, self.growth))

    def print(self) -> None:
        """Print the tables and the remarks."""
        console = Console()
        if self.outcomes:
            console.print(report.race_table(self.outcomes))
            for line in report.remarks(self.outcomes):
                console.print(line, highlight=False, markup=False)
        if self.growth:
            console.print(report.growth_table(self.growth))
        if self.described["oneSided"]:
            console.print(self.described["oneSided"], highlight=False, markup=False, soft_wrap=True)
        limits = ", ".join(f"{name} {value:g}" for name, value in self.described["limits"].items())
        console.print(f"The hardware: {limits}")

    def plot(self, out: Path) -> list[str]:
        """Write the plots and return the names of their files. Without altair one line on stderr names it."""
        plotted = []
        try:
            if any(one.ratio for one in self.outcomes):
                report.save_plot(self.outcomes, out / "bench.svg")
                plotted.append("bench.svg")
            if self.growth:
                report.save_growth_plot(self.growth, out / "growth.svg")
                plotted.append("growth.svg")
        except ImportError as error:
            print(f"no plot without the module {error.name}: `make setup` installs it into .venv", file=sys.stderr)
        return plotted
