"""Exports messages of a store as Parquet, JSON lines or CSV.

The layout is Hive's: ``topic_dir=NAME/day=YYYY-MM-DD/part-00000.parquet`` in the target directory, by topic and by the
UTC day of the store timestamp. Spark, DuckDB, pandas and pyarrow read it as one table and skip partitions that a query
does not need. Rows are in the order of the log. ``_SUCCESS`` is written last.

Every intact record that belongs to a queue is exported, as ``salvage`` would keep it; reading continues after damage.
Messages that the store had and the export lacks are reported (:mod:`gantrymq.tools.loss.export_account`). The export
takes no lock and writes nothing to the store.

The log is read once if it has no faults. If some records turn out to be copies, to belong to an older topic, or to have
another queue offset than they carry, the files are written a second time with the corrections.

Thread rule: one export is one call; a second thread reads ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import CorruptRecordError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import is_topic_storable
from gantrymq.store.queue.queue_units import QueueNumbers
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.arrow import MESSAGE_SCHEMA, ArrowBatches, LogBatch
from gantrymq.tools.export_files import ExportFormat, ExportParts, ExportReport, ExportTarget, open_writer
from gantrymq.tools.export_plan import ExportPlan, ExportSelection, plan_export, wanted_queues
from gantrymq.tools.loss.export_account import account_of, choices_of, misnamed, needed_choices
from gantrymq.tools.queue_runs import QueueName, QueueRun, QueueRuns
from gantrymq.tools.read.bad_disk import ListedFileSystem, not_listed
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords
from gantrymq.tools.repair.result_directory import UnfinishedDirectory, log_bytes, require_room

STEP = "Exporting"
SUCCESS = "_SUCCESS"
_NO_ROOM = "name a directory on another disk, choose fewer messages, or Parquet, which compresses"
_DAY_MS = 86_400_000


class RecordExport:
    """Passes the records of a plan to ``target``, batch by batch in the order of the log.

    ``runs`` has what was found of each queue. If ``target`` is None, the records are read only for that.
    """

    def __init__(self, plan: ExportPlan, target: ExportTarget | None, report: ExportReport) -> None:
        self._plan = plan
        self._target = target
        self._report = report
        self._arrow = ArrowBatches(
            MESSAGE_SCHEMA,
            decompress=plan.decompress,
            broker_name=None,
            refuse=self._refuse,
            max_decompressed_body_size=plan.config.max_decompressed_body_size_bytes,
        )
        self.runs = QueueRuns()
        self._numbers = QueueNumbers()
        self._names: list[QueueName] = []  # by queue number
        self._topic_ids: list[int] = []  # by queue number: the first queue number of the same topic
        self._first_number: dict[str, int] = {}
        self._wanted: list[bool] = []
        self._begins: list[int] = []

    def run(self, files: list[LogFile], progress: Progress | None = None) -> FoundRecords:
        """Export the selected records of ``files``, the next files of the plan; returns what was found in them."""
        records = IntactRecords(RealFileSystem(), files, log=self._plan.log)
        for batch in one_ahead(records):
            self._add(batch)
            if progress is not None:
                progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        if progress is not None:
            progress(STEP, records.total_bytes, records.total_bytes)
        return records.found

    def _add(self, batch: RecordBatch) -> None:
        numbers = self._numbers.assign(batch, self._add_queue)
        places = batch.columns[codes.POS, : batch.count] + batch.base
        self._correct_queues(batch, numbers, places)
        keep = (numbers >= 0) & (places < self._plan.end) & np.array([*self._wanted, False])[numbers]
        if not keep.any():
            return
        self._note_runs(batch, numbers, places, keep)
        keep &= places >= np.array([*self._begins, 0])[numbers]
        self._choose(batch, numbers, places, keep)
        keep &= self._plan.selection.rows(batch)
        if keep.any():
            self.take(batch, numbers, places, keep)

    def take(self, batch: RecordBatch, numbers: Int64s, places: Int64s, keep: NDArray[np.bool_]) -> None:
        """Convert the records that ``keep`` selects and add them to the target."""
        if self._target is None:
            return
        chosen = batch.take(keep)
        chosen.trust_positions()
        topics, queues = pa.array([topic for topic, _ in self._names], pa.string()), numbers[keep]
        path = str(self._plan.paths.commit_log)
        log_batch = LogBatch(path, chosen.base, chosen.buffer, chosen.columns, chosen.count, queues, topics)
        topic_ids = np.array(self._topic_ids)[queues]
        days = log_batch.row(codes.STORE_TIMESTAMP) // _DAY_MS
        for topic_id, day, records in log_batch.by(topic_ids, days):
            for rows in self._arrow.convert(records):
                self._target.add(self._names[topic_id][0], day, rows)

    def _correct_queues(self, batch: RecordBatch, numbers: Int64s, places: Int64s) -> None:
        """Set the true queue of records that name another one."""
        if not self._plan.true_queues:
            return
        for row in np.flatnonzero(np.isin(places, list(self._plan.true_queues))).tolist():
            topic, queue_id = self._plan.true_queues[int(places[row])]
            numbers[row] = self._numbers.number_of(topic.encode(), queue_id, self._add_queue)
            batch.columns[codes.QUEUE_ID, row] = queue_id

    def _note_runs(self, batch: RecordBatch, numbers: Int64s, places: Int64s, wanted: NDArray[np.bool_]) -> None:
        columns = batch.columns[:, : batch.count]
        is_moved = columns[codes.PHY_OFFSET] != places
        rows = columns[codes.QUEUE_OFFSET][wanted], places[wanted], columns[codes.SIZE][wanted], is_moved[wanted]
        self.runs.add(self._names, numbers[wanted], rows)

    def _choose(self, batch: RecordBatch, numbers: Int64s, places: Int64s, keep: NDArray[np.bool_]) -> None:
        """Remove the records that do not count from ``keep``, and correct the queue offsets of the others."""
        if not self._plan.choices:
            return
        for number in np.unique(numbers[keep]).tolist():
            if (choice := self._plan.choices.get(self._names[number])) is not None:
                rows = np.flatnonzero(keep & (numbers == number))
                offsets = batch.columns[codes.QUEUE_OFFSET, rows]
                keep[rows] = choice.apply(offsets, places[rows])
                batch.columns[codes.QUEUE_OFFSET, rows] = offsets

    def _refuse(self, error: CorruptRecordError) -> None:
        self._report.undecodable.append(str(error))
        self._report.undecodable_places[error.offset] = error.reason

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        can_be = queue_id >= 0 and is_topic_storable(name)
        self._names.append((name, queue_id))
        self._topic_ids.append(self._first_number.setdefault(name, len(self._topic_ids)))
        self._wanted.append(can_be and self._plan.selection.takes_queue(name, queue_id))
        self._begins.append(self._plan.begin_of((name, queue_id)) or 0)


class _BodyBytes(RecordExport):
    """The total size in bytes of the stored bodies, a lower bound for the size of a text format.

    Compressed bodies are not counted, because one that cannot be decompressed is left out.
    """

    count = 0

    def take(self, batch: RecordBatch, numbers: Int64s, places: Int64s, keep: NDArray[np.bool_]) -> None:
        """Add the sizes of the bodies that ``keep`` selects."""
        lengths, flags = (batch.columns[row, : batch.count] for row in (codes.BODY_LENGTH, codes.SYS_FLAG))
        self.count += int(lengths[keep & (flags & COMPRESSED == 0)].sum())


def _body_bytes(plan: ExportPlan) -> int:
    bodies = _BodyBytes(plan, None, ExportReport())
    bodies.run(plan.files)
    return bodies.count


Exported = tuple[FoundRecords, dict[QueueName, list[QueueRun]]]
ExportLog = Callable[[Path, ExportFormat, ExportPlan, ExportReport, Progress | None], Exported]


def export_here(
    root: Path, kind: ExportFormat, plan: ExportPlan, report: ExportReport, progress: Progress | None
) -> Exported:
    """Read and write on this machine. Raises DiskFullError, OSError."""
    parts = ExportParts(root, kind, report)
    try:
        export = RecordExport(plan, parts, report)
        found = export.run(plan.files, progress)
        parts.finish()
        return found, export.runs.by_queue
    except BaseException:
        parts.abandon()
        raise


def export_store(
    path: str | Path,
    target: str | Path,
    kind: ExportFormat = ExportFormat.PARQUET,
    selection: ExportSelection | None = None,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    decompress: bool = True,
    export: ExportLog = export_here,
    progress: Progress | None = None,
) -> ExportReport:
    """Export the messages of the store at ``path`` to the directory ``target``, which must be missing or empty.

    ``decompress``: write bodies decompressed. ``export`` does the reading and writing. The files appear under
    ``target`` when all of them are complete (:mod:`gantrymq.tools.repair.result_directory`).

    Raises NotAStoreError, StoreError (if ``target`` is not empty or lies in the store), ConfigError, DiskFullError,
    OSError. After any of them nothing of the export remains.
    """
    config = config or MessageStoreConfig()
    paths = StorePaths.of(Path(path), config)
    paths.require_outside(Path(target))
    listed = ListedFileSystem(RealFileSystem(), paths.root, (paths.root, *paths.commit_logs))
    fs = listed.as_file_system()
    selection = selection or ExportSelection()
    plan = plan_export(fs, paths, config, given, selection, decompress=decompress)
    with UnfinishedDirectory(Path(target), "an export") as unfinished:
        if kind is not ExportFormat.PARQUET:  # a compressed size is not known in advance
            require_room(fs, Path(target), log_bytes(plan.files), partial(_body_bytes, plan), _NO_ROOM)
        report = ExportReport()
        found, runs = export(unfinished.path, kind, plan, report, progress)
        choices = choices_of(fs, plan, runs)
        needed, true_queues = needed_choices(plan, runs, choices), misnamed(fs, plan, found, choices)
        if needed or true_queues:
            unfinished.clear()
            report, better = ExportReport(), replace(plan, choices=needed, true_queues=true_queues)
            found, runs = export(unfinished.path, kind, better, report, progress)
            choices = choices_of(fs, plan, runs)
        report.account = account_of(fs, plan, found, choices, report.undecodable_places, true_queues)
        report.account.not_compared += not_listed(listed)
        report.missing_topics = _missing_topics(fs, plan, runs)
        (unfinished.path / SUCCESS).touch()
        unfinished.publish(last=SUCCESS)
    return report


class _Stream:
    """An ExportTarget that writes all rows to one stream."""

    def __init__(self, stream: BinaryIO, kind: ExportFormat, report: ExportReport) -> None:
        self._writer = open_writer(kind, stream)
        self._report = report

    def add(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        """Write the rows."""
        self._writer.write(rows)
        self._report.rows += rows.num_rows
        self._report.topics[topic] = self._report.topics.get(topic, 0) + rows.num_rows

    def close(self) -> None:
        """End the stream's format. The stream stays open."""
        self._writer.close()


def export_stream(
    path: str | Path,
    stream: BinaryIO,
    kind: ExportFormat,
    selection: ExportSelection | None = None,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    decompress: bool = True,
    progress: Progress | None = None,
) -> ExportReport:
    """Export to a stream, otherwise as :func:`export_store`.

    Written rows cannot be taken back, so the log is read once before to find its faults.
    """
    config = config or MessageStoreConfig()
    paths = StorePaths.of(Path(path), config)
    listed = ListedFileSystem(RealFileSystem(), paths.root, (paths.root, *paths.commit_logs))
    fs = listed.as_file_system()
    plan = plan_export(fs, paths, config, given, selection or ExportSelection(), decompress=decompress)
    look = RecordExport(plan, None, ExportReport())
    found = look.run(plan.files)
    choices = choices_of(fs, plan, look.runs.by_queue)
    needed, true_queues = needed_choices(plan, look.runs.by_queue, choices), misnamed(fs, plan, found, choices)
    report = ExportReport()
    target = _Stream(stream, kind, report)
    export = RecordExport(replace(plan, choices=needed, true_queues=true_queues), target, report)
    found = export.run(plan.files, progress)
    target.close()
    choices = choices_of(fs, plan, export.runs.by_queue)
    report.account = account_of(fs, plan, found, choices, report.undecodable_places, true_queues)
    report.account.not_compared += not_listed(listed)
    report.missing_topics = _missing_topics(fs, plan, export.runs.by_queue)
    return report


def _missing_topics(fs: FileSystem, plan: ExportPlan, runs: dict[QueueName, list[QueueRun]]) -> list[str]:
    """The selected topics that are neither in the queues nor in the log."""
    queues = wanted_queues(fs, plan.paths, plan.config, plan.selection)
    known = {one.topic for one in queues} | {topic for topic, _ in runs}
    return sorted((plan.selection.topics or frozenset()) - known)
