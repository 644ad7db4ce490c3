"""Charts of Spark's answers about the flights. Each title is computed from the numbers."""

from __future__ import annotations

import calendar
from datetime import date
from typing import Any

import altair as alt
import pyarrow as pa

from demo.questions import ON_TIME_MINUTES
from gantrymq.page.figure import Figure, Rows, data, full_width_spec

_NAMES = {
    "9E": "Endeavor",
    "AA": "American",
    "AS": "Alaska",
    "B6": "JetBlue",
    "DL": "Delta",
    "EV": "ExpressJet",
    "F9": "Frontier",
    "FL": "AirTran",
    "HA": "Hawaiian",
    "MQ": "Envoy",
    "OO": "SkyWest",
    "UA": "United",
    "US": "US Airways",
    "VX": "Virgin America",
    "WN": "Southwest",
    "YV": "Mesa",
}


def airline(code: str) -> str:
    """The airline's name and code."""
    return f"{_NAMES[code]} {code}" if code in _NAMES else code


AIRPORTS = ["EWR", "JFK", "LGA"]


def airport_colour(field: str = "origin") -> alt.Color:
    """The colour of an airport, the same in every chart of the page."""
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=AIRPORTS), legend=alt.Legend(orient="top", title=None))


YEAR = 2013
_ROUTES_SHOWN = 15
# Smaller groups say little about the whole. They are drawn, but not named in a title.
_SMALL = 100


def flight_figures(tables: dict[str, pa.Table]) -> list[Figure]:
    """All charts, in the order of the page."""
    rows = {name: table.to_pylist() for name, table in tables.items()}
    return [
        _hours(rows["hours"]),
        _days(rows["days"]),
        _carriers(rows["carriers"]),
        _cancellations(rows["cancellations"]),
        _routes(rows["routes"]),
        _minutes(rows["minutes"]),
    ]


def _ratio(part: int | None, whole: int) -> float | None:
    return round((part or 0) / whole, 4) if whole else None


def _hours(rows: Rows) -> Figure:
    shown = [
        {
            "hour": row["hour"],
            "carrier": airline(row["carrier"]),
            "flights": row["departed"],
            "mean": _ratio(row["dep_delay"], row["departed"]),
            "worst": row["worst"],
        }
        for row in rows
        if row["departed"]
    ]
    chart = (
        alt.Chart(data(shown))
        .mark_rect(cornerRadius=2)
        .encode(
            x=alt.X("hour:O", title="scheduled hour of departure", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("carrier:N", title=None, sort=_by_departures(rows)),
            color=alt.Color(
                "mean:Q",
                title="mean delay, minutes",
                scale=alt.Scale(domain=[0, 45], clamp=True, interpolate="rgb"),
                legend=alt.Legend(orient="top", gradientLength=160),
            ),
            tooltip=[
                alt.Tooltip("carrier:N"),
                alt.Tooltip("hour:O"),
                alt.Tooltip("mean:Q", title="mean delay (min)", format=".1f"),
                alt.Tooltip("flights:Q", title="departures", format=","),
                alt.Tooltip("worst:Q", title="worst delay (min)", format=","),
            ],
        )
    )
    note = "Mean departure delay, busiest carriers on top; an early departure counts as negative."
    return Figure("hours", _hours_title(rows), note, full_width_spec(chart, 380), is_wide=True)


def _by_departures(rows: Rows) -> list[str]:
    """The carriers, busiest first. Those at the bottom have too few flights for a meaningful mean."""
    departures: dict[str, int] = {}
    for row in rows:
        departures[row["carrier"]] = departures.get(row["carrier"], 0) + row["departed"]
    return [airline(code) for code in sorted(departures, key=departures.__getitem__, reverse=True)]


def _hours_title(rows: Rows) -> str:
    totals: dict[int, tuple[int, int]] = {}
    for row in rows:
        count, delay = totals.get(row["hour"], (0, 0))
        totals[row["hour"]] = (count + row["departed"], delay + (row["dep_delay"] or 0))
    means = {hour: delay / count for hour, (count, delay) in totals.items() if count >= _SMALL}
    if len(means) < 2:
        return "Departure delays by hour and carrier"
    best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    return (
        f"Delays pile up through the day: {means[best]:.1f} minutes at {best}:00, {means[worst]:.0f} at {worst}:00"
        if best < worst
        else f"The latest hour is {worst}:00, with {means[worst]:.0f} minutes on average"
    )


def _days(rows: Rows) -> Figure:
    shown = []
    for row in rows:
        day = date(YEAR, row["month"], row["day"])
        shown.append(
            {
                # Weeks begin on Monday; week 0 is the one with New Year's Day.
                "week": (day.timetuple().tm_yday + date(YEAR, 1, 1).weekday() - 1) // 7,
                "weekday": calendar.day_abbr[day.weekday()],
                "day": day.isoformat(),
                "mean": _ratio(row["dep_delay"], row["departed"]),
                "flights": row["flights"],
                "cancelled": row["flights"] - row["departed"],
                "hour_late": row["hour_late"],
            }
        )
    chart = (
        alt.Chart(data(shown))
        .mark_rect(cornerRadius=1.5)
        .encode(
            x=alt.X("week:O", title=None, axis=alt.Axis(values=_month_weeks(), labelExpr=_MONTH_LABELS, labelAngle=0,
                                                       labelOverlap=True, ticks=False)),
            y=alt.Y("weekday:N", title=None, sort=list(calendar.day_abbr)),
            color=alt.Color(
                "mean:Q",
                title="mean delay, minutes",
                scale=alt.Scale(domain=[0, 60], clamp=True, interpolate="rgb"),
                legend=alt.Legend(orient="top", gradientLength=160),
            ),
            tooltip=[
                alt.Tooltip("day:N"),
                alt.Tooltip("mean:Q", title="mean delay (min)", format=".1f"),
                alt.Tooltip("flights:Q", format=","),
                alt.Tooltip("hour_late:Q", title="an hour late or more", format=","),
                alt.Tooltip("cancelled:Q", format=","),
            ],
        )
    )  # fmt: skip
    note = "Mean departure delay of each day; a column is a week."
    return Figure("days", _days_title(rows), note, full_width_spec(chart, 190), is_wide=True)


def _month_weeks() -> list[int]:
    first = date(YEAR, 1, 1)
    days = [(date(YEAR, month, 1) - first).days for month in range(1, 13)]
    return [(day + first.weekday()) // 7 for day in days]


_MONTH_LABELS = (
    "{"
    + ",".join(f"{week}:'{calendar.month_abbr[place + 1]}'" for place, week in enumerate(_month_weeks()))
    + "}[datum.value]"
)


def worst_days(rows: Rows, count: int) -> list[dict[str, Any]]:
    """The days with the highest mean delay, worst first, with their names."""
    usual = [row for row in rows if row["departed"] >= _SMALL]
    ranked = sorted(usual, key=lambda row: row["dep_delay"] / row["departed"], reverse=True)[:count]
    return [
        {
            "day": f"{row['day']} {calendar.month_name[row['month']]}",
            "mean": row["dep_delay"] / row["departed"],
            "hour_late": row["hour_late"],
            "cancelled": row["flights"] - row["departed"],
            "flights": row["flights"],
        }
        for row in ranked
    ]


def _days_title(rows: Rows) -> str:
    worst = worst_days(rows, 1)
    if not worst:
        return "Departure delays by day"
    return f"{worst[0]['day']} was the worst day: {worst[0]['mean']:.0f} minutes late on average"


def _carriers(rows: Rows) -> Figure:
    shown = [
        {
            "carrier": airline(row["carrier"]),
            "share": _ratio(row["on_time"], row["arrived"]),
            "arrived": row["arrived"],
            "mean": _ratio(row["arr_delay"], row["arrived"]),
            "worst": row["worst"],
        }
        for row in rows
        if row["arrived"]
    ]
    base = alt.Chart(data(shown)).encode(
        y=alt.Y("carrier:N", title=None, sort="-x"),
        x=alt.X("share:Q", title="share of arrivals", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        tooltip=[
            alt.Tooltip("carrier:N"),
            alt.Tooltip("share:Q", title="on time", format=".1%"),
            alt.Tooltip("arrived:Q", title="arrivals", format=","),
            alt.Tooltip("mean:Q", title="mean delay (min)", format=".1f"),
            alt.Tooltip("worst:Q", title="worst (min)", format=","),
        ],
    )
    labels = base.mark_text(align="left", dx=4).encode(text=alt.Text("share:Q", format=".0%"))
    title = "On-time arrivals by carrier"
    known = [row for row in shown if row["arrived"] >= _SMALL]
    if known:
        best, worst = max(known, key=_share), min(known, key=_share)
        title = f"{best['carrier'][:-3]} lands on time most often, {worst['carrier'][:-3]} least"
    note = f"Less than {ON_TIME_MINUTES} minutes late counts as on time."
    return Figure("carriers", title, note, full_width_spec(alt.layer(base.mark_bar(cornerRadiusEnd=3), labels), 380))


def _share(row: dict[str, Any]) -> float:
    return float(row["share"] or 0)


def _cancellations(rows: Rows) -> Figure:
    shown = [
        {
            "month": calendar.month_abbr[row["month"]],
            "origin": row["origin"],
            "cancelled": row["cancelled"],
            "flights": row["flights"],
            "share": _ratio(row["cancelled"], row["flights"]),
        }
        for row in rows
    ]
    months = [calendar.month_abbr[month] for month in sorted({row["month"] for row in rows})]
    chart = (
        alt.Chart(data(shown))
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("month:N", sort=months, title=None, axis=alt.Axis(labelAngle=0)),
            xOffset="origin:N",
            y=alt.Y("share:Q", title="share of flights cancelled", axis=alt.Axis(format="%", tickCount=6)),
            color=airport_colour(),
            tooltip=[
                alt.Tooltip("origin:N", title="airport"),
                alt.Tooltip("month:N"),
                alt.Tooltip("share:Q", title="cancelled", format=".1%"),
                alt.Tooltip("cancelled:Q", title="flights cancelled", format=","),
                alt.Tooltip("flights:Q", title="of", format=","),
            ],
        )
    )
    worst = max(rows, key=lambda row: row["cancelled"] / row["flights"])
    share = worst["cancelled"] / worst["flights"]
    title = f"{calendar.month_name[worst['month']]} hit {worst['origin']} hardest: {share:.1%} of its flights cancelled"
    return Figure(
        "cancellations", title, "A flight without a departure time was cancelled.", full_width_spec(chart, 380)
    )


def _routes(rows: Rows) -> Figure:
    busiest = sorted(rows, key=lambda row: row["flights"], reverse=True)[:_ROUTES_SHOWN]
    shown = [
        {
            "route": f"{row['origin']} → {row['dest']}",
            "origin": row["origin"],
            "flights": row["flights"],
            "miles": row["miles"],
            "mean": _ratio(row["arr_delay"], row["arrived"]),
        }
        for row in busiest
    ]
    chart = (
        alt.Chart(data(shown))
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            y=alt.Y("route:N", title=None, sort="-x"),
            x=alt.X("flights:Q", title="flights", axis=alt.Axis(format="~s", tickCount=5)),
            color=airport_colour(),
            tooltip=[
                alt.Tooltip("route:N"),
                alt.Tooltip("flights:Q", format=","),
                alt.Tooltip("miles:Q", format=","),
                alt.Tooltip("mean:Q", title="mean arrival delay (min)", format=".1f"),
            ],
        )
    )
    top = shown[0]
    title = f"{top['route']} is the busiest of {len(rows)} routes: {top['flights']:,} flights"
    return Figure(
        "routes", title, f"The {len(shown)} busiest; hover for distance and delay.", full_width_spec(chart, 380)
    )


def _minutes(rows: Rows) -> Figure:
    shown = [{"at": row["hour"] + row["minute"] / 60, "time": _clock(row), "flights": row["flights"]} for row in rows]
    chart = (
        alt.Chart(data(shown))
        .mark_rule(strokeWidth=1.2)
        .encode(
            x=alt.X(
                "at:Q",
                title="scheduled departure, New York time",
                scale=alt.Scale(domain=[0, 24], nice=False),
                axis=alt.Axis(values=list(range(0, 25, 3)), labelExpr="datum.value + ':00'", labelOverlap=True),
            ),
            y=alt.Y("flights:Q", title="flights in the year"),
            y2=alt.datum(0),
            tooltip=[alt.Tooltip("time:N"), alt.Tooltip("flights:Q", format=",")],
        )
    )
    top = max(rows, key=lambda row: row["flights"])
    title = f"{_clock(top)} is the busiest minute of the day: {top['flights']:,} flights"
    note = "Out of the messages' born timestamps: a message is born when its flight is to leave."
    return Figure("minutes", title, note, full_width_spec(chart, 380))


def _clock(row: dict[str, Any]) -> str:
    return f"{row['hour']:02d}:{row['minute']:02d}"
