"""What charts share. Colours that must differ between light and dark are left to the page (page.js)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what it says in one sentence and what to know when reading it."""

    name: str
    title: str
    note: str
    spec: dict[str, Any]
    is_wide: bool = False


def data(rows: Rows) -> alt.InlineData:
    """Rows as they are put into the page."""
    return alt.InlineData(values=list(rows))


def finished(chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int) -> dict[str, Any]:
    """The specification of a chart as wide as the page lets it be."""
    sized = chart.properties(width="container", height=height)
    spec: dict[str, Any] = sized.to_dict()
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    # The page has its own theme.
    spec.pop("config", None)
    return spec
