"""What happened to the store, drawn: rows over time with the kills and recoveries, and what was stored when."""

from __future__ import annotations

from typing import Any

import altair as alt

from gantrymq.demo.chart import Figure, data, finished
from gantrymq.demo.spark_job import SLICE_MS
from gantrymq.demo.story import Story

_PHASES = ["writing", "recovering", "reading back"]
_POINTS_A_WRITER = 150


def story_figures(story: Story) -> list[Figure]:
    """Both charts; they share the axis of time."""
    bands, points, kills = _bands(story), _points(story), _kills(story)
    end_s = max((band["to"] for band in bands), default=1.0)
    time = alt.Scale(domain=[0, round(end_s, 2)], nice=False)
    timeline = alt.layer(_band_layer(bands, time), _row_layer(points), *_kill_layers(kills))
    one, other = ("once", "it was") if story.kills == 1 else (f"{story.kills} times", "each time it was")
    note = (
        "Each stair is a writer: rows that it acknowledged. At a red line the process got SIGKILL; what follows is the "
        "recovery, and reading back every message, before the next writer goes on where the store ends."
    )
    return [
        Figure("timeline", f"Killed {one}, {other} whole again", note, finished(timeline, 320), is_wide=True),
        Figure("throughput", *_throughput_words(story), _throughput(story, time), is_wide=True),
    ]


def _bands(story: Story) -> list[dict[str, Any]]:
    """What was going on, from when to when, in seconds since the first writer was started."""
    bands = []
    for episode in story.episodes:
        life = episode.life
        bands.append(("writing", life.ready_s, life.killed_s or life.ended_s))
        if episode.recovered is not None:
            bands.append(("recovering", episode.recovered.started_s, episode.recovered.ended_s))
        bands.append(("reading back", *episode.audited_s))
    zero = story.origin_s
    return [{"phase": phase, "from": round(a - zero, 3), "to": round(b - zero, 3)} for phase, a, b in bands]


def _points(story: Story) -> list[dict[str, Any]]:
    points = []
    for number, episode in enumerate(story.episodes, 1):
        life = episode.life
        step = max(len(life.heard) // _POINTS_A_WRITER, 1)
        heard = [(life.ready_s, life.first_row), *life.heard[:-1:step], *life.heard[-1:]]
        points += [{"writer": number, "at": round(at - story.origin_s, 4), "rows": row} for at, row in heard]
    return points


def _kills(story: Story) -> list[dict[str, Any]]:
    return [
        {
            "at": round(episode.life.killed_s - story.origin_s, 3),
            "label": "SIGKILL",
            "acknowledged": episode.audit.acknowledged,
            "stored": episode.audit.stored,
            "recovered": round(episode.recovered.took_s, 3),
        }
        for episode in story.episodes
        if episode.life.killed_s is not None and episode.recovered is not None
    ]


def _band_layer(bands: list[dict[str, Any]], time: alt.Scale) -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(data(bands))
        .mark_rect(opacity=0.16)
        .encode(
            x=alt.X("from:Q", scale=time, title="seconds since the first writer was started"),
            x2="to:Q",
            color=alt.Color(
                "phase:N",
                scale=alt.Scale(domain=_PHASES, range=["#4c8dd6", "#e5484d", "#3aa981"]),
                legend=alt.Legend(orient="top", title=None, symbolOpacity=0.6),
            ),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("from:Q", format=".2f"), alt.Tooltip("to:Q", format=".2f")],
        )
    )
    return layer


def _row_layer(points: list[dict[str, Any]]) -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(data(points))
        .mark_line(strokeWidth=2.5, interpolate="step-after")
        .encode(
            x="at:Q",
            y=alt.Y("rows:Q", title="rows acknowledged", axis=alt.Axis(format="~s")),
            detail="writer:N",
            tooltip=[
                alt.Tooltip("writer:N"),
                alt.Tooltip("rows:Q", format=","),
                alt.Tooltip("at:Q", title="second", format=".2f"),
            ],
        )
    )
    return layer


def _kill_layers(kills: list[dict[str, Any]]) -> list[alt.Chart]:
    tooltip = [
        alt.Tooltip("at:Q", title="killed at second", format=".2f"),
        alt.Tooltip("acknowledged:Q", title="acknowledged rows", format=","),
        alt.Tooltip("stored:Q", title="rows found", format=","),
        alt.Tooltip("recovered:Q", title="recovered in (s)", format=".2f"),
    ]
    base = alt.Chart(data(kills)).encode(x="at:Q", tooltip=tooltip)
    rule = base.mark_rule(color="#e5484d", strokeWidth=2)
    text = base.mark_text(color="#e5484d", align="right", baseline="top", dx=-5, dy=4, fontWeight="bold", fontSize=11)
    return [rule, text.encode(text="label:N", y=alt.value(0))]


def _slices(story: Story) -> list[dict[str, Any]]:
    """What Spark found stored in each slice of time, on the time line of the first chart."""
    return [
        {
            "at": round((row["at_ms"] - story.origin_ms) / 1000, 3),
            "to": round((row["at_ms"] - story.origin_ms + SLICE_MS) / 1000, 3),
            "rate": row["messages"] * 1000 // SLICE_MS,
            "mb": round(row["bytes"] / SLICE_MS / 1000, 1),
        }
        for row in story.answers.stored_by_slice.to_pylist()
    ]


def _throughput(story: Story, time: alt.Scale) -> dict[str, Any]:
    chart = (
        alt.Chart(data(_slices(story)))
        .mark_bar()
        .encode(
            x=alt.X("at:Q", scale=time, title="seconds since the first writer was started"),
            x2="to:Q",
            y=alt.Y("rate:Q", title="messages stored a second", axis=alt.Axis(format="~s")),
            tooltip=[
                alt.Tooltip("at:Q", title="second", format=".1f"),
                alt.Tooltip("rate:Q", title="messages a second", format=","),
                alt.Tooltip("mb:Q", title="MB a second", format=","),
            ],
        )
    )
    return finished(chart, 180)


def _throughput_words(story: Story) -> tuple[str, str]:
    """Title and note."""
    minutes: dict[int, int] = {}
    for row in story.answers.stored_by_slice.to_pylist():
        minutes[row["at_ms"] // 60_000] = minutes.get(row["at_ms"] // 60_000, 0) + row["messages"]
    by_minute = ", ".join(f"{minute % 1440 // 60:02d}:{minute % 60:02d} {count:,}" for minute, count in minutes.items())
    fastest = max((piece["rate"] for piece in _slices(story)), default=0)
    note = f"Store timestamps out of the records, in slices of {SLICE_MS} ms. By minute (UTC): {by_minute}."
    return f"Up to {fastest:,} messages a second into the store", note
