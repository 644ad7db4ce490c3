"""Puts into a store: one by one, as lists and as tables, with and without waiting for the disk.

Both sides put some messages before the measurement, so that the JVM has compiled the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.race.process import Line, run_ours
from benchmarks.race.race import Race, Row, Side
from benchmarks.race.track import Track, fresh

_SYNC = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 60_000}
_MESSAGES = {100: 1_000_000, 1024: 1_000_000, 16384: 100_000}
_WARM_UP = {100: 100_000, 1024: 100_000, 16384: 10_000}
_PRODUCERS = (1, 2, 16)
_SYNC_MESSAGES = {1: 5_000, 2: 10_000, 16: 100_000}
_SYNC_WARM_UP = {1: 500, 2: 1_000, 16: 10_000}
_SYNC_BODY_SIZE = 1024
_BATCH = 5_000
_UNIT = "messages/s"


def races(track: Track) -> Iterator[Race]:
    """Single puts by body size and producers, their dispatch, batches by body size, SYNC_FLUSH by producers."""
    for body_size, threads in product(_MESSAGES, _PRODUCERS):
        yield _single(track, body_size, threads)
    for body_size in _MESSAGES:
        yield _batch(track, "table", body_size)
        yield _batch(track, "list", body_size)
    for producers in (1, 2):
        yield _sync(track, producers, "threads", _SYNC_BODY_SIZE)
    for ours_are, body_size in (("coroutines", 1024), ("threads", 1024), ("coroutines", 100), ("coroutines", 16384)):
        yield _sync(track, 16, ours_are, body_size)


def _work(track: Track, body_size: int, threads: int) -> dict[str, Any]:
    count = track.amount(_MESSAGES[body_size])
    return {"count": count, "threads": threads, "body_size": body_size, "warm_up": _warm_up(_WARM_UP[body_size], count)}


def _warm_up(full: int, count: int) -> int:
    """The messages that a JVM needs to warm up, but at most four times the work of a small race."""
    return min(full, 4 * count)


def _of_java(track: Track, work: dict[str, Any], settings: dict[str, Any]) -> Side:
    """RocketMQ's side: threads that put one by one, whatever our side does."""

    def java(folder: Path) -> Line:
        return track.other.put(fresh(folder), settings, **work, halt=True)

    return java


def _single(track: Track, body_size: int, threads: int) -> Race:
    work = _work(track, body_size, threads)

    def ours(folder: Path) -> Line:
        return run_ours("put", store=fresh(folder), settings={}, **work)

    rows = [Row(f"put {body_size} B, {_producers(threads)}", "putPerSecond", _UNIT, 1.0, note="acknowledged")]
    if threads == 1:
        note = "put one by one, until queues and index have the last of them"
        rows.append(Row(f"dispatch {body_size} B", "dispatchedPerSecond", _UNIT, note=note))
    return Race(rows, track.sides(_of_java(track, work, {}), ours))


def _producers(count: int) -> str:
    return f"{count} producer{'s' * (count > 1)}"


def _batch(track: Track, form: str, body_size: int) -> Race:
    work = _work(track, body_size, 2)

    def ours(folder: Path) -> Line:
        batches = {"count": work["count"], "warm_up": work["warm_up"], "batch": _BATCH, "body_size": body_size}
        return run_ours(f"put_{form}", store=fresh(folder), settings={}, **batches)

    of_form = {"table": "tables made before", "list": "lists whose messages are made within the time"}[form]
    note = f"with dispatch caught up; Java puts one by one with two producers; ours are {of_form}"
    row = Row(f"put {form} {body_size} B", "dispatchedPerSecond", _UNIT, 5.0, note=note)
    return Race([row], track.sides(_of_java(track, work, {}), ours))


def _sync(track: Track, producers: int, ours_are: str, body_size: int) -> Race:
    """RocketMQ's producers are threads. Ours are threads, or coroutines that await ``put_async``."""
    count = track.amount(_SYNC_MESSAGES[producers])
    work: dict[str, Any] = {
        "count": count,
        "body_size": body_size,
        "warm_up": _warm_up(_SYNC_WARM_UP[producers], count),
    }
    worker = {"threads": "put", "coroutines": "put_async"}[ours_are]

    def ours(folder: Path) -> Line:
        return run_ours(worker, store=fresh(folder), settings=_SYNC, **work, **{ours_are: producers})

    are_many = producers > 1 and ours_are == "threads"
    who = f"{producers} producer threads" if are_many else _producers(producers)
    name, goal = f"put SYNC_FLUSH {body_size} B, {who}", 1.2 if producers == 16 else None
    note = f"acknowledged; ours are {ours_are}, RocketMQ's threads"
    java = _of_java(track, work | {"threads": producers}, _SYNC)
    return Race([Row(name, "putPerSecond", _UNIT, goal, note=note)], track.sides(java, ours))
