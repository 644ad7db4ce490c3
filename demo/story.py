"""The record of one run of the demo: the data of the closing summary, the report and summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from demo.questions import Comparison
from demo.spark_job import Answers
from demo.storing import Episode
from gantrymq.clock import Clock


@dataclass(slots=True)
class Phase:
    """One step of the run and its time in seconds."""

    name: str
    took_s: float
    note: str = ""


@dataclass(slots=True)
class Story:
    """One run. ``origin_s`` (monotonic clock) and ``origin_ms`` (milliseconds since 1970) are the same moment."""

    out: Path
    seed: int
    replay: str
    clock: Clock
    rows: int = 0
    body_bytes: int = 0
    origin_s: float = 0.0
    origin_ms: int = 0
    phases: list[Phase] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    expected: dict[str, pa.Table] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    store_bytes: int = 0

    @property
    def store(self) -> Path:
        """The store's directory."""
        return self.out / "store"

    @property
    def conf(self) -> Path:
        """The store's settings, a ``broker.conf``."""
        return self.out / "broker.conf"

    @property
    def work(self) -> Path:
        """The files that are needed only during the run."""
        return self.out / "work"

    @property
    def report(self) -> Path:
        """The report's file."""
        return self.out / "report.html"

    @property
    def kills(self) -> int:
        """The number of kills."""
        return sum(episode.kill is not None for episode in self.episodes)

    @property
    def numbers(self) -> int:
        """The number of Spark's numbers that were compared."""
        return sum(comparison.numbers for comparison in self.comparisons)

    @property
    def unacknowledged(self) -> int:
        """The number of rows in recovered stores that no writer had acknowledged."""
        return sum(episode.audit.unacknowledged for episode in self.episodes)

    @property
    def rows_per_s(self) -> float:
        """Acknowledged rows for each second that a writer was writing (see ``Life.rows_per_s``)."""
        spans = [(life.heard[0], life.heard[-1]) for life in (one.life for one in self.episodes) if life.heard]
        took = sum(last[0] - first[0] for first, last in spans)
        return sum(last[1] - first[1] for first, last in spans) / took if took > 0 else 0.0

    @property
    def recovery_s(self) -> list[float]:
        """The time of each recovery in seconds."""
        return [episode.recovered.took_s for episode in self.episodes if episode.recovered is not None]

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Time a step."""
        phase = Phase(name, 0.0)
        began_s = self.clock.monotonic_s()
        self.phases.append(phase)
        yield phase
        phase.took_s = self.clock.monotonic_s() - began_s

    @property
    def took_s(self) -> float:
        """The time of all steps in seconds."""
        return sum(phase.took_s for phase in self.phases)


def write_summary(story: Story) -> None:
    """Write OUT/summary.json, the machine-readable record of the run."""
    answers = story.answers
    summary = {
        "rows": story.rows,
        "seed": story.seed,
        "replay": story.replay,
        "tookSeconds": round(story.took_s, 3),
        "phases": {phase.name: round(phase.took_s, 3) for phase in story.phases},
        "rowsPerSecond": round(story.rows_per_s),
        "writers": [_writer(episode) for episode in story.episodes],
        "spark": {"rows": answers.rows, "readSeconds": round(answers.read_s, 3)},
        "checked": {one.name: {"groups": one.groups, "numbers": one.numbers} for one in story.comparisons},
        "numbersChecked": story.numbers,
        "storeBytes": story.store_bytes,
        "versions": story.versions,
    }
    (story.out / "summary.json").write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")


def _writer(episode: Episode) -> dict[str, Any]:
    life, recovered = episode.life, episode.recovered
    return {
        "pid": life.pid,
        "firstRow": life.first_row,
        "acknowledgedRow": life.acknowledged_row,
        "killed": episode.kill is not None,
        "recoverySeconds": round(recovered.took_s, 4) if recovered else None,
        "recoveryStepsMs": recovered.report.steps_ms if recovered else None,
        "stored": episode.audit.stored,
        "unacknowledged": episode.audit.unacknowledged,
    }
