"""Puts into a store: one by one, as lists and as tables, with and without waiting for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from gantrymq.bench.process import run_ours
from gantrymq.bench.race import Race
from gantrymq.bench.track import Track, fresh

_SYNC = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 60_000}
_MESSAGES = {100: 1_000_000, 1024: 1_000_000, 16384: 100_000}
_PRODUCERS = (1, 2, 16)
_SYNC_MESSAGES = {1: 5_000, 2: 10_000, 16: 100_000}
_BATCH = 5_000


def races(track: Track) -> Iterator[Race]:
    """Single puts by body size and producers, their dispatch, batches by body size, SYNC_FLUSH by producers."""
    for body_size, threads in product(_MESSAGES, _PRODUCERS):
        yield _single(track, body_size, threads)
    for body_size in _MESSAGES:
        yield _dispatch(track, body_size)
    for body_size in _MESSAGES:
        yield _batch(track, "table", body_size)
        yield _batch(track, "list", body_size)
    for producers in (1, 2):
        yield _sync(track, producers, "threads")
    for ours_are in ("coroutines", "threads"):
        yield _sync(track, 16, ours_are)


def _single(track: Track, body_size: int, threads: int) -> Race:
    name = f"put {body_size} B, {_producers(threads)}"
    return _one_by_one(track, name, "putPerSecond", body_size, threads, goal=1.0, note="acknowledged")


def _dispatch(track: Track, body_size: int) -> Race:
    note = "put one by one, until queues and index have the last of them"
    return _one_by_one(track, f"dispatch {body_size} B", "dispatchedPerSecond", body_size, 1, note=note)


def _one_by_one(track: Track, name: str, measure: str, body_size: int, threads: int, **of_race: Any) -> Race:
    work: dict[str, Any] = {"count": track.amount(_MESSAGES[body_size]), "threads": threads, "body_size": body_size}

    def java(folder: Path) -> float:
        return float(track.other.run("put-bench", fresh(folder), **work, halt=True)[measure])

    def ours(folder: Path) -> float:
        return float(run_ours("put", store=fresh(folder), settings={}, **work)[measure])

    return Race(name, "messages/s", track.sides(java, ours), **of_race)


def _producers(count: int) -> str:
    return f"{count} producer{'s' * (count > 1)}"


def _batch(track: Track, form: str, body_size: int) -> Race:
    count = track.amount(_MESSAGES[body_size])

    def java(folder: Path) -> float:
        line = track.other.run("put-bench", fresh(folder), count=count, threads=2, body_size=body_size, halt=True)
        return float(line["dispatchedPerSecond"])

    def ours(folder: Path) -> float:
        work = {"count": count, "batch": _BATCH, "body_size": body_size}
        return float(run_ours(f"put_{form}", store=fresh(folder), settings={}, **work)["dispatchedPerSecond"])

    note = "with dispatch caught up; Java puts one by one with two producers"
    return Race(f"put {form} {body_size} B", "messages/s", track.sides(java, ours), goal=5.0, note=note)


def _sync(track: Track, producers: int, ours_are: str) -> Race:
    """RocketMQ's producers are threads; ours are threads too, or coroutines, of which each awaits ``put_async``."""
    work: dict[str, Any] = {"count": track.amount(_SYNC_MESSAGES[producers]), "body_size": 1024}
    worker = {"threads": "put", "coroutines": "put_async"}[ours_are]

    def java(folder: Path) -> float:
        line = track.other.run("put-bench", fresh(folder), _SYNC, **work, threads=producers, halt=True)
        return float(line["putPerSecond"])

    def ours(folder: Path) -> float:
        return float(
            run_ours(worker, store=fresh(folder), settings=_SYNC, **work, **{ours_are: producers})["putPerSecond"]
        )

    are_many = producers > 1 and ours_are == "threads"
    who = f"{producers} producer threads" if are_many else _producers(producers)
    name = f"put SYNC_FLUSH 1024 B, {who}"
    goal = 1.2 if producers == 16 else None
    return Race(name, "messages/s", track.sides(java, ours), goal=goal, note=f"acknowledged; ours are {ours_are}")
