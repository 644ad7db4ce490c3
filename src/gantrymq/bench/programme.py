"""All races there are, in the order they are run in."""

from __future__ import annotations

from collections.abc import Iterator

from gantrymq.bench.race import Race
from gantrymq.bench.races import brokers, puts, reads, recoveries, spark
from gantrymq.bench.track import Track


def all_races(track: Track) -> Iterator[Race]:
    """Every race for this track."""
    yield from puts.races(track)
    yield from reads.races(track)
    yield from recoveries.races(track)
    yield from brokers.races(track)
    yield from spark.races(track)


def chosen(track: Track, words: tuple[str, ...]) -> list[Race]:
    """The races whose name holds one of ``words`` (all where there is none)."""
    return [race for race in all_races(track) if not words or any(word in race.name for word in words)]
