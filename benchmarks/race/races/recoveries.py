"""Recovery and rebuild of a store that the real RocketMQ wrote and left in different ways.

Java's time is that of its load(), plus the time until dispatch has caught up if something is dispatched afterwards. It
does not include the start of the JVM. Our time is that of the whole command, with its start and clean close. The
figures of whole processes compare like with like: Java's then includes the JVM, as does its CPU time. Both must find
the same end of the log. A store of 64 messages shows what the start of a command costs: nearly all of it is imports.

The killed store was killed while two threads put, so some messages are not dispatched yet.

The stores of many files are mostly holes. Java is configured to recover all files: by default it recovers at most ten,
and would lose the records in the others.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.race.process import Line, run_command, timed_command, with_cpu
from benchmarks.race.race import Race, Row
from benchmarks.race.races.sparse_log import write_files
from benchmarks.race.track import Track, copy_of
from gantrymq.format.names import ABORT

_MESSAGES = 2_000_000
_BODY_SIZE = 1024
_DERIVED = ("consumequeue", "index")
_FILES = (2, 10, 50)
_RECORDS_A_FILE = 20_000
_ALL_FILES = {"commitLogRecoverMaxNum": 1000}
_OF_A_START = 64  # messages
_STARTS = 5  # a round
_LEAST_SHARE = 0.8  # of an accepted ratio of CPU times


def races(track: Track) -> Iterator[Race]:
    """After SIGKILL, after a clean exit, without queues and index; of many files; and the rebuild command."""
    if track.java is None:
        return  # the store to recover is Java's
    count = track.amount(_MESSAGES)

    def killed(folder: Path) -> None:
        options = {"threads": 2, "profile": "plain", "topics": "bench:4", "body_size": _BODY_SIZE}
        track.other.kill_while_writing(folder / "store", count=2 * count, kill_after=count, **options)

    def closed(folder: Path) -> None:
        track.other.put(folder / "store", count=count, threads=2, body_size=_BODY_SIZE)

    yield _recovery(track, "recovery after SIGKILL", killed, goal=10.0, whole="recovery after kill -9, whole processes")
    yield _recovery(track, "recovery after a clean exit", closed)
    yield _recovery(track, "recovery without queues and index", killed, goal=10.0, lacks=_DERIVED)
    for files in _FILES:
        sparse = SparsePreparation(track, files)
        yield _recovery(track, f"recovery after a kill, {files} files of 1 GiB", sparse)
        yield _recovery(track, f"recovery of {files} files of 1 GiB, nothing but the log", sparse, lacks=_DERIVED)
    yield _rebuild(track, closed)
    yield _start(track)


class SparsePreparation:
    """A store of several files of 1 GiB with some records each, synced before its writer was killed."""

    def __init__(self, track: Track, files: int) -> None:
        self._track = track
        self._files = files

    def __call__(self, folder: Path) -> None:
        """Write the log, and let our recovery make the rest of the store."""
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
    whole: str = "",
) -> Race:
    def java(folder: Path) -> Line:
        return _java(track, _copy_without(folder, lacks), "ready" if lacks else "load")

    def ours(folder: Path) -> Line:
        return _ours("store", "recover", str(_copy_without(folder, lacks)))

    return Race(_rows(name, goal, whole), track.sides(java, ours), ("maxPhyOffset",), prepare)


def _rebuild(track: Track, prepare: Callable[[Path], None]) -> Race:
    def java(folder: Path) -> Line:
        return _java(track, _copy_without(folder, _DERIVED), "ready")

    def ours(folder: Path) -> Line:
        return _ours("store", "rebuild", str(copy_of(folder / "store")))

    rows = _rows("rebuild queues and index", 10.0, "queues and index anew, whole processes")
    return Race(rows, track.sides(java, ours), ("maxPhyOffset",), prepare)


def _rows(name: str, goal: float | None, whole: str) -> list[Row]:
    note = "Java without the start of its JVM, ours with all"
    rows = [Row(name, "workMillis", "ms", goal, less_is_better=True, note=note)]
    if whole:
        note = "both from the start of their process"
        rows.append(Row(whole, "processMillis", "ms", less_is_better=True, note=note))
        rows.append(_cpu_row(f"{name}, CPU"))
    return rows


def _cpu_row(name: str) -> Row:
    note = "user and system time of both whole processes"
    return Row(name, "cpuMillis", "ms", less_is_better=True, note=note, least_share=_LEAST_SHARE)


def _start(track: Track) -> Race:
    """A recovery that has next to nothing to read: the median of a few, so that one slow start does not count."""

    def prepare(folder: Path) -> None:
        track.other.put(folder / "store", count=_OF_A_START, threads=1, body_size=_BODY_SIZE)

    def java(folder: Path) -> Line:
        return _middle([_java(track, copy_of(folder / "store"), "load") for _ in range(_STARTS)])

    def ours(folder: Path) -> Line:
        return _middle([_ours("store", "recover", str(copy_of(folder / "store"))) for _ in range(_STARTS)])

    rows = [_cpu_row("start of the command, CPU")]
    return Race(rows, track.sides(java, ours), ("maxPhyOffset",), prepare)


def _middle(lines: list[Line]) -> Line:
    return lines[0] | {"cpuMillis": statistics.median(line["cpuMillis"] for line in lines)}


def _java(track: Track, store: Path, until: str) -> Line:
    line = with_cpu(lambda: track.other.run("recover-time", store, _ALL_FILES, start=True))
    return line | {"workMillis": line[f"{until}Millis"], "processMillis": line[f"{until}SinceJvmStartMillis"]}


def _ours(*words: str) -> Line:
    def run() -> Line:
        line, took_ms = timed_command(*words)
        return line | {"workMillis": took_ms, "processMillis": took_ms}

    return with_cpu(run)
