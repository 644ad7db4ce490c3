"""The charts of a store's analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from gantrymq.model.size import size_text
from gantrymq.page.figure import Figure, Rows, data, finished

_BARS = 15
_LINES = 6
_OTHERS = "all others"
_UNTAGGED = "(no tags)"
_BAR_HEIGHT = 24


def analysis_figures(rows: Mapping[str, Rows]) -> dict[str, list[Figure]]:
    """Those of each section of the page."""
    return {
        "sizes": _sizes(rows["topics"]),
        "times": _times(rows["topics"], rows["hours"]),
        "tags": _tags(rows["tags"]),
        "skew": _skew(rows["queues"]),
    }


def _bars(rows: Rows, label: str, value: str, title: str, tooltip: list[alt.Tooltip]) -> dict[str, Any]:
    chart = (
        alt.Chart(data(rows))
        .mark_bar()
        .encode(
            y=alt.Y(f"{label}:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(format="~s", tickCount=6)),
            tooltip=tooltip,
        )
    )
    return finished(chart, max(len(rows) * _BAR_HEIGHT, 60))


def _sizes(topics: Rows) -> list[Figure]:
    shown = [
        {"topic": one["topic"], "bytes": one["bytes"], "messages": one["messages"], "size": size_text(one["bytes"])}
        for one in topics[:_BARS]
    ]
    if not shown:
        return []
    tooltip = [alt.Tooltip("topic:N"), alt.Tooltip("size:N"), alt.Tooltip("messages:Q", format=",")]
    whole = sum(one["bytes"] for one in topics)
    title = f"{shown[0]['topic']} has {100 * shown[0]['bytes'] / whole:.0f} % of {size_text(whole)}"
    note = f"Bytes of records by topic{', the largest ones' if len(topics) > _BARS else ''}."
    return [Figure("sizes", title, note, _bars(shown, "topic", "bytes", "bytes", tooltip), is_wide=True)]


def _times(topics: Rows, hours: Rows) -> list[Figure]:
    if not hours:
        return []
    named = [one["topic"] for one in topics[:_LINES]]
    counts: dict[tuple[str, str], int] = {}
    for one in hours:
        topic = one["topic"] if one["topic"] in named else _OTHERS
        key = (one["hour"].isoformat(), topic)
        counts[key] = counts.get(key, 0) + one["messages"]
    points = [{"hour": hour, "topic": topic, "messages": count} for (hour, topic), count in counts.items()]
    busiest = max(sum(count for (hour, _), count in counts.items() if hour == wanted) for wanted, _ in counts)
    order = [*named, _OTHERS]
    chart = (
        alt.Chart(data(points))
        .mark_bar()
        .encode(
            x=alt.X("utcyearmonthdatehours(hour):T", title="hour (UTC)", scale=alt.Scale(type="utc")),
            y=alt.Y("messages:Q", title="messages an hour", axis=alt.Axis(format="~s", tickCount=5)),
            color=alt.Color("topic:N", sort=order, scale=alt.Scale(scheme="tableau10"), legend=_legend()),
            tooltip=[alt.Tooltip("hour:N"), alt.Tooltip("topic:N"), alt.Tooltip("messages:Q", format=",")],
        )
    )
    note = "By the time of storing; the largest topics have a colour of their own."
    return [Figure("hours", f"{busiest:,} messages in the busiest hour", note, finished(chart, 260), is_wide=True)]


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", title=None, columns=4, labelLimit=240)


def _tags(tags: Rows) -> list[Figure]:
    shown = [
        {
            "name": f"{one['topic']}: {one['tags'] or _UNTAGGED}",
            "messages": one["messages"],
            "size": size_text(one["bytes"]),
        }
        for one in tags[:_BARS]
    ]
    if not shown:
        return []
    tooltip = [alt.Tooltip("name:N"), alt.Tooltip("messages:Q", format=","), alt.Tooltip("size:N")]
    title = f"{shown[0]['name']} is the most frequent: {shown[0]['messages']:,} messages"
    spec = _bars(shown, "name", "messages", "messages", tooltip)
    return [Figure("tags", title, "Messages by topic and tags.", spec, is_wide=True)]


def _skew(queues: Rows) -> list[Figure]:
    of_topic: dict[str, list[dict[str, Any]]] = {}
    for one in queues:
        of_topic.setdefault(one["topic"], []).append(one)
    skewed = [
        {
            "topic": topic,
            "skew": round(max(one["messages"] for one in some) * len(some) / sum(one["messages"] for one in some), 3),
            "queues": len(some),
        }
        for topic, some in of_topic.items()
        if len(some) > 1
    ]
    shown = sorted(skewed, key=lambda one: -one["skew"])[:_BARS]
    if not shown:
        return []
    tooltip = [alt.Tooltip("topic:N"), alt.Tooltip("skew:Q", format=".2f"), alt.Tooltip("queues:Q")]
    title = f"The fullest queue of {shown[0]['topic']} has {shown[0]['skew']:.1f} times its fair share"
    note = "Messages in the fullest queue of a topic, over those that it would have if all its queues had as many."
    return [Figure("skew", title, note, _bars(shown, "topic", "skew", "times the mean", tooltip), is_wide=True)]
