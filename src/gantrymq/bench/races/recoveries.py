"""Recovery and rebuild of a store that the real RocketMQ wrote and left in different ways.

Java's time is that of its load(), and where something is dispatched only after it, until dispatch has caught up; the
start of the JVM is not in it. Ours is the whole process of the command, its start and its clean close included. The
races of whole processes compare like with like: Java's time begins with the JVM there, and ours is the same.
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
_DERIVED = ("consumequeue", "index")


def races(track: Track) -> Iterator[Race]:
    """After SIGKILL, after a clean exit, without queues and index; and the rebuild command."""
    if track.java is None:
        return  # the store to recover is Java's
    killed, closed = Preparation(track, True), Preparation(track, False)
    yield _recovery(track, "recovery after SIGKILL", killed, goal=10.0)
    yield _recovery(track, "recovery after kill -9, whole processes", killed, of_process=True)
    yield _recovery(track, "recovery after a clean exit", closed)
    yield _recovery(track, "recovery without queues and index", killed, goal=10.0, lacks=_DERIVED)
    yield _rebuild(track, "rebuild queues and index", closed, goal=10.0)
    yield _rebuild(track, "queues and index anew, whole processes", closed, of_process=True)


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


def _recovery(
    track: Track,
    name: str,
    prepare: Preparation,
    *,
    goal: float | None = None,
    lacks: tuple[str, ...] = (),
    of_process: bool = False,
) -> Race:
    def java(folder: Path) -> float:
        return _java_ms(track, _copy_without(folder, lacks), "ready" if lacks else "load", of_process=of_process)

    def ours(folder: Path) -> float:
        return _took_ms("store", "recover", str(_copy_without(folder, lacks)))

    return Race(name, "ms", track.sides(java, ours), goal, True, prepare, _note(of_process))


def _rebuild(
    track: Track, name: str, prepare: Preparation, *, goal: float | None = None, of_process: bool = False
) -> Race:
    def java(folder: Path) -> float:
        return _java_ms(track, _copy_without(folder, _DERIVED), "ready", of_process=of_process)

    def ours(folder: Path) -> float:
        return _took_ms("store", "rebuild", str(copy_of(folder / "store")))

    return Race(name, "ms", track.sides(java, ours), goal, True, prepare, _note(of_process))


def _java_ms(track: Track, store: Path, until: str, *, of_process: bool) -> float:
    line = track.other.run("recover-time", store, start=True)
    return float(line[f"{until}SinceJvmStartMillis" if of_process else f"{until}Millis"])


def _note(of_process: bool) -> str:
    return "both from the start of their process" if of_process else "Java without the start of its JVM, ours with all"


def _took_ms(*words: str) -> float:
    began = time.perf_counter()
    run_command(*words)
    return (time.perf_counter() - began) * 1000
