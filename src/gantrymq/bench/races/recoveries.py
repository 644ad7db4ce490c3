"""Recovery and rebuild of a store that the real RocketMQ wrote and left in different ways.

Java's time is that of its load(), and where something is dispatched only after it, until dispatch has caught up; the
start of the JVM is not in it. Ours is the whole process of the command, its start and its clean close included.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gantrymq.bench.process import run_command
from gantrymq.bench.race import Race
from gantrymq.bench.track import Track, copy_of

_MESSAGES = 2_000_000
_BODY_SIZE = 1024


def races(track: Track) -> Iterator[Race]:
    """After SIGKILL, after a clean exit, without queues and index; and the rebuild command."""
    if track.java is None:
        return  # the store to recover is Java's
    yield _recovery(track, "after SIGKILL", is_killed=True, lacks=())
    yield _recovery(track, "after a clean exit", is_killed=False, lacks=())
    yield _recovery(track, "without queues and index", is_killed=True, lacks=("consumequeue", "index"))
    yield _rebuild(track)


class Preparation:
    """Writes the store with Java; called with the folder of the race."""

    def __init__(self, track: Track, is_killed: bool) -> None:
        self._track = track
        self._is_killed = is_killed

    def __call__(self, folder: Path) -> None:
        """Write it."""
        options: dict[str, Any] = {"count": self._track.amount(_MESSAGES), "threads": 2, "body_size": _BODY_SIZE}
        if self._is_killed:
            options["halt"] = True
        self._track.other.run("put-bench", folder / "store", **options)


def _copy_without(folder: Path, lacks: tuple[str, ...]) -> Path:
    copy = copy_of(folder / "store")
    for name in lacks:
        shutil.rmtree(copy / name)
    return copy


def _recovery(track: Track, name: str, *, is_killed: bool, lacks: tuple[str, ...]) -> Race:
    def java(folder: Path) -> float:
        line = track.other.run("recover-time", _copy_without(folder, lacks), start=True)
        return float(line["readyMillis" if lacks else "loadMillis"])

    def ours(folder: Path) -> float:
        return _took_ms("store", "recover", str(_copy_without(folder, lacks)))

    prepare = Preparation(track, is_killed)
    goal = 10.0 if is_killed else None
    return Race(f"recovery {name}", "ms", track.sides(java, ours), goal, True, prepare)


def _rebuild(track: Track) -> Race:
    lacks = ("consumequeue", "index")

    def java(folder: Path) -> float:
        return float(track.other.run("recover-time", _copy_without(folder, lacks), start=True)["readyMillis"])

    def ours(folder: Path) -> float:
        return _took_ms("store", "rebuild", str(copy_of(folder / "store")))

    return Race("rebuild queues and index", "ms", track.sides(java, ours), 10.0, True, Preparation(track, False))


def _took_ms(*words: str) -> float:
    began = time.perf_counter()
    run_command(*words)
    return (time.perf_counter() - began) * 1000
