"""Verify on Spark: the findings of :mod:`gantrymq.tools.verify`, in the same order.

1. A task for each index file checks its header and chains, and finds its first entry that points into each log file.
The comparison with that log file's records begins there, in any task.

2. A task for each log file reads it. It reduces what the log's check needs to a few facts, compares the index entries,
and passes the units that the records must have to a shuffle.

3. Tasks that get all units of some queues compare them with the queues' files.

Only a few numbers for each file and each queue, and the findings, come to the driver. The driver joins them in the
order of the log, and checks the entries that are out of place once more.

Thread rule: the driver's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import file_size
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark.pipelines.jobs import Mount, each
from gantrymq.spark.pipelines.unit_rows import QueueRows, UnitRow, UnitRows, by_queue, result
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.tools.audit.queue_runs import Coverage
from gantrymq.tools.check.index_check import IndexCheck, IndexComparison
from gantrymq.tools.check.log_check import LogCheck, LogFact, RecordFacts
from gantrymq.tools.check.queue_check import QueueCheck, RecordsWithoutEntry
from gantrymq.tools.check.small_files_check import TableDecoders
from gantrymq.tools.findings import Finding
from gantrymq.tools.read.record_lookup import RecordLookup
from gantrymq.tools.verify import Verification, VerifyPlan, log_events, verify_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Position = tuple[int, int]
"""(number of an index file, number of an entry)."""


@dataclass(frozen=True, slots=True)
class _IndexFileChecked:
    """``firsts`` are the file's first entries that point at or after the begin of each log file; 0 for none."""

    findings: list[Finding]
    begin_ms: int
    firsts: list[int]


@dataclass(frozen=True, slots=True)
class _LogFileRead:
    """The result of reading one log file."""

    base: int
    facts: list[LogFact]
    compared: IndexComparison | None
    position: Position


@dataclass(frozen=True, slots=True)
class _QueueCompared:
    """One queue as in :class:`~gantrymq.tools.check.queue_check.CheckedQueue`, without its files."""

    topic: str
    queue_id: int
    coverage: Coverage
    without_entry: RecordsWithoutEntry
    older: RecordsWithoutEntry


def verify_on_spark(
    spark: SparkSession,
    path: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    now_ms: int | None = None,
    decoders: TableDecoders | None = None,
) -> Verification:
    """As :func:`gantrymq.tools.verify.verify_store`; the iteration also raises StoreError if the Spark job fails."""
    engine = _VerifyOnSpark(spark)
    return verify_store(Path(path).absolute(), config, given=given, now_ms=now_ms, engine=engine, decoders=decoders)


class _VerifyOnSpark:
    """The engine of one verification."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._starts: dict[int, Position] = {}
        self._begins_ms: list[int] = []

    def check_index(self, plan: VerifyPlan, index: IndexCheck) -> Iterator[Finding]:
        """Check each index file by itself."""
        size_bytes = file_size(plan.index_slots, plan.index_entries)
        numbers = range(len(plan.index_paths or ()))
        seen = each(self._spark, numbers, partial(_check_index_file, plan), lambda _: size_bytes, Mount.of(plan.files))
        for outcome in seen:
            yield from outcome.findings
        self._begins_ms = index.begins_ms = [outcome.begin_ms for outcome in seen]
        for number, file in enumerate(plan.files):
            firsts = [(at, outcome.firsts[number]) for at, outcome in enumerate(seen) if outcome.firsts[number]]
            self._starts[file.base] = firsts[0] if firsts and number else (len(seen) if number else 0, 1)

    def read_log(
        self, plan: VerifyPlan, log: LogCheck, queues: QueueCheck, index: IndexCheck | None
    ) -> Iterator[Finding]:
        """Pass the results of the executors to the checks."""
        if not plan.files:
            return
        read = partial(_read, plan, self._starts, self._begins_ms)
        results = by_queue(self._spark, plan.files, read, partial(_compare, plan), Mount.of(plan.files))
        for outcome in sorted(
            (outcome for outcome in results if isinstance(outcome, _LogFileRead)), key=lambda outcome: outcome.base
        ):
            for fact in outcome.facts:
                yield from log.take(fact)
            if index is not None and outcome.compared is not None:
                index.compared.append(outcome.compared)
                index.position = outcome.position
        for outcome in results:
            if isinstance(outcome, _QueueCompared):
                queues.take(outcome.topic, outcome.queue_id, outcome.coverage, outcome.without_entry, outcome.older)


# On executors


def _check_index_file(plan: VerifyPlan, number: int) -> _IndexFileChecked:
    fs, log = RealFileSystem(), plan.log_check()
    lookup = RecordLookup(fs, log.file_at)
    index = plan.index_check(fs, log, lookup)
    assert index is not None
    findings = list(index.check_file(number))
    lookup.close()
    bases = np.array([file.base for file in plan.files], np.int64)
    return _IndexFileChecked(findings, index.begins_ms[number], index.first_entries(number, bases).tolist())


def _read(
    plan: VerifyPlan, starts: dict[int, Position], begins_ms: list[int], file: LogFile
) -> Iterator[UnitRow | bytes]:
    fs, log = RealFileSystem(), plan.log_check()
    index = plan.index_check(fs, log, RecordLookup(fs, log.file_at))
    if index is not None:
        index.begins_ms, index.position = begins_ms, starts[file.base]
    rows, facts = UnitRows(plan.config.delay_levels_ms), list[LogFact]()
    for event in one_ahead(log_events(fs, [file])):
        _add(facts, log.fact(event))
        if isinstance(event, RecordBatch):
            if index is not None:
                index.add(event)
            yield from rows.of(event)
    behind = [later_file.base for later_file in plan.files if later_file.base > file.base]
    if index is not None and behind:
        index.check_until(behind[0])
    compared, position = (index.compared, index.position) if index is not None else (None, (0, 0))
    yield result(_LogFileRead(file.base, facts, compared, position))


def _add(facts: list[LogFact], fact: LogFact) -> None:
    last = facts[-1] if facts else None
    if not (isinstance(last, RecordFacts) and isinstance(fact, RecordFacts) and last.absorb(fact)):
        facts.append(fact)


def _compare(plan: VerifyPlan, queues: Iterator[QueueRows]) -> Iterator[_QueueCompared]:
    fs = RealFileSystem()
    for topic, queue_id, batches in queues:
        queue = plan.queue_check(fs).compare(topic, queue_id, batches)
        yield _QueueCompared(topic, queue_id, queue.coverage, queue.without_entry, queue.older)
