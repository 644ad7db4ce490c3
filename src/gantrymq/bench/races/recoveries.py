"""Recovery and rebuild of a store that the real RocketMQ wrote and left in different ways.

Java's time is that of its load(), and where something is dispatched only after it, until dispatch has caught up; the
start of the JVM is not in it. Ours is the whole process of the command, its start and its clean close included. The
races of whole processes compare like with like: Java's time begins with the JVM there, and ours is the same.

The stores of many files are nearly all hole. Java may look at all of them there: of ten at most, as it does unless
told, it would lose what stands in the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gantrymq.bench.process import command_ms, run_command
from gantrymq.bench.race import Race
from gantrymq.bench.races.sparse_log import write_files
from gantrymq.bench.track import Track, copy_of
from gantrymq.format.names import ABORT

_MESSAGES = 2_000_000
_BODY_SIZE = 1024
_DERIVED = ("consumequeue", "index")
_FILES = (2, 10, 50)
_RECORDS_A_FILE = 20_000
_ALL_FILES = {"commitLogRecoverMaxNum": 1000}


def races(track: Track) -> Iterator[Race]:
    """After SIGKILL, after a clean exit, without queues and index; of many files; and the rebuild command."""
    if track.java is None:
        return  # the store to recover is Java's
    killed, closed = Preparation(track, True), Preparation(track, False)
    yield _recovery(track, "recovery after SIGKILL", killed, goal=10.0)
    yield _recovery(track, "recovery after kill -9, whole processes", killed, of_process=True)
    yield _recovery(track, "recovery after a clean exit", closed)
    yield _recovery(track, "recovery without queues and index", killed, goal=10.0, lacks=_DERIVED)
    for files in _FILES:
        sparse = SparsePreparation(track, files)
        yield _recovery(track, f"recovery after a kill, {files} files of 1 GiB", sparse)
        yield _recovery(track, f"recovery of {files} files of 1 GiB, nothing but the log", sparse, lacks=_DERIVED)
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


class SparsePreparation:
    """A store of so many files of 1 GiB with some records each, all on the disk when its writer was killed."""

    def __init__(self, track: Track, files: int) -> None:
        self._track = track
        self._files = files

    def __call__(self, folder: Path) -> None:
        """Write the log, and let our recovery make the rest of it."""
        store = folder / "store"
        write_files(store, 0, self._files, self._track.amount(_RECORDS_A_FILE))
        run_command("store", "recover", str(store))
        (store / ABORT).touch()


def _copy_without(folder: Path, lacks: tuple[str, ...]) -> Path:
    copy = copy_of(folder / "store")
    for name in lacks:
        shutil.rmtree(copy / name)
    return copy


def _recovery(
    track: Track,
    name: str,
    prepare: Callable[[Path], None],
    *,
    goal: float | None = None,
    lacks: tuple[str, ...] = (),
    of_process: bool = False,
) -> Race:
    def java(folder: Path) -> float:
        return _java_ms(track, _copy_without(folder, lacks), "ready" if lacks else "load", of_process=of_process)

    def ours(folder: Path) -> float:
        return command_ms("store", "recover", str(_copy_without(folder, lacks)))

    return Race(name, "ms", track.sides(java, ours), goal, True, prepare, _note(of_process))


def _rebuild(
    track: Track, name: str, prepare: Preparation, *, goal: float | None = None, of_process: bool = False
) -> Race:
    def java(folder: Path) -> float:
        return _java_ms(track, _copy_without(folder, _DERIVED), "ready", of_process=of_process)

    def ours(folder: Path) -> float:
        return command_ms("store", "rebuild", str(copy_of(folder / "store")))

    return Race(name, "ms", track.sides(java, ours), goal, True, prepare, _note(of_process))


def _java_ms(track: Track, store: Path, until: str, *, of_process: bool) -> float:
    line = track.other.run("recover-time", store, _ALL_FILES, start=True)
    return float(line[f"{until}SinceJvmStartMillis" if of_process else f"{until}Millis"])


def _note(of_process: bool) -> str:
    return "both from the start of their process" if of_process else "Java without the start of its JVM, ours with all"
