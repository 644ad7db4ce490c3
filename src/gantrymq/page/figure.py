"""The figures of a report. Colours that differ between light and dark are set by the page (page.js)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart. ``title`` states its result in one sentence; ``note`` says what to know when reading it.

    ``spec`` is its Vega-Lite specification.
    """

    name: str
    title: str
    note: str
    spec: dict[str, Any]
    is_wide: bool = False


def data(rows: Rows) -> alt.InlineData:
    """Return rows as inline data of a chart."""
    return alt.InlineData(values=list(rows))


def full_width_spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int) -> dict[str, Any]:
    """Return the specification of a chart that fills the width of the page."""
    sized = chart.properties(width="container", height=height)
    spec: dict[str, Any] = sized.to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    # The page has its own theme.
    spec.pop("config", None)
    return spec
