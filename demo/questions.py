"""Questions about the flights, answered twice: by Spark from the store and by pyarrow from the input file.

Every question is SQL over the view ``flights``: the store as Spark reads it, with the JSON bodies parsed.
``expected`` computes the same table from the CSV with pyarrow.compute. All numbers are whole (counts, sums, maxima), so
both must be equal to the last digit. :func:`compare` compares them. Shares and means are computed for the report only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demo.messages import QUEUES, TOPIC_PREFIX, uniq_key

Key = tuple[object, ...]
Numbers = tuple[object, ...]


ON_TIME_MINUTES = 15
LATE_MINUTES = 60


@dataclass(frozen=True, slots=True)
class Question:
    """One question. The first ``key_count`` columns of its answer name a group, the others are numbers."""

    name: str
    title: str
    key_count: int
    sql: str
    expected: Callable[[pa.Table], pa.Table]


def _grouped(table: pa.Table, keys: list[str], **numbers: tuple[str, pa.ChunkedArray]) -> pa.Table:
    """Group by ``keys``, with a column for each of ``numbers`` (how to aggregate, the values)."""
    wide = table.select(keys)
    for name, (_, values) in numbers.items():
        wide = wide.append_column(name, values)
    grouped = wide.group_by(keys).aggregate([(name, how) for name, (how, _) in numbers.items()])
    aggregated = grouped.select(keys + [f"{name}_{how}" for name, (how, _) in numbers.items()])
    return aggregated.rename_columns(keys + list(numbers))


def _ones(flights: pa.Table) -> tuple[str, pa.ChunkedArray]:
    return "sum", pa.chunked_array([np.ones(flights.num_rows, np.int64)])


def _where(condition: pa.ChunkedArray) -> tuple[str, pa.ChunkedArray]:
    """Count the rows for which a condition is true; null counts as false."""
    return "sum", pc.cast(pc.fill_null(condition, False), pa.int64())


def _totals(flights: pa.Table) -> pa.Table:
    one_group = flights.append_column("all", pa.array(["all"]).take(pa.array(np.zeros(flights.num_rows, np.int8))))
    return _grouped(
        one_group,
        ["all"],
        messages=_ones(flights),
        uniq_keys=("count_distinct", pa.array([uniq_key(row) for row in range(flights.num_rows)])),
        departed=_where(pc.is_valid(flights["dep_time"])),
        arrived=_where(pc.is_valid(flights["arr_delay"])),
        dep_delay=("sum", flights["dep_delay"]),
        arr_delay=("sum", flights["arr_delay"]),
        distance=("sum", flights["distance"]),
        air_time=("sum", flights["air_time"]),
        planes=("count_distinct", pc.fill_null(flights["tailnum"], "")),
        destinations=("count_distinct", flights["dest"]),
    )


def _queues(flights: pa.Table) -> pa.Table:
    topic = pc.binary_join_element_wise(TOPIC_PREFIX, flights["origin"], "")
    queue_id = pa.array(np.arange(flights.num_rows) % QUEUES)
    table = pa.table({"topic": topic, "queue_id": queue_id})
    counted = _grouped(table, ["topic", "queue_id"], messages=_ones(flights))
    count = counted["messages"]
    zeros = pc.multiply(count, 0)
    return counted.append_column("first", zeros).append_column("last", pc.subtract(count, 1))


def _carriers(flights: pa.Table) -> pa.Table:
    late = flights["arr_delay"]
    return _grouped(
        flights,
        ["carrier"],
        flights=_ones(flights),
        flight_numbers=("count_distinct", flights["flight"]),
        departed=_where(pc.is_valid(flights["dep_time"])),
        arrived=_where(pc.is_valid(late)),
        on_time=_where(pc.less(late, ON_TIME_MINUTES)),
        arr_delay=("sum", late),
        worst=("max", late),
    )


def _hours(flights: pa.Table) -> pa.Table:
    return _grouped(
        flights,
        ["hour", "carrier"],
        departed=_where(pc.is_valid(flights["dep_delay"])),
        dep_delay=("sum", flights["dep_delay"]),
        worst=("max", flights["dep_delay"]),
    )


def _days(flights: pa.Table) -> pa.Table:
    return _grouped(
        flights,
        ["month", "day"],
        flights=_ones(flights),
        departed=_where(pc.is_valid(flights["dep_delay"])),
        dep_delay=("sum", flights["dep_delay"]),
        hour_late=_where(pc.greater_equal(flights["dep_delay"], LATE_MINUTES)),
    )


def _cancellations(flights: pa.Table) -> pa.Table:
    cancelled = _where(pc.is_null(flights["dep_time"]))
    return _grouped(flights, ["month", "origin"], flights=_ones(flights), cancelled=cancelled)


def _routes(flights: pa.Table) -> pa.Table:
    return _grouped(
        flights,
        ["origin", "dest"],
        flights=_ones(flights),
        miles=("max", flights["distance"]),
        arrived=_where(pc.is_valid(flights["arr_delay"])),
        arr_delay=("sum", flights["arr_delay"]),
    )


def _minutes(flights: pa.Table) -> pa.Table:
    return _grouped(flights, ["hour", "minute"], flights=_ones(flights))


QUESTIONS = (
    Question(
        "totals",
        "How many, how late, how far?",
        1,
        """SELECT 'all', count(*) AS messages, count(DISTINCT properties['UNIQ_KEY']) AS uniq_keys,
                  count(dep_time) AS departed, count(arr_delay) AS arrived, sum(dep_delay) AS dep_delay,
                  sum(arr_delay) AS arr_delay, sum(distance) AS distance, sum(air_time) AS air_time,
                  count(DISTINCT coalesce(tailnum, '')) AS planes, count(DISTINCT dest) AS destinations
           FROM flights""",
        _totals,
    ),
    Question(
        "queues",
        "Which queue holds how many messages?",
        2,
        """SELECT topic, queue_id, count(*) AS messages, min(queue_offset) AS first, max(queue_offset) AS last
           FROM flights GROUP BY topic, queue_id""",
        _queues,
    ),
    Question(
        "carriers",
        "Who is on time?",
        1,
        f"""SELECT tags AS carrier, count(*) AS flights, count(DISTINCT get(keys, 0)) AS flight_numbers,
                   count(dep_time) AS departed, count(arr_delay) AS arrived,
                   count_if(arr_delay < {ON_TIME_MINUTES}) AS on_time, sum(arr_delay) AS arr_delay,
                   max(arr_delay) AS worst
            FROM flights GROUP BY tags""",
        _carriers,
    ),
    Question(
        "hours",
        "How late, by hour and carrier?",
        2,
        """SELECT hour, carrier, count(dep_delay) AS departed, sum(dep_delay) AS dep_delay, max(dep_delay) AS worst
           FROM flights GROUP BY hour, carrier""",
        _hours,
    ),
    Question(
        "days",
        "Which were the worst days?",
        2,
        f"""SELECT month, day, count(*) AS flights, count(dep_delay) AS departed, sum(dep_delay) AS dep_delay,
                   count_if(dep_delay >= {LATE_MINUTES}) AS hour_late
            FROM flights GROUP BY month, day""",
        _days,
    ),
    Question(
        "cancellations",
        "How many were cancelled, by month and airport?",
        2,
        """SELECT month, origin, count(*) AS flights, count_if(dep_time IS NULL) AS cancelled
           FROM flights GROUP BY month, origin""",
        _cancellations,
    ),
    Question(
        "routes",
        "Which routes are the busiest?",
        2,
        """SELECT origin, dest, count(*) AS flights, max(distance) AS miles, count(arr_delay) AS arrived,
                  sum(arr_delay) AS arr_delay
           FROM flights GROUP BY origin, dest""",
        _routes,
    ),
    Question(
        "minutes",
        "At which minute of the day are they to leave? (born timestamps, New York time)",
        2,
        """SELECT hour(local) AS hour, minute(local) AS minute, count(*) AS flights
           FROM (SELECT from_utc_timestamp(born_timestamp, 'America/New_York') AS local FROM flights)
           GROUP BY hour(local), minute(local)""",
        _minutes,
    ),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one comparison: the number of groups and of numbers, and the differences, one line each."""

    name: str
    title: str
    groups: int
    numbers: int
    differences: tuple[str, ...]


def compare(question: Question, answer: pa.Table, expected: pa.Table) -> Comparison:
    """Compare group by group; neither side may have a group that the other lacks."""
    ours, theirs = _by_key(answer, question.key_count), _by_key(expected, question.key_count)
    differences = tuple(_differences(question.name, answer.column_names[question.key_count :], ours, theirs))
    numbers = sum(len(values) for values in theirs.values())
    return Comparison(question.name, question.title, len(theirs), numbers, differences)


def _by_key(table: pa.Table, key_count: int) -> dict[Key, Numbers]:
    columns = [column.to_pylist() for column in table.columns]
    return {row[:key_count]: row[key_count:] for row in zip(*columns, strict=True)}


def _differences(name: str, labels: list[str], ours: dict[Key, Numbers], theirs: dict[Key, Numbers]) -> Iterator[str]:
    for key in sorted(ours.keys() | theirs.keys(), key=repr):
        where = f"{name} {' '.join(map(str, key))}"
        if key not in theirs:
            yield f"{where}: Spark has {ours[key]}, the input has no such group"
        elif key not in ours:
            yield f"{where}: the input has {theirs[key]}, Spark has no such group"
        else:
            pairs = zip(labels, ours[key], theirs[key], strict=True)
            yield from (f"{where}: {label} is {a} in Spark, {b} in the input" for label, a, b in pairs if a != b)
