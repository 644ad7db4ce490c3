"""The result of a run: a table for people, JSON for programs, and a plot of the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from benchmarks.race.race import JAVA, OURS, Outcome

_UNKNOWN = "–"
_GROWTH = {
    "size_gib": "GiB",
    "rebuild_ms": "first recovery, ms",
    "open_ms": "open, ms",
    "java_open_ms": "RocketMQ's, ms",
    "info_ms": "store info, ms",
    "recover_ms": "recovery after a kill, ms",
    "java_recover_ms": "RocketMQ's recovery, ms",
    "get_us": "get, µs",
    "rss_anon_mib": "memory, MiB",
    "java_rss_anon_mib": "RocketMQ's, MiB",
}


def as_json(machine: dict[str, Any], outcomes: Sequence[Outcome], growth: Sequence[dict[str, float]]) -> bytes:
    """The whole result with every sample, as JSON."""
    races = [
        {
            **asdict(one.row),
            "samples": one.samples,
            "error": one.error,
            "ratio": one.ratio,
            "medians": {side: one.median(side) for side in one.samples},
        }
        for one in outcomes
    ]
    return orjson.dumps({"machine": machine, "races": races, "growth": list(growth)}, option=orjson.OPT_INDENT_2)


def race_table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each figure: medians with the spread of the runs, the ratio, the goal, and the number of its remark."""
    table = Table(title="Medians, with least and most of the runs; ratios say how many times better ours is")
    table.add_column("race")
    for name in _HEADS:
        table.add_column(name, justify="right", overflow="fold")
    for cells in _rows(outcomes):
        table.add_row(*cells)
    return table


def remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """The numbered remarks of the table, followed by the errors."""
    numbered = [f"{number} {note}" for note, number in _notes(outcomes).items()]
    return numbered + [f"{one.name} failed: {one.error}" for one in outcomes if one.error]


def growth_table(growth: Sequence[dict[str, float]]) -> Table:
    """A row for each size."""
    table = Table(title="What must not grow with the store")
    measured = _measured(growth)
    for name in measured:
        table.add_column(_GROWTH[name], justify="right")
    for row in growth:
        table.add_row(*(f"{row[name]:,.0f}" for name in measured))
    return table


def markdown(machine: dict[str, Any], outcomes: Sequence[Outcome], growth: Sequence[dict[str, float]]) -> str:
    """The tables for a page of docs/perf, and the machine and versions of the run."""
    lines = [
        f"{machine['when']}, commit {machine['commit']}, scale {machine['scale']:g}, rounds {machine['rounds']}",
        "",
    ]
    if outcomes:
        lines += [f"| race | {' | '.join(_HEADS)} |", "|---|" + "---:|" * len(_HEADS)]
        lines += [f"| {' | '.join(cells)} |" for cells in _rows(outcomes)]
        lines += ["", *(f"- {line}" for line in remarks(outcomes)), ""]
    if machine.get("oneSided"):
        lines += [machine["oneSided"], ""]
    if growth:
        measured = _measured(growth)
        lines += [f"| {' | '.join(_GROWTH[name] for name in measured)} |", "|" + "---:|" * len(measured)]
        lines += [f"| {' | '.join(f'{row[name]:,.0f}' for name in measured)} |" for row in growth]
    return "\n".join(lines) + "\n"


_HEADS = (JAVA, OURS, "ratio", "goal", "remark")


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    notes = _notes(outcomes)
    return [
        (
            f"{one.name}: {one.row.unit}",
            *(_cell(one, side) for side in (JAVA, OURS)),
            _ratio(one),
            _goal(one),
            str(notes.get(one.row.note, "")),
        )
        for one in outcomes
    ]


def _notes(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """The number of each remark, in the order of first use."""
    notes = dict.fromkeys(one.row.note for one in outcomes if one.row.note)
    return {note: number for number, note in enumerate(notes, 1)}


def _measured(growth: Sequence[dict[str, float]]) -> list[str]:
    return [name for name in _GROWTH if all(name in row for row in growth)]


def save_plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Save the ratios as bars, with a mark at each goal, as SVG. Raises ModuleNotFoundError without altair."""
    import altair as alt

    rows: Any = [{"race": one.name, "ratio": one.ratio, "goal": one.row.goal} for one in outcomes if one.ratio]
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y("race:N", sort=None, title=None))
    axis = alt.X(
        "ratio:Q",
        scale=alt.Scale(type="log"),
        title="times better than RocketMQ, for Spark than its Kafka connector (logarithmic)",
    )
    bars = base.mark_bar(color="#4c8dd6").encode(x=axis, x2=alt.datum(1))
    labels = base.mark_text(align="left", dx=4).encode(x=axis, text=alt.Text("ratio:Q", format=".2f"))
    goals = base.mark_tick(color="#e5484d", thickness=2).encode(x="goal:Q")
    alt.layer(bars, labels, goals).properties(width=560).save(str(path))


def save_growth_plot(growth: Sequence[dict[str, float]], path: Path) -> None:
    """Save each cost over the size of the store, with axes from zero, as SVG.

    Raises ModuleNotFoundError without altair.
    """
    import altair as alt

    # The first recovery is left out, because it reads the whole store.
    costs = [name for name in _measured(growth) if name not in ("size_gib", "rebuild_ms")]
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
        return _UNKNOWN
    samples = outcome.samples[side]
    return f"{median:,.0f} ({min(samples):,.0f}–{max(samples):,.0f})"


def _ratio(outcome: Outcome) -> str:
    if outcome.error:
        return "failed"
    return f"{outcome.ratio:.2f}" if outcome.ratio else _UNKNOWN


def _goal(outcome: Outcome) -> str:
    return f"{outcome.row.goal:g}" if outcome.row.goal else ""
