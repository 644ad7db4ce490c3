"""Charts of the run: rows over time with kills and recoveries, and the throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from demo.spark_job import SLICE_MS
from demo.storing import Episode
from demo.story import Story
from gantrymq.page.figure import Figure, data, full_width_spec

WRITING = "writing"
RECOVERING = "recovering"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period of one kind of work, in seconds of the monotonic clock."""

    what: str
    begin_s: float
    end_s: float


class WorkTime:
    """A time axis that has only the seconds in which the store was written to or recovered.

    In the gaps a Python process starts, or everything is read back and compared. Drawn to scale, these gaps would fill
    the chart. ``stretches`` are in order and do not overlap.
    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = list(stretches)

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> WorkTime:
        """The work of each writer from its first acknowledgement on, and of each recovery."""
        stretches = []
        for episode in episodes:
            life = episode.life
            if life.heard:
                stretches.append(Stretch(WRITING, life.heard[0][0], life.killed_s or life.heard[-1][0]))
            if episode.recovered is not None:
                stretches.append(Stretch(RECOVERING, episode.recovered.started_s, episode.recovered.ended_s))
        return cls(stretches)

    def at(self, moment_s: float) -> float:
        """The seconds of work before a moment."""
        return sum(min(one.end_s, max(moment_s, one.begin_s)) - one.begin_s for one in self.stretches)

    @property
    def total_s(self) -> float:
        """The seconds of work in total."""
        return sum(one.end_s - one.begin_s for one in self.stretches)


_BANDS = {WRITING: "rgba(76, 141, 214, 0.12)", RECOVERING: "rgba(229, 72, 77, 0.45)"}
_AXIS_TITLE = "seconds in which the store was written to or recovered"
_POINTS_A_WRITER = 150


def story_figures(story: Story) -> list[Figure]:
    """Both charts, which share the time axis."""
    work = WorkTime.of(story.episodes)
    scale = alt.Scale(domain=[0, round(work.total_s, 3)], nice=False)
    timeline = alt.layer(_band_layer(work, scale), _row_layer(story, work), *_kill_layers(story, work))
    one, other = ("once", "it was") if story.kills == 1 else (f"{story.kills} times", "each time it was")
    note = (
        "Rows acknowledged. At a red line the process got SIGKILL; the red band behind it is the recovery. Left out "
        "are the seconds in which a writer starts and in which everything is read back and compared."
    )
    title, throughput_note = _throughput_words(story)
    return [
        Figure("timeline", f"Killed {one}, {other} whole again", note, full_width_spec(timeline, 300), is_wide=True),
        Figure("throughput", title, throughput_note, _throughput(_slices(story, work), scale), is_wide=True),
    ]


def _time_axis(scale: alt.Scale, field: str) -> alt.X:
    return alt.X(f"{field}:Q", scale=scale, title=_AXIS_TITLE, axis=alt.Axis(tickCount=8))


def _band_layer(work: WorkTime, scale: alt.Scale) -> alt.Chart:
    bands = [
        {"phase": one.what, "from": work.at(one.begin_s), "to": work.at(one.end_s), "took": one.end_s - one.begin_s}
        for one in work.stretches
    ]
    layer: alt.Chart = (
        alt.Chart(data(bands))
        .mark_rect()
        .encode(
            x=_time_axis(scale, "from"),
            x2="to:Q",
            color=alt.Color(
                "phase:N",
                scale=alt.Scale(domain=list(_BANDS), range=list(_BANDS.values())),
                legend=alt.Legend(orient="top", title=None, symbolStrokeColor="#8a939b", symbolStrokeWidth=0.5),
            ),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("took:Q", title="seconds", format=".3f")],
        )
    )
    return layer


def _row_layer(story: Story, work: WorkTime) -> alt.Chart:
    points = []
    for number, episode in enumerate(story.episodes, 1):
        heard = episode.life.heard
        step = max(len(heard) // _POINTS_A_WRITER, 1)
        points += [
            {"writer": number, "at": round(work.at(at), 4), "rows": row} for at, row in [*heard[:-1:step], *heard[-1:]]
        ]
    layer: alt.Chart = (
        alt.Chart(data(points))
        .mark_line(strokeWidth=2.5)
        .encode(
            x="at:Q",
            y=alt.Y("rows:Q", title="rows acknowledged", axis=alt.Axis(format="~s", tickCount=6)),
            detail="writer:N",
            tooltip=[
                alt.Tooltip("writer:N"),
                alt.Tooltip("rows:Q", format=","),
                alt.Tooltip("at:Q", title="second", format=".2f"),
            ],
        )
    )
    return layer


def _kill_layers(story: Story, work: WorkTime) -> list[alt.Chart]:
    kills = [
        {
            "at": round(work.at(episode.life.killed_s), 4),
            "label": "SIGKILL",
            "acknowledged": episode.audit.acknowledged,
            "stored": episode.audit.stored,
            "recovered": round(episode.recovered.took_s, 3),
        }
        for episode in story.episodes
        if episode.life.killed_s is not None and episode.recovered is not None
    ]
    tooltip = [
        alt.Tooltip("acknowledged:Q", title="acknowledged rows", format=","),
        alt.Tooltip("stored:Q", title="rows found", format=","),
        alt.Tooltip("recovered:Q", title="recovered in (s)", format=".3f"),
    ]
    base = alt.Chart(data(kills)).encode(x="at:Q", tooltip=tooltip)
    rule = base.mark_rule(color="#e5484d", strokeWidth=2)
    text = base.mark_text(color="#e5484d", align="right", baseline="top", dx=-5, dy=4, fontWeight="bold", fontSize=11)
    return [rule, text.encode(text="label:N", y=alt.value(0))]


def _slices(story: Story, work: WorkTime) -> list[dict[str, Any]]:
    """The messages stored in each slice of time according to Spark, on the time axis of the first chart.

    A slice that a start or a kill cuts short is drawn as narrow as it was, with the rate of its own duration.
    """
    slices = []
    for row in story.answers.stored_by_slice.to_pylist():
        begin_s = story.origin_s + (row["at_ms"] - story.origin_ms) / 1000
        begin, end = work.at(begin_s), work.at(begin_s + SLICE_MS / 1000)
        if end - begin >= SLICE_MS / 4000:
            rate, megabytes = row["messages"] / (end - begin), row["bytes"] / (end - begin) / 1e6
            slices.append({"at": round(begin, 4), "to": round(end, 4), "rate": round(rate), "mb": round(megabytes, 1)})
    return slices


def _throughput(slices: list[dict[str, Any]], scale: alt.Scale) -> dict[str, Any]:
    chart = (
        alt.Chart(data(slices))
        .mark_bar()
        .encode(
            x=_time_axis(scale, "at"),
            x2="to:Q",
            y=alt.Y("rate:Q", title="messages a second", axis=alt.Axis(format="~s", tickCount=5)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("at:Q", title="second", format=".2f"),
                alt.Tooltip("rate:Q", title="messages a second", format=","),
                alt.Tooltip("mb:Q", title="MB a second", format=","),
            ],
        )
    )
    return full_width_spec(chart, 170)


def _throughput_words(story: Story) -> tuple[str, str]:
    """The title and the note of the throughput chart."""
    minutes: dict[int, int] = {}
    for row in story.answers.stored_by_slice.to_pylist():
        minute = row["at_ms"] // 60_000
        minutes[minute] = minutes.get(minute, 0) + row["messages"]
    by_minute = ", ".join(
        f"{minute // 60 % 24:02d}:{minute % 60:02d} {count:,}" for minute, count in sorted(minutes.items())
    )
    note = f"Out of the records' store timestamps, {SLICE_MS} ms a bar. By minute (UTC): {by_minute}."
    return f"{story.rows_per_s:,.0f} messages a second, while a writer was writing", note
