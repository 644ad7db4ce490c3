"""The report: the data of page.html.j2 (see :mod:`gantrymq.page`)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from demo.flight_charts import flight_figures, worst_days
from demo.screen import next_commands
from demo.storing import Episode
from demo.story import Story
from demo.story_charts import story_figures
from gantrymq.page import html

_WORDS = {0: "no kill", 1: "one kill", 2: "two kills", 3: "three kills", 4: "four kills", 5: "five kills"}
_DAYS_SHOWN = 5


def write_report(story: Story) -> None:
    """Write ``story.report``."""
    story.report.write_text(render(story), "utf-8")


def render(story: Story) -> str:
    """The HTML of the page."""
    tables = story.answers.tables
    return html.render(
        Path(__file__).with_name("page.html.j2").read_text("utf-8"),
        headline=f"{story.rows:,} flights, {_WORDS.get(story.kills, f'{story.kills} kills')}, nothing lost",
        lede=_lede(story),
        tiles_shown=_tiles(story),
        story_figures=[html.template_values(figure) for figure in story_figures(story)],
        flight_figures=[html.template_values(figure) for figure in flight_figures(tables)],
        episodes=[_episode(number, one) for number, one in enumerate(story.episodes, 1)],
        worst_days=worst_days(tables["days"].to_pylist(), _DAYS_SHOWN),
        totals=_totals(story),
        comparisons=story.comparisons,
        numbers=f"{story.numbers:,}",
        phases=story.phases,
        commands=next_commands(story),
        replay=story.replay,
        versions=story.versions,
    )


def _lede(story: Story) -> str:
    began = datetime.fromtimestamp(story.origin_ms / 1000, UTC)
    return (
        f"On {began.day} {began:%B %Y} at {began:%H:%M} UTC {story.rows:,} flights that were to leave New York's three "
        f"airports in 2013 became messages in a RocketMQ store. The process that stored them was killed with SIGKILL "
        f"in the middle of its work, the store was recovered, and the next writer went on with the first row that was "
        f"not there. Then Spark read the store and answered questions, and every number was checked against the input."
    )


def _tiles(story: Story) -> list[dict[str, str]]:
    recoveries = story.recovery_s
    answers = story.answers
    topics = len({row["topic"] for row in answers.tables["queues"].to_pylist()})
    queues = answers.tables["queues"].num_rows
    return [
        html.tile(
            f"{story.rows:,}",
            "messages",
            f"{topics} topics, {queues} queues, {story.body_bytes / 1e6:,.0f} MB of bodies",
        ),
        html.tile("0", "lost or doubled", _found(story.unacknowledged)),
        html.tile(f"{story.rows_per_s:,.0f}", "rows a second", "acknowledged, while a writer was writing"),
        html.tile(f"{max(recoveries, default=0):.2f} s", "to recover, at most", _recoveries(recoveries)),
        html.tile(f"{answers.read_s:.1f} s", "to read it in Spark", "its workers' start and the JSON included"),
        html.tile(f"{story.numbers:,}", "numbers checked", "all equal to those of the input"),
    ]


def _found(unacknowledged: int) -> str:
    if not unacknowledged:
        return "every message read back and compared"
    return f"and {unacknowledged:,} found that no writer had lived to acknowledge"


def _recoveries(seconds: list[float]) -> str:
    return "after each kill: " + ", ".join(f"{one:.2f} s" for one in seconds) if seconds else "nothing was killed"


def _episode(number: int, episode: Episode) -> dict[str, Any]:
    life, kill, recovered, audit = episode.life, episode.kill, episode.recovered, episode.audit
    return {
        "number": number,
        "pid": life.pid,
        "first_row": f"{life.first_row:,}",
        "acknowledged": f"{life.acknowledged_row:,}",
        "rate": f"{life.rows_per_s:,.0f}",
        "kill": f"{kill.delay_ms:.1f} ms after row {kill.after_row:,}" if kill else None,
        "recovered": f"{recovered.took_s:.2f} s" if recovered else "–",
        "stored": f"{audit.stored:,}",
        "unacknowledged": f"{audit.unacknowledged:,}" if kill else "–",
    }


_TOTAL_NAMES = {
    "messages": "Messages",
    "uniq_keys": "Different UNIQ_KEYs",
    "departed": "Flights that departed",
    "arrived": "Flights that arrived",
    "dep_delay": "Minutes of departure delay",
    "arr_delay": "Minutes of arrival delay",
    "distance": "Miles",
    "air_time": "Minutes in the air",
    "planes": "Planes",
    "destinations": "Destinations",
}


def _totals(story: Story) -> list[dict[str, str]]:
    ours, expected = (tables["totals"].to_pylist()[0] for tables in (story.answers.tables, story.expected))
    return [
        {"name": label, "ours": f"{ours[name]:,}", "theirs": f"{expected[name]:,}"}
        for name, label in _TOTAL_NAMES.items()
    ]
