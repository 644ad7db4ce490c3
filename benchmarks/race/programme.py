"""All races, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.race.race import Race
from benchmarks.race.races import (
    brokers,
    clients,
    grpc,
    puts,
    reads,
    recoveries,
    replication,
    signed_sends,
    spark,
    tables,
)
from benchmarks.race.track import Track


def all_races(track: Track) -> Iterator[Race]:
    """Every race for this track."""
    yield from puts.races(track)
    yield from reads.races(track)
    yield from recoveries.races(track)
    yield from brokers.races(track)
    yield from signed_sends.races(track)
    yield from replication.races(track)
    yield from grpc.races(track)
    yield from clients.races(track)
    yield from spark.races(track)
    yield from tables.races(track)


def chosen(track: Track, words: tuple[str, ...]) -> list[Race]:
    """The races whose name holds one of ``words`` in any case, with only the matching figures.

    Without words, all races.
    """
    races = []
    for race in all_races(track):
        rows = [row for row in race.rows if not words or any(word.casefold() in row.name.casefold() for word in words)]
        if rows:
            races.append(replace(race, rows=rows))
    return races
