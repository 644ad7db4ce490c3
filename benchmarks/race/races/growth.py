"""Costs that must not grow with the store: time and memory of opening it, recovering it, getting from it.

A clean open reads only the ends; recovery after a kill begins with the last files. If the real RocketMQ is available,
its load() is measured too, without the start of its JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.race.process import run_ours, timed_command
from benchmarks.race.races.sparse_log import write_files
from benchmarks.race.track import Track
from gantrymq.format.names import ABORT

_RECORDS_A_FILE = 1000
_GETS = 20_000

# The costs at one size: times in ms (of a get in µs), memory in MiB without page cache.
Costs = dict[str, float]


def measure(track: Track, folder: Path, sizes_gib: Sequence[int], report: Callable[[str], None]) -> Iterator[Costs]:
    """Yield the costs at every size, ascending. The same store grows from one size to the next."""
    store, made = folder / "growing", 0
    for size_gib in sizes_gib:
        report(f"a store of {size_gib} GiB")
        write_files(store, max(made - 1, 0), size_gib, _RECORDS_A_FILE)
        made = size_gib
        costs = {"size_gib": float(size_gib), **_ours(store)}
        if track.java is not None:
            costs |= _theirs(track, store)
        yield costs


def _ours(store: Path) -> Costs:
    rebuild_ms = timed_command("store", "recover", str(store))[1]
    opened = run_ours("open_reader", store=store)
    info_ms = timed_command("store", "info", str(store))[1]
    got = run_ours("get_each", store=store, count=_GETS)
    (store / ABORT).write_text("1")
    return {
        "rebuild_ms": rebuild_ms,
        "open_ms": opened["openMs"],
        "info_ms": info_ms,
        "recover_ms": timed_command("store", "recover", str(store))[1],
        "get_us": got["getMicros"],
        "rss_anon_mib": opened["rssAnonMib"],
    }


def _theirs(track: Track, store: Path) -> Costs:
    """Measure RocketMQ, and leave the store as after a kill, for our recovery.

    RocketMQ's load alone creates no abort file.
    """
    closed = track.other.run("recover-time", store)
    (store / ABORT).touch()
    killed = track.other.run("recover-time", store)
    return {
        "java_open_ms": closed["loadMillis"],
        "java_recover_ms": killed["loadMillis"],
        "java_rss_anon_mib": closed["rssAnonMib"],
    }
