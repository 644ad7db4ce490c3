"""The charts of a store's analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import altair as alt

from gantrymq.model.size import size_text
from gantrymq.page.figure import Figure, Rows, data, finished
from gantrymq.spark.pipelines.page_rows import TOPICS_BY_HOUR

_BARS = 15
_OTHERS = "all others"
_UNTAGGED = "(no tags)"
_BAR_HEIGHT = 24


def analysis_figures(rows: Mapping[str, Rows]) -> dict[str, list[Figure]]:
    """The figures of each section of the page. ``rows`` is the result of ``page_rows``."""
    return {
        "sizes": _sizes(rows["topics"], rows["totals"][0]["bytes"]),
        "times": _times(rows["topics"], rows["hours"], rows["totals"][0]["first"]),
        "tags": _tags(rows["tags"]),
        "skew": _skew(rows["skew"]),
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


def _sizes(topics: Rows, whole: int) -> list[Figure]:
    shown = [
        {"topic": one["topic"], "bytes": one["bytes"], "messages": one["messages"], "size": size_text(one["bytes"])}
        for one in topics[:_BARS]
    ]
    if not shown:
        return []
    tooltip = [alt.Tooltip("topic:N"), alt.Tooltip("size:N"), alt.Tooltip("messages:Q", format=",")]
    title = f"{shown[0]['topic']} has {100 * shown[0]['bytes'] / whole:.0f} % of {size_text(whole)}"
    note = f"Bytes of records by topic{', the largest ones' if len(topics) > _BARS else ''}."
    return [Figure("sizes", title, note, _bars(shown, "topic", "bytes", "bytes", tooltip), is_wide=True)]


def _times(topics: Rows, hours: Rows, first: datetime | None) -> list[Figure]:
    """``hours`` are all hours since ``first``, or the newest of them."""
    if not hours:
        return []
    by_hour: Counter[datetime] = Counter()
    for one in hours:
        by_hour[one["hour"]] += one["messages"]
    points = [
        {"hour": one["hour"].isoformat(), "topic": one["topic"] or _OTHERS, "messages": one["messages"]}
        for one in hours
    ]
    order = [*(one["topic"] for one in topics[:TOPICS_BY_HOUR]), _OTHERS]
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
    is_all = first is None or min(by_hour) <= first
    title = f"{max(by_hour.values()):,} messages in the busiest {'hour' if is_all else 'of the newest hours'}"
    note = "By the time of storing; the largest topics have a colour of their own."
    note += "" if is_all else f" The newest {len(by_hour):,} hours with messages; older ones are not shown."
    return [Figure("hours", title, note, finished(chart, 260), is_wide=True)]


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


def _skew(topics: Rows) -> list[Figure]:
    shown = [{**one, "skew": round(one["skew"], 3)} for one in topics[:_BARS]]
    if not shown:
        return []
    tooltip = [alt.Tooltip("topic:N"), alt.Tooltip("skew:Q", format=".2f"), alt.Tooltip("queues:Q")]
    title = f"The fullest queue of {shown[0]['topic']} has {shown[0]['skew']:.1f} times its fair share"
    note = "Messages in the fullest queue of a topic, over those that it would have if all its queues had as many."
    return [Figure("skew", title, note, _bars(shown, "topic", "skew", "times the mean", tooltip), is_wide=True)]
