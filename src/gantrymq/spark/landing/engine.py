"""The engine on Spark: a :class:`gantrymq.tables.local.engine.LocalEngine` whose files are written by executors.

Each task reads some parts of the log, or some slices of queues, and writes their rows as files of the table. Its result
is the list of these files, so no row comes to the driver. Spark may run a task several times, and two attempts of it at
once. Each attempt writes files of its own, and only those of the attempt whose result Spark takes are committed.

Attempts that were killed leave files. Their names begin like those of the commit, so the driver finds and removes them.
An attempt that Spark has abandoned and that still writes after that leaves a file that no reader sees.

Thread rule: the driver's thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from gantrymq.model.shares import contiguous
from gantrymq.spark.pipelines.jobs import TASK_BYTES, Mount, each, shared_directory, while_spark_runs
from gantrymq.store.log.log_reader import LogFile
from gantrymq.tables.bodies.body_format import BodyFormat, GrowingFormat
from gantrymq.tables.landing import DEFAULT_COMMIT_ROWS
from gantrymq.tables.local.engine import FileTarget, LocalEngine, Writing
from gantrymq.tables.local.format_table import FormatTable
from gantrymq.tables.local.freed_memory import keep_freed_memory, release_freed_memory
from gantrymq.tables.local.part_files import PartFiles
from gantrymq.tables.rows import BodyGrowth, Conversion, RowKind, audit_rows, landed_batches
from gantrymq.tables.sources.log_part import LogPart, files_between
from gantrymq.tables.sources.steps import AuditFinding, StepPart
from gantrymq.tables.state import TableFile
from gantrymq.tools.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_A_CORE = 3
_COMMIT_ROWS_A_CORE = 250_000
_TOKEN_BYTES = 8
_ANY_HOST = Mount(Location(""), {}, None)
_BY_EXECUTORS = (RowKind.ROWS, RowKind.DEAD)


class SparkEngine(LocalEngine):
    """Lands in one table; implements :class:`gantrymq.tables.engine.LandingEngine`."""

    def __init__(self, table: FormatTable, spark: SparkSession) -> None:
        super().__init__(table)
        self._spark = spark

    def write_parts(self, writing: Writing, parts: Sequence[StepPart]) -> None:
        """Let executors write the files of the parts. Rows with keys wait for each other, on the driver.

        Raises the errors of their reading and writing, StoreError if the Spark job fails, SparkEndedError.
        """
        if writing.conversion.upserts is not None:
            super().write_parts(writing, parts)
            return
        pieces = [_Piece(piece, mount) for part in parts for mount in [_mount(part)] for piece in part.divided()]
        if not pieces:
            return
        with while_spark_runs(self._spark):
            count = min(len(pieces), cores(self._spark) * _TASKS_A_CORE)
        tasks = [_Task(tuple(contiguous(pieces, number, count)), writing.conversion.bodies) for number in range(count)]
        for written in self._written(writing, tasks):
            for kind, files in written.files.items():
                writing.add_written(kind, files)
            if written.findings:
                writing.add(RowKind.AUDIT, audit_rows(written.findings), written.findings)

    def _written(self, writing: Writing, tasks: list[_Task]) -> list[_Written]:
        """The results of the tasks.

        A task whose bodies need new columns runs again when the table has them. It then begins with the format that the
        messages of earlier tasks have left, as one process that reads all of them does.
        """
        conversion = writing.conversion
        done: dict[int, _Written] = {}
        waiting = list(range(len(tasks)))
        while waiting:
            results = self._run(writing, conversion, [tasks[number] for number in waiting])
            done |= dict(zip(waiting, results, strict=True))
            waiting = [number for number in waiting if done[number].lacks_columns]
            bodies = writing.conversion.bodies
            for number, task in enumerate(tasks):
                if number in waiting:
                    tasks[number] = replace(task, bodies=bodies)
                if (grown := done[number].grown) is not None:
                    bodies = cast(GrowingFormat, bodies).joined(grown)
            if waiting:
                conversion = replace(conversion, bodies=bodies)
                writing.change_schema(conversion.schema)
            writing.growth.bodies = bodies
        return [done[number] for number in range(len(tasks))]

    def _run(self, writing: Writing, conversion: Conversion, tasks: Sequence[_Task]) -> list[_Written]:
        """Run the tasks, which write files with the columns of ``conversion``."""
        job = _Job({kind: writing.target(kind) for kind in _BY_EXECUTORS}, conversion)
        try:
            with _shared(job.targets) as mount, while_spark_runs(self._spark):
                done = each(self._spark, tasks, partial(_write, job), lambda _: TASK_BYTES, mount)
        except BaseException:
            job.remove_others((), everywhere=True)
            raise
        if self._repeats_tasks or any(written.attempt for written in done):
            job.remove_others(done)
        return done

    @property
    def _repeats_tasks(self) -> bool:
        """Whether Spark runs a second attempt of a task beside the first."""
        return self._spark.conf.get("spark.speculation", "false") == "true"


def cores(spark: SparkSession) -> int:
    """The number of tasks that Spark runs at once."""
    return spark.sparkContext.defaultParallelism


def default_commit_rows(spark: SparkSession) -> int:
    """The rows of a commit if none are given: enough for every core."""
    return max(DEFAULT_COMMIT_ROWS, cores(spark) * _COMMIT_ROWS_A_CORE)


@dataclass(frozen=True, slots=True)
class _Written:
    """The result of a task: its files, its findings, and the number of its attempt.

    ``grown`` is the format after its bodies if that is another one. If they need columns that the table lacks, there
    are no files.
    """

    files: Mapping[RowKind, tuple[TableFile, ...]]
    findings: tuple[AuditFinding, ...]
    grown: GrowingFormat | None
    lacks_columns: bool
    attempt: int


class _Job:
    """The writing of one step; it can be pickled. The names of all its files begin with a prefix of their own."""

    def __init__(self, targets: Mapping[RowKind, FileTarget], conversion: Conversion) -> None:
        self.targets, self.conversion = targets, conversion
        self._token = secrets.token_hex(_TOKEN_BYTES)

    def writer(self, kind: RowKind) -> PartFiles:
        """The writer of a task."""
        return self.targets[kind].writer(self._token)

    def has_columns_of(self, growth: BodyGrowth) -> bool:
        """Whether the files have the columns that bodies need, as far as they were read."""
        bodies = self.conversion.bodies
        if growth.bodies is bodies or not isinstance(bodies, GrowingFormat):
            return True
        return bool(bodies.joined(cast(GrowingFormat, growth.bodies)).schema == bodies.schema)

    def remove_others(self, done: Sequence[_Written], *, everywhere: bool = False) -> None:
        """Remove the files of attempts that are not in ``done``.

        Attempts of a task write into the same partitions, so only those of ``done`` are searched. ``everywhere`` is for
        a job that has failed.
        """
        for kind, target in self.targets.items():
            files = [file for written in done for file in written.files.get(kind, ())]
            partitions = None if everywhere else sorted({file.partition for file in files}, key=str)
            wanted = {file.path for file in files}
            for path in list(target.files.paths_named(f"{target.prefix}-{self._token}", partitions)):
                if path not in wanted:
                    target.files.remove(path)


class _Piece(NamedTuple):
    """A part for one task, and what its log requires of the host."""

    part: StepPart
    mount: Mount


@dataclass(frozen=True, slots=True)
class _Task:
    """Consecutive parts, and the format of the first body."""

    pieces: tuple[_Piece, ...]
    bodies: BodyFormat


def _mount(part: StepPart) -> Mount:
    files = _log_files(part)
    return Mount.of(files) if files else _ANY_HOST


def _log_files(part: StepPart) -> list[LogFile]:
    return files_between(part.plan.files, part.begin, part.end) if isinstance(part, LogPart) else []


@contextmanager
def _shared(targets: Mapping[RowKind, FileTarget]) -> Iterator[Mount]:
    """Requires the directories of the tables on each host, for the ``with`` block."""
    mount = _ANY_HOST
    with ExitStack() as stack:
        for target in targets.values():
            if target.files.local_root is not None:
                mount = stack.enter_context(shared_directory(mount, target.files.local_root))
        yield mount


# On executors


def _write(job: _Job, task: _Task) -> _Written:
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    writers = {kind: job.writer(kind) for kind in _BY_EXECUTORS}
    growth = BodyGrowth(task.bodies)
    keep_freed_memory()
    try:
        findings = _write_rows(job, task, growth, writers)
        grown = None if growth.bodies is task.bodies else cast(GrowingFormat, growth.bodies)
        if findings is None:
            _abandon(writers)
            return _Written({}, (), grown, True, attempt)
        return _Written({kind: writer.finish() for kind, writer in writers.items()}, findings, grown, False, attempt)
    except BaseException:
        _abandon(writers)
        raise
    finally:
        release_freed_memory()


def _write_rows(
    job: _Job, task: _Task, growth: BodyGrowth, writers: Mapping[RowKind, PartFiles]
) -> tuple[AuditFinding, ...] | None:
    """Write the rows; returns the findings, or None if a body needs a column that the files lack."""
    every: list[AuditFinding] = []
    columns = replace(job.conversion, bodies=task.bodies).schema
    is_narrow = False
    for part, mount in task.pieces:
        mount.require(_log_files(part))
        for kind, batch, findings in landed_batches(part, job.conversion, growth):
            if kind is RowKind.AUDIT:
                every += findings
            elif not (is_narrow := is_narrow or not job.has_columns_of(growth)):
                if kind is RowKind.ROWS and batch.schema != columns:
                    columns = batch.schema
                    writers[kind].finish()  # the batches of a file have the same columns
                writers[kind].add(batch)
    return None if is_narrow else tuple(every)


def _abandon(writers: Mapping[RowKind, PartFiles]) -> None:
    for writer in writers.values():
        writer.abandon()
