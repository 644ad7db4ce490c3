"""The result of a run: a table for people, JSON for machines, and a plot of the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from gantrymq.bench.race import JAVA, OURS, Outcome

_UNKNOWN = "–"
_GROWTH = {
    "size_gib": "GiB",
    "rebuild_ms": "first recovery, ms",
    "open_ms": "open, ms",
    "info_ms": "store info, ms",
    "recover_ms": "recovery after a kill, ms",
    "get_us": "get, µs",
    "rss_anon_mib": "memory, MiB",
}


def as_json(machine: dict[str, Any], outcomes: Sequence[Outcome], growth: Sequence[dict[str, Any]]) -> bytes:
    """Everything, with every sample."""
    races = [
        {**asdict(one), "ratio": one.ratio, "medians": {side: one.median(side) for side in one.samples}}
        for one in outcomes
    ]
    return orjson.dumps({"machine": machine, "races": races, "growth": list(growth)}, option=orjson.OPT_INDENT_2)


def race_table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each race: medians with the spread of the runs, the ratio, and the goal."""
    table = Table(title="Medians, with least and most of the runs; ratios say how many times better ours is")
    table.add_column("race")
    for name in (JAVA, OURS, "ratio", "goal"):
        table.add_column(name, justify="right")
    for one in outcomes:
        table.add_row(one.name, _cell(one, JAVA), _cell(one, OURS), _ratio(one), _goal(one))
    return table


def growth_table(growth: Sequence[dict[str, Any]]) -> Table:
    """A row for each size."""
    table = Table(title="What must not grow with the store (ours)")
    for name in _GROWTH.values():
        table.add_column(name, justify="right")
    for row in growth:
        table.add_row(*(f"{row[key]:,.0f}" for key in _GROWTH))
    return table


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table of races for docs/PERFORMANCE.md."""
    lines = [f"| race | {JAVA} | {OURS} | ratio | goal |", "|---|---:|---:|---:|---:|"]
    for one in outcomes:
        cells = (one.name, _cell(one, JAVA), _cell(one, OURS), _ratio(one), _goal(one))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def save_plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """The ratios as bars, with a mark at each goal, as SVG; raises ModuleNotFoundError without altair."""
    import altair as alt

    rows: Any = [{"race": one.name, "ratio": one.ratio, "goal": one.goal} for one in outcomes if one.ratio]
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y("race:N", sort=None, title=None))
    axis = alt.X("ratio:Q", scale=alt.Scale(type="log"), title="times better than RocketMQ (logarithmic)")
    bars = base.mark_bar(color="#4c8dd6").encode(x=axis, x2=alt.datum(1))
    labels = base.mark_text(align="left", dx=4).encode(x=axis, text=alt.Text("ratio:Q", format=".2f"))
    goals = base.mark_tick(color="#e5484d", thickness=2).encode(x="goal:Q")
    alt.layer(bars, labels, goals).properties(width=560).save(str(path))


def save_growth_plot(growth: Sequence[dict[str, Any]], path: Path) -> None:
    """Each cost over the size of the store, all from zero, as SVG; raises ModuleNotFoundError without altair."""
    import altair as alt

    costs = [name for name in _GROWTH if name not in ("size_gib", "rebuild_ms")]  # the first recovery reads all of it
    rows: Any = [
        {"GiB": row["size_gib"], "cost": _GROWTH[name], "value": row[name]} for row in growth for name in costs
    ]
    line = alt.Chart(alt.InlineData(values=rows)).mark_line(point=True, color="#4c8dd6")
    size = alt.X("GiB:Q", title="store, GiB", scale=alt.Scale(zero=True))
    value = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True, nice=True))
    facets = line.encode(x=size, y=value).properties(width=260, height=150)
    cost = alt.Facet("cost:N", title=None, sort=[_GROWTH[name] for name in costs])
    facets.facet(cost, columns=2).resolve_scale(y="independent").save(str(path))


def _cell(outcome: Outcome, side: str) -> str:
    median = outcome.median(side)
    if median is None:
        return outcome.error or _UNKNOWN
    samples = outcome.samples[side]
    return f"{median:,.0f} {outcome.unit} ({min(samples):,.0f}–{max(samples):,.0f})"


def _ratio(outcome: Outcome) -> str:
    return f"{outcome.ratio:.2f}" if outcome.ratio else _UNKNOWN


def _goal(outcome: Outcome) -> str:
    return f"{outcome.goal:g}" if outcome.goal else ""
