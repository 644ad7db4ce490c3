"""The run as JSON, for programs: OUT/summary.json."""

from __future__ import annotations

from typing import Any

import orjson

from demo.storing import Episode
from demo.story import Story


def write_summary(story: Story) -> None:
    """Write it beside the report."""
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
