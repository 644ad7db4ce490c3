"""One run of the races: progress on stderr, results printed and saved."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.race import machine
from benchmarks.race.race import Outcome, Race, run
from benchmarks.race.races.growth import measure
from benchmarks.race.result import Result
from benchmarks.race.track import Track

_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass
class Session:
    """The races to run, how often, at which sizes growth is measured, and where stores are made."""

    track: Track
    races: Sequence[Race]
    rounds: int
    sizes_gib: Sequence[int]
    scratch: Path

    def run(self, out: Path, *, as_json: bool) -> list[Outcome]:
        """Run everything and print the result. Write it after each race, so that a long run can be stopped early."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        result = self._described()
        try:
            for line in self._raced(result):
                result.keep(out)
                if not sys.stderr.isatty():  # without a terminal there is no bar
                    print(line, file=sys.stderr, flush=True)
        except (KeyboardInterrupt, SystemExit):
            if result.outcomes:
                print(f"what was raced until now is kept in {out}", file=sys.stderr)
            raise
        if as_json:
            print(result.as_json().decode())
        else:
            result.print()
        print(f"Kept in {out}: {', '.join(['bench.json', 'bench.md', *result.plot(out)])}", file=sys.stderr)
        return result.outcomes

    def again(self) -> list[Outcome]:
        """Run the races once more without printing or writing a result."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        return [outcome for race in self.races for outcome in run(race, self.rounds, self.scratch, lambda text: None)]

    def _raced(self, result: Result) -> Iterator[str]:
        """Run race after race into ``result`` and yield a line about each."""
        total = len(self.races) + len(self.sizes_gib)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("races", total=total)

            def say(text: str) -> None:
                progress.update(task, description=text)

            for done, race in enumerate(self.races, 1):
                found = run(race, self.rounds, self.scratch, say)
                result.outcomes += found
                progress.advance(task)
                yield f"{done} of {total}: {'; '.join(one.summary for one in found)}"
            for done, costs in enumerate(measure(self.track, self.scratch, self.sizes_gib, say), len(self.races) + 1):
                result.growth.append(costs)
                progress.advance(task)
                yield f"{done} of {total}: {costs['size_gib']:g} GiB opens in {costs['open_ms']:,.0f} ms"

    def _described(self) -> Result:
        java = self.track.java
        described = machine.describe(self.scratch) | {
            "rocketmq": java.version if java else "",
            "oneSided": self.track.one_sided,
            "scale": self.track.scale,
            "rounds": self.rounds,
            "limits": machine.limits(self.scratch),
        }
        if described["fileSystem"] in _IN_MEMORY:
            print(f"{self.scratch} is memory: no figure here says anything of a disk (--scratch)", file=sys.stderr)
        return Result(described)
