"""Many mutants, in several processes; ``make fuzz`` runs it.

    python tests/fuzz/campaign.py --count 100000 --seed 1

Mutants are numbered from seed * 10^9 on and tried in chunks. A chunk that is done is written down in out/fuzz, so the
same command goes on where it was interrupted, and a larger count goes on behind a smaller one. What goes wrong is
printed with the command that replays it, and the exit code is then 1. A process that hangs or dies is replaced.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from limits import within_limits
from uses import try_out

A_SEED = 10**9
A_CHUNK = 100
MAX_ADDRESS_SPACE = 4 << 30
MAX_LINES = 20
WARMING_UP = 30
FORK = multiprocessing.get_context("fork")  # what was loaded before is there in every process
STATE = Path("out/fuzz")


@dataclass
class Chunk:
    """What came of mutants ``first`` and the 99 behind it: outcomes, and a text for each that went wrong."""

    first: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))


def try_chunk(first: int, directory: Path) -> Chunk:
    chunk = Chunk(first)
    for mutant in range(first, first + A_CHUNK):
        try:
            chunk.outcomes[within_limits(mutant, directory)] += 1
        except Exception as error:
            chunk.outcomes[f"wrong: {type(error).__name__}"] += 1
            chunk.wrong.append("".join(traceback.format_exception(error)[-4:]))
    return chunk


class Campaign:
    """The chunks of one seed; those that were done before are read from its file."""

    def __init__(self, seed: int, count: int, directory: Path) -> None:
        self.path = STATE / f"seed-{seed}.jsonl"
        self.directory = directory
        first = seed * A_SEED
        self._wanted = range(first, first + count, A_CHUNK)
        self.done: dict[int, Chunk] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            told = json.loads(line)
            self._take(Chunk(told["first"], Counter(told["outcomes"]), told["wrong"]))

    def _take(self, chunk: Chunk) -> None:
        if chunk.first in self._wanted:
            self.done[chunk.first] = chunk

    def run(self, workers: int) -> Iterator[Chunk]:
        """Try what is left; yields each chunk when it is done and written down."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while left := [first for first in self._wanted if first not in self.done]:
            with ProcessPoolExecutor(workers, FORK, limit_memory) as pool:
                under_way: dict[Future[Chunk], int] = {}
                try:
                    while left or under_way:
                        while left and len(under_way) < workers:
                            first = left.pop(0)
                            under_way[pool.submit(try_chunk, first, self.directory)] = first
                        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                            chunk = future.result()
                            del under_way[future]
                            yield self._note(chunk)
                except BrokenProcessPool as error:
                    stuck = list(self._stuck())
                    if not stuck:
                        error.add_note(f"one of these: {[told.read_text() for told in self._last_words()]}")
                        raise
                    yield from map(self._note, stuck)

    def _last_words(self) -> list[Path]:
        return sorted(self.directory.glob("stuck-*.txt"))

    def _stuck(self) -> Iterator[Chunk]:
        """The chunks of the processes that ended themselves because a mutant took too long."""
        for told in self._last_words():
            text = told.read_text()
            if "Timeout" in text:
                told.unlink()
                text = "\n".join(text.splitlines()[:MAX_LINES])
                number = int(text.split("MUTANT=")[1].split()[0])
                yield Chunk(number - number % A_CHUNK, Counter({"wrong: hung": 1}), [text])

    def _note(self, chunk: Chunk) -> Chunk:
        self._take(chunk)
        with self.path.open("a") as file:
            print(json.dumps({"first": chunk.first, "outcomes": chunk.outcomes, "wrong": chunk.wrong}), file=file)
        return chunk

    @property
    def outcomes(self) -> Counter[str]:
        return sum((chunk.outcomes for chunk in self.done.values()), Counter[str]())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    console = Console(stderr=True)
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None) as directory,
        Progress(*columns, console=console) as progress,
    ):
        for mutant in range(WARMING_UP):
            try_out(mutant, Path(directory) / "store")
        campaign = Campaign(asked.seed, asked.count, Path(directory))
        bar = progress.add_task("mutants", total=asked.count, completed=len(campaign.done) * A_CHUNK)
        for chunk in campaign.run(asked.workers):
            for wrong in chunk.wrong:
                progress.console.print(wrong, markup=False, highlight=False)
            progress.advance(bar, A_CHUNK)
    wrong = [text for chunk in campaign.done.values() for text in chunk.wrong]
    for outcome, times in sorted(campaign.outcomes.items()):
        print(f"{times:>9,} {outcome}")
    print(
        f"{sum(campaign.outcomes.values()):>9,} mutants of seed {asked.seed}, {len(wrong)} went wrong ({campaign.path})"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
