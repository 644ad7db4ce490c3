"""Reads from a store that the real RocketMQ wrote: every message of every queue, and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantrymq.bench.process import run_ours
from gantrymq.bench.race import Race
from gantrymq.bench.track import Track, forget_pages

_MESSAGES = 500_000
_QUERIES = 20_000
_BODY_SIZE = 1024
_BATCH = 32


def races(track: Track) -> Iterator[Race]:
    """Get with warm and with cold pages, and query."""
    for is_cold in (False, True):
        yield _get(track, is_cold)
    yield _query(track)


def _store(track: Track, folder: Path) -> None:
    count = track.amount(_MESSAGES)
    if track.java is not None:
        track.java.run("put-bench", folder / "store", count=count, threads=2, body_size=_BODY_SIZE)
    else:
        run_ours("put", store=folder / "store", count=count, threads=1, body_size=_BODY_SIZE, settings={})


def _get(track: Track, is_cold: bool) -> Race:
    def ready(folder: Path) -> Path:
        if is_cold:
            forget_pages(folder / "store")
        return folder / "store"

    def java(folder: Path) -> float:
        return float(track.other.run("get-bench", ready(folder), batch=_BATCH, decode=True)["perSecond"])

    def ours(folder: Path) -> float:
        return float(run_ours("get", store=ready(folder), batch=_BATCH)["perSecond"])

    name = f"get {_BODY_SIZE} B, {'cold' if is_cold else 'warm'}"
    sides = track.sides(java, ours)
    return Race(name, "messages/s", sides, prepare=lambda folder: _store(track, folder), note="decoded")


def _query(track: Track) -> Race:
    count = track.amount(_QUERIES)

    def java(folder: Path) -> float:
        work: dict[str, Any] = {"messages": track.amount(_MESSAGES), "count": count}
        return float(track.other.run("query-bench", folder / "store", **work)["perSecond"])

    def ours(folder: Path) -> float:
        work: dict[str, Any] = {"messages": track.amount(_MESSAGES), "count": count}
        return float(run_ours("query", store=folder / "store", **work)["perSecond"])

    sides = track.sides(java, ours)
    return Race("query by key", "queries/s", sides, prepare=lambda folder: _store(track, folder), note="decoded")
