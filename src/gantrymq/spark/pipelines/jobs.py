"""Runs one task for each item on executors that have the driver's files, and collects the results.

A result is one pickled value for each item, so it must not grow with the messages. An error of gantrymq is raised on
the driver as it was, without a retry, because a full disk would still be full. Other errors are left to Spark, which
retries the task and finally fails the job.

Executors get paths, not files. A disk that is not mounted, or a mount of something else, would be read as an empty or a
damaged store, or would receive output that is then missing, without an error. A task therefore compares the log files
that it is about to read with the fingerprints of the driver (:class:`Mount`), and a writing task looks for a file that
the driver has put into the directory for this purpose.

Thread rule: the driver's thread; a Mount also in a task's own.
"""

from __future__ import annotations

import pickle
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from gantrymq.errors import GantrymqError, StoreError
from gantrymq.format.names import offset_name
from gantrymq.spark.log_file import MARK_BYTES, LogEnd, LogMark, NotThereError, OpenLogFile, require_retention
from gantrymq.store.log.log_reader import LogFile
from gantrymq.tools.locations import Location

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

STEP = "Spark's tasks"
_RESULT = "result"
TASK_BYTES = 256 << 20  # starting a task costs as much as reading about 100 MB
_TASKS_A_CORE = 3
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Mount:
    """What a task requires of its host; picklable.

    ``marks`` are fingerprints of the beginnings of log files, by path, for files that are readable and not empty.
    ``tokens`` are files that the driver has put into the directories that tasks write to.
    """

    log: Location
    marks: dict[Path, LogMark]
    end: LogEnd | None
    tokens: tuple[Path, ...] = ()

    @classmethod
    def of(cls, files: Sequence[LogFile]) -> Mount:
        """The mount of a log with these files, in one directory or several."""
        directories = tuple(dict.fromkeys(str(file.path.parent) for file in files)) or ("",)
        marks = {file.path: mark for file in files if (mark := _mark(file)) is not None}
        named = (file for file in reversed(files) if file.path.name == offset_name(file.base) and file.path in marks)
        last = next(named, None)
        end = None if last is None else LogEnd(last.base, marks[last.path])
        return cls(Location(directories[0], None, directories if len(directories) > 1 else ()), marks, end)

    def require(self, items: Sequence[object] = ()) -> None:
        """Raise StoreError if this host has another log or lacks a directory.

        ``items`` that are log files are checked too.
        """
        for token in self.tokens:
            if not token.exists():
                raise StoreError(
                    token.parent,
                    f"on host {socket.gethostname()} is not the directory that the driver has there; mount it under "
                    "this path, then run the job again",
                )
        if self.end is not None:
            self._require(self.log / offset_name(self.end.base), self.end.base, self.end.mark, None)
        for item in items:
            if isinstance(item, LogFile) and item.path in self.marks:
                self._require(Location(str(item.path), None, self.log.logs), item.base, self.marks[item.path], self.end)

    def _require(self, location: Location, base: int, mark: LogMark, end: LogEnd | None) -> None:
        """Raise StoreError if a file has another beginning, or is missing for another reason than retention."""
        try:
            with OpenLogFile(location) as opened:
                mark.require(opened)
        except NotThereError as error:
            require_retention(error, location, base, end)


def _mark(file: LogFile) -> LogMark | None:
    """The mark of a file's beginning; None if the beginning is empty or unreadable."""
    size = min(MARK_BYTES, file.size_bytes)
    try:
        with OpenLogFile(Location(str(file.path))) as opened:
            if any(opened.read_readable(0, size)):
                return LogMark.read(opened, 0, size)
    except StoreError:
        pass  # the task that reads the file reports it
    return None


@contextmanager
def shared_directory(mount: Mount, directory: Path) -> Iterator[Mount]:
    """Yield a mount that also requires the existing ``directory``, for the ``with`` block."""
    token = directory / f".seen-by-executors-{uuid.uuid4().hex}"
    token.touch()
    try:
        yield Mount(mount.log, mount.marks, mount.end, (*mount.tokens, token))
    finally:
        token.unlink(missing_ok=True)


class SparkEndedError(GantrymqError):
    """The process of Spark's driver has ended during a job."""

    def __init__(self) -> None:
        super().__init__("Spark's process has ended during a job; start the command again, and see Spark's log for why")


@contextmanager
def while_spark_runs(spark: SparkSession) -> Iterator[None]:
    """Raise SparkEndedError in place of the errors of a connection to a Spark that has ended."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        try:
            spark.sparkContext._jvm.System.currentTimeMillis()  # type: ignore[union-attr]
        except (Py4JError, ConnectionError):
            raise SparkEndedError from error
        raise


Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error on its way to the driver. Exceptions with their own constructor cannot be pickled."""

    kind: type[GantrymqError]
    text: str
    fields: dict[str, Any]

    @classmethod
    def of(cls, error: GantrymqError) -> _Failure:
        return cls(type(error), str(error), vars(error))

    def error(self) -> GantrymqError:
        error = self.kind.__new__(self.kind, self.text)
        error.args = (self.text,)
        error.__dict__.update(self.fields)
        return error


def packed(value: object) -> bytes:
    """Pickle a result for the driver."""
    return pickle.dumps(value)


def guarded(results: Callable[[], Iterable[Value]], pack: Callable[[Value | _Failure], Any]) -> Iterator[Any]:
    """Yield ``pack`` of each result, and of the error that ended them."""
    try:
        yield from map(pack, results())
    except GantrymqError as error:
        yield pack(_Failure.of(error))


def each(
    spark: SparkSession,
    items: Sequence[Item],
    task: Callable[[Item], Value],
    size_bytes: Callable[[Item], int],
    mount: Mount,
) -> list[Value]:
    """Return ``task(item)`` of every item, in order. Each runs on some executor, perhaps more than once.

    ``size_bytes(item)`` is what a task reads or writes, ``mount`` what it requires of its host. Raises the errors of
    gantrymq that ``task`` raises, and StoreError if a host has other files or the Spark job fails.
    """
    groups = worth_a_task(items, size_bytes)
    if not groups:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in item_numbers(batches):
            values = list(guarded(partial(_mounted, mount, task, groups[number]), packed))
            columns = [pa.array([number] * len(values), pa.int64()), pa.array(values, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["number", _RESULT])

    rows = collected(
        numbered_partitions(spark, len(groups)).mapInArrow(run, f"number long, {_RESULT} binary"), "number"
    )
    return [value for _, value in sorted(rows, key=itemgetter(0))]


def _mounted(mount: Mount, task: Callable[[Item], Value], items: Sequence[Item]) -> Iterator[Value]:
    mount.require(items)
    yield from map(task, items)


def worth_a_task(items: Sequence[Item], size_bytes: Callable[[Item], int]) -> list[list[Item]]:
    """The items in groups of neighbours, each large enough for a task."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        if room <= 0:
            groups.append([])
            room = TASK_BYTES
        groups[-1].append(item)
        room -= size_bytes(item)
    return groups


def numbered_partitions(spark: SparkSession, count: int) -> DataFrame:
    """The numbers of ``count`` items, each in its own partition."""
    return spark.range(0, count, 1, count)


def item_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """The item numbers that a task gets from :func:`numbered_partitions`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def collected(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """(columns ``names`` …, result) of every row. Raises the first error among the results."""
    from pyspark.errors import PySparkException

    try:
        table = frame.select(*names, _RESULT).toArrow()
    except PySparkException as error:
        raise StoreError("spark", f"the job failed: {_last_line(error)}") from error
    values = [pickle.loads(raw) for raw in table.column(_RESULT).to_pylist()]
    for value in values:
        if isinstance(value, _Failure):
            raise value.error()
    return list(zip(*(table.column(name).to_pylist() for name in names), values, strict=True))


def reduce_tasks(spark: SparkSession, read_tasks: int) -> int:
    """The number of partitions for the shuffle after ``read_tasks`` tasks."""
    return min(read_tasks, spark.sparkContext.defaultParallelism * _TASKS_A_CORE)


def _last_line(error: Exception) -> str:
    """The line of a Python worker's traceback that has the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line.split(":", 1)[0] and not line.startswith(("at ", "["))]
    return (named or lines or [type(error).__name__])[-1]


@contextmanager
def watched(spark: SparkSession, report: Callable[[str, int, int], None] | None) -> Iterator[None]:
    """Call ``report(step, done, total)`` with the counts of the Spark tasks that the ``with`` block starts."""
    if report is None:
        yield
        return
    group, ended = f"gantrymq-{uuid.uuid4().hex}", threading.Event()
    context = spark.sparkContext
    context.setJobGroup(group, "gantrymq")
    watching = threading.Thread(target=_watch, args=(context, group, report, ended), name="SparkProgress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _watch(context: SparkContext, group: str, report: Callable[[str, int, int], None], ended: threading.Event) -> None:
    tracker = context.statusTracker()
    counts: dict[int, tuple[int, int]] = {}
    while not ended.wait(_LOOK_EVERY_S):
        for job in map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)):
            for stage in map(tracker.getStageInfo, job.stageIds if job else ()):
                if stage is not None:
                    counts[stage.stageId] = (stage.numCompletedTasks, stage.numTasks)
        report(STEP, sum(done for done, _ in counts.values()), sum(total for _, total in counts.values()))
