"""What the charts share. Colours that must differ between light and dark are left to the page (page.js)."""

from __future__ import annotations

import altair as alt

AIRPORTS = ["EWR", "JFK", "LGA"]


def airport_colour(field: str = "origin") -> alt.Color:
    """The airports keep their colours on the whole page, however many of them there are in a chart."""
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=AIRPORTS), legend=alt.Legend(orient="top", title=None))
