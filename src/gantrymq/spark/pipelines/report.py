"""The analysis of a store as one HTML page with charts (see :mod:`gantrymq.page`); it needs the extra ``demo``.

What comes to the driver is bounded: the first rows of each frame, and of the hours at most so many as a chart shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantrymq.model.size import size_text
from gantrymq.page import html
from gantrymq.spark.pipelines.analysis import StoreAnalysis, analyze, of_messages, read_messages
from gantrymq.spark.pipelines.analysis_charts import analysis_figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
_MOST_ROWS = {
    "topics": 1000,
    "hours": 20_000,
    "tags": 200,
    "queues": 2000,
    "keys": 500,
    "largest": 50,
    "disorder": 200,
}
_TABLE_ROWS = 25


def write_analysis(
    spark: SparkSession, path: str, report: str | Path, options: Mapping[str, str] | None = None
) -> StoreAnalysis:
    """Analyze the store or stores at ``path`` and write the page ``report``; arguments as with ``analyze``.

    Returns the frames, to be looked into further. Raises what reading raises, OSError.
    """
    messages = read_messages(spark, path, options).persist()
    try:
        rows = first_rows(of_messages(messages))
    finally:
        messages.unpersist()
    Path(report).write_text(render(path, rows, spark.version), "utf-8")
    return analyze(spark, path, options)


def first_rows(analysis: StoreAnalysis) -> dict[str, Rows]:
    """Of each frame as many rows as the page has use for."""
    return {name: frame.limit(_MOST_ROWS[name]).toArrow().to_pylist() for name, frame in analysis.frames().items()}


def render(path: str, rows: Mapping[str, Rows], version: str) -> str:
    """The page about the store at ``path``, read by Spark ``version``."""
    topics = rows["topics"]
    messages, stored = sum(one["messages"] for one in topics), sum(one["bytes"] for one in topics)
    return html.render(
        (files("gantrymq.spark.pipelines") / "report.html.j2").read_text("utf-8"),
        store=path,
        headline=f"{messages:,} messages of {len(topics)} topics",
        lede=_lede(topics, stored),
        tiles_shown=_tiles(rows, messages, stored),
        sections=_sections(rows),
        version=version,
    )


def _lede(topics: Rows, stored: int) -> str:
    times = [one[name] for one in topics for name in ("first", "last") if one[name] is not None]
    if not times:
        return "No message is in a queue of this store."
    largest, share = topics[0]["topic"], 100 * topics[0]["bytes"] / stored
    first, last = (f"{moment:%d %B %Y %H:%M:%S}" for moment in (min(times), max(times)))
    return f"Stored from {first} to {last}. The topic {largest} has {share:.0f} % of the bytes."


def _tiles(rows: Mapping[str, Rows], messages: int, stored: int) -> list[dict[str, str]]:
    topics, disorder = rows["topics"], rows["disorder"]
    queues = sum(one["queues"] for one in topics)
    compressed = sum(one["compressed"] for one in topics)
    largest = max((one["largest_bytes"] for one in topics), default=0)
    wrong = sum(one["times"] for one in disorder)
    share = f"{100 * compressed / messages:.0f} % of the bodies came compressed" if messages else "no bodies"
    return [
        html.tile(f"{messages:,}", "messages", f"{len(topics):,} topics, {queues:,} queues"),
        html.tile(size_text(stored), "in records", share),
        html.tile(
            size_text(stored / messages) if messages else "–", "a message", f"the largest has {size_text(largest)}"
        ),
        html.tile(f"{wrong:,}", "out of order", _kinds(disorder) if disorder else "every queue rises by one, in time"),
    ]


def _kinds(disorder: Rows) -> str:
    counts: dict[str, int] = {}
    for one in disorder:
        counts[one["kind"]] = counts.get(one["kind"], 0) + one["times"]
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items())


def _sections(rows: Mapping[str, Rows]) -> list[dict[str, Any]]:
    figures = analysis_figures(rows)
    shown = {name: [html.shown(one) for one in some] for name, some in figures.items()}
    return [
        _section("Where the bytes are", "", shown["sizes"], [_topics(rows["topics"])]),
        _section("When it came", "", shown["times"], []),
        _section(
            "What it is tagged with",
            "Consumers filter by tags; what most messages have is no filter.",
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
            [_disorder(rows["disorder"])] if rows["disorder"] else [],
        ),
    ]


def _section(title: str, note: str, figures: list[dict[str, Any]], tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "note": note, "figures": figures, "tables": tables}


def _table(caption: str, columns: list[str], rows: list[list[str]]) -> dict[str, Any]:
    """Columns whose name begins with ``>`` are numbers."""
    more = len(rows) - _TABLE_ROWS
    return {
        "caption": caption,
        "columns": [(name.lstrip(">"), name.startswith(">")) for name in columns],
        "rows": rows[:_TABLE_ROWS],
        "more": f"… and {more:,} more." if more > 0 else "",
    }


def _topics(rows: Rows) -> dict[str, Any]:
    columns = ["Topic", ">Messages", ">Bytes", ">Median", ">Largest", ">Compressed", ">Queues", "First", "Last"]
    cells = [
        [
            one["topic"],
            f"{one['messages']:,}",
            size_text(one["bytes"]),
            size_text(one["median_bytes"]),
            size_text(one["largest_bytes"]),
            f"{one['compressed']:,}",
            f"{one['queues']:,}",
            _time(one["first"]),
            _time(one["last"]),
        ]
        for one in rows
    ]
    return _table("Topics", columns, cells)


def _keys(rows: Rows) -> dict[str, Any]:
    cells = [[one["topic"], one["key"], f"{one['messages']:,}", f"{100 * one['share']:.2f} %"] for one in rows]
    return _table("The most frequent keys", ["Topic", "Key", ">Messages", ">Of the topic's keys"], cells)


def _largest(rows: Rows) -> dict[str, Any]:
    columns = ["Topic", "Queue", ">Offset", ">Size", "Stored", "Message id"]
    cells = [
        [
            one["topic"],
            f"{one['broker']} / {one['queue_id']}",
            f"{one['queue_offset']:,}",
            size_text(one["size"]),
            _time(one["store_timestamp"]),
            one["msg_id"],
        ]
        for one in rows
    ]
    return _table("The largest messages", columns, cells)


def _disorder(rows: Rows) -> dict[str, Any]:
    columns = ["Topic", "Queue", "What", ">Times", ">First at offset of the log"]
    cells = [
        [
            one["topic"],
            f"{one['broker']} / {one['queue_id']}",
            one["kind"],
            f"{one['times']:,}",
            str(one["first_phy_offset"]),
        ]
        for one in rows
    ]
    return _table("Where queues are out of order", columns, cells)


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "–"
