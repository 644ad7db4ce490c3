"""The analysis of a store as one HTML page with charts (see :mod:`gantrymq.page`). Needs the extra ``report``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from gantrymq.model.size import size_text
from gantrymq.page import html
from gantrymq.page.figure import Figure, data, full_width_spec
from gantrymq.spark.pipelines.analysis import StoreAnalysis, analyze, of_messages, read_messages
from gantrymq.spark.pipelines.page_rows import TOPICS_BY_HOUR, Rows, page_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    return full_width_spec(chart, max(len(rows) * _BAR_HEIGHT, 60))


def _sizes(topics: Rows, whole: int) -> list[Figure]:
    shown = [
        {"topic": row["topic"], "bytes": row["bytes"], "messages": row["messages"], "size": size_text(row["bytes"])}
        for row in topics[:_BARS]
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
    for row in hours:
        by_hour[row["hour"]] += row["messages"]
    points = [
        {"hour": row["hour"].isoformat(), "topic": row["topic"] or _OTHERS, "messages": row["messages"]}
        for row in hours
    ]
    order = [*(row["topic"] for row in topics[:TOPICS_BY_HOUR]), _OTHERS]
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
    return [Figure("hours", title, note, full_width_spec(chart, 260), is_wide=True)]


def _legend() -> alt.Legend:
    return alt.Legend(orient="top", title=None, columns=4, labelLimit=240)


def _tags(tags: Rows) -> list[Figure]:
    shown = [
        {
            "name": f"{row['topic']}: {row['tags'] or _UNTAGGED}",
            "messages": row["messages"],
            "size": size_text(row["bytes"]),
        }
        for row in tags[:_BARS]
    ]
    if not shown:
        return []
    tooltip = [alt.Tooltip("name:N"), alt.Tooltip("messages:Q", format=","), alt.Tooltip("size:N")]
    title = f"{shown[0]['name']} is the most frequent: {shown[0]['messages']:,} messages"
    spec = _bars(shown, "name", "messages", "messages", tooltip)
    return [Figure("tags", title, "Messages by topic and tags.", spec, is_wide=True)]


def _skew(topics: Rows) -> list[Figure]:
    shown = [{**row, "skew": round(row["skew"], 3)} for row in topics[:_BARS]]
    if not shown:
        return []
    tooltip = [alt.Tooltip("topic:N"), alt.Tooltip("skew:Q", format=".2f"), alt.Tooltip("queues:Q")]
    title = f"The fullest queue of {shown[0]['topic']} has {shown[0]['skew']:.1f} times its fair share"
    note = "Messages in the fullest queue of a topic, over those that it would have if all its queues had as many."
    return [Figure("skew", title, note, _bars(shown, "topic", "skew", "times the mean", tooltip), is_wide=True)]


def write_analysis(
    spark: SparkSession, path: str, report: str | Path, options: Mapping[str, str] | None = None
) -> StoreAnalysis:
    """Analyze the store or stores at ``path`` and write the page ``report``; arguments as for ``analyze``.

    Returns the frames, for further analysis. Raises ConfigError, NotAStoreError, OSError.
    """
    messages = read_messages(spark, path, options).persist()
    try:
        rows = page_rows(of_messages(messages))
    finally:
        messages.unpersist()
    Path(report).write_text(render(path, rows, spark.version), "utf-8")
    return analyze(spark, path, options)


def render(path: str, rows: Mapping[str, Rows], version: str) -> str:
    """The page about the store at ``path``. ``rows`` is the result of ``page_rows``, ``version`` that of Spark."""
    (totals,) = rows["totals"]
    return html.render(
        (files("gantrymq.spark.pipelines") / "report.html.j2").read_text("utf-8"),
        store=path,
        headline=f"{totals['messages']:,} messages of {totals['topics']:,} topics",
        lede=_lede(totals, rows["topics"]),
        tiles_shown=_tiles(totals, rows["kinds"]),
        sections=_sections(rows),
        version=version,
    )


def _lede(totals: Mapping[str, Any], topics: Rows) -> str:
    if totals["first"] is None:
        return "No message is in a queue of this store."
    largest, share = topics[0]["topic"], 100 * topics[0]["bytes"] / totals["bytes"]
    first, last = (f"{totals[name]:%d %B %Y %H:%M:%S}" for name in ("first", "last"))
    return f"Stored from {first} to {last}. The topic {largest} has {share:.0f} % of the bytes."


def _tiles(totals: Mapping[str, Any], kinds: Rows) -> list[dict[str, str]]:
    messages, stored = totals["messages"], totals["bytes"]
    share = f"{100 * totals['compressed'] / messages:.0f} % of the bodies came compressed" if messages else "no bodies"
    mean, largest = size_text(stored / messages) if messages else "–", size_text(totals["largest_bytes"])
    wrong = sum(row["times"] for row in kinds)
    what = ", ".join(f"{row['kind']} {row['times']:,}" for row in kinds) or "every queue rises by one, in time"
    return [
        html.tile(f"{messages:,}", "messages", f"{totals['topics']:,} topics, {totals['queues']:,} queues"),
        html.tile(size_text(stored), "in records", share),
        html.tile(mean, "a message", f"the largest has {largest}"),
        html.tile(f"{wrong:,}", "out of order", what),
    ]


def _sections(rows: Mapping[str, Rows]) -> list[dict[str, Any]]:
    figures = analysis_figures(rows)
    shown = {name: [html.template_values(row) for row in some] for name, some in figures.items()}
    return [
        _section("Where the bytes are", "", shown["sizes"], [_topics(rows["topics"], rows["totals"][0]["topics"])]),
        _section("When it came", "", shown["times"], []),
        _section(
            "What it is tagged with",
            "Consumers filter by tags. A tag that most messages have filters little.",
            shown["tags"],
            [],
        ),
        _section(
            "Skew",
            "A queue is read by one consumer of a group, and messages of one key often go to one queue: what is much "
            "larger than the rest is where a group waits.",
            shown["skew"],
            [_keys(rows["keys"])],
        ),
        _section("The largest messages", "", [], [_largest(rows["largest"])]),
        _section(
            "Out of order",
            "In the order of the log the offsets of a queue rise by one and store times do not go back. A missing "
            "offset is a record that is lost or was deleted.",
            [],
            [_disorder(rows["disorder"], sum(row["queues"] for row in rows["kinds"]))] if rows["disorder"] else [],
        ),
    ]


def _section(title: str, note: str, figures: list[dict[str, Any]], tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "note": note, "figures": figures, "tables": tables}


def _table(caption: str, columns: list[str], rows: list[list[str]], whole: int = 0) -> dict[str, Any]:
    """Columns whose name begins with ``>`` are right-aligned numbers; ``whole`` is the full number of rows."""
    more = whole - len(rows)
    return {
        "caption": caption,
        "columns": [(name.lstrip(">"), name.startswith(">")) for name in columns],
        "rows": rows,
        "more": f"… and {more:,} more." if more > 0 else "",
    }


def _topics(rows: Rows, whole: int) -> dict[str, Any]:
    columns = ["Topic", ">Messages", ">Bytes", ">Median", ">Largest", ">Compressed", ">Queues", "First", "Last"]
    cells = [
        [
            row["topic"],
            f"{row['messages']:,}",
            size_text(row["bytes"]),
            size_text(row["median_bytes"]),
            size_text(row["largest_bytes"]),
            f"{row['compressed']:,}",
            f"{row['queues']:,}",
            _time(row["first"]),
            _time(row["last"]),
        ]
        for row in rows
    ]
    return _table("Topics", columns, cells, whole)


def _keys(rows: Rows) -> dict[str, Any]:
    cells = [[row["topic"], row["key"], f"{row['messages']:,}", f"{100 * row['share']:.2f} %"] for row in rows]
    return _table("The most frequent keys", ["Topic", "Key", ">Messages", ">Of the topic's keys"], cells)


def _largest(rows: Rows) -> dict[str, Any]:
    columns = ["Topic", "Queue", ">Offset", ">Size", "Stored", "Message id"]
    cells = [
        [
            row["topic"],
            f"{row['broker']} / {row['queue_id']}",
            f"{row['queue_offset']:,}",
            size_text(row["size"]),
            _time(row["store_timestamp"]),
            row["msg_id"],
        ]
        for row in rows
    ]
    return _table("The largest messages", columns, cells)


def _disorder(rows: Rows, whole: int) -> dict[str, Any]:
    columns = ["Topic", "Queue", "What", ">Times", ">First at offset of the log"]
    cells = [
        [
            row["topic"],
            f"{row['broker']} / {row['queue_id']}",
            row["kind"],
            f"{row['times']:,}",
            str(row["first_phy_offset"]),
        ]
        for row in rows
    ]
    return _table("Where queues are out of order", columns, cells, whole)


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "–"
