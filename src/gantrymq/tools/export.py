"""Exports messages of a store as Parquet, JSON lines or CSV.

The layout is Hive's: ``topic_dir=NAME/day=YYYY-MM-DD/part-00000.parquet`` in the target directory, by topic and by the
UTC day of the store timestamp. Spark, DuckDB, pandas and pyarrow read it as one table and skip partitions that a query
does not need. Rows are in the order of the log. ``_SUCCESS`` is written last.

Every intact record that belongs to a queue is exported, as ``salvage`` would keep it; reading continues after damage.
Messages that the store had and the export lacks are reported (:mod:`gantrymq.tools.export_account`). The export
takes no lock and writes nothing to the store.

The log is read once if it has no faults. If some records turn out to be copies, to belong to an older topic, or to have
another queue offset than they carry, the files are written a second time with the corrections.

Thread rule: one export is one call; a second thread reads ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.flags import COMPRESSED
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.audit.queue_runs import QueueName, QueueRun
from gantrymq.tools.export_account import account_of, choices_of, decide
from gantrymq.tools.export_files import ExportFormat, ExportParts, ExportReport, open_writer
from gantrymq.tools.export_plan import ExportPlan, ExportSelection, StoreSurvey, plan_export, wanted_topics
from gantrymq.tools.read.bad_disk import ListedFileSystem, not_listed
from gantrymq.tools.read.intact_records import FoundRecords
from gantrymq.tools.record_export import RecordExport
from gantrymq.tools.repair.result_directory import UnfinishedDirectory, log_bytes, require_room

SUCCESS = "_SUCCESS"
_NO_ROOM = "name a directory on another disk, choose fewer messages, or Parquet, which compresses"


class _BodyBytes(RecordExport):
    """The total size in bytes of the stored bodies, a lower bound for the size of a text format.

    Compressed bodies are not counted, because one that cannot be decompressed is left out.
    """

    count = 0

    def take(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
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
        contents = export.run(plan.files, progress)
        parts.finish()
        return contents, export.runs.by_queue
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
    survey = StoreSurvey(fs, paths, config, given)
    plan = plan_export(survey, selection, decompress=decompress)
    with UnfinishedDirectory(Path(target), "an export") as unfinished:
        if kind is not ExportFormat.PARQUET:  # a compressed size is not known in advance
            require_room(fs, Path(target), log_bytes(plan.files), partial(_body_bytes, plan), _NO_ROOM)
        report = ExportReport()
        contents, runs = export(unfinished.path, kind, plan, report, progress)
        better, choices = decide(fs, plan, contents, runs)
        if better is not plan:
            unfinished.clear()
            report = ExportReport()
            contents, runs = export(unfinished.path, kind, better, report, progress)
            choices = choices_of(fs, plan, contents, runs)
        report.account = account_of(fs, better, contents, choices, report.undecodable_places)
        report.account.not_compared += not_listed(listed)
        report.missing_topics = _missing_topics(survey, selection, runs)
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
    survey = StoreSurvey(fs, paths, config, given)
    plan = plan_export(survey, selection or ExportSelection(), decompress=decompress)
    look = RecordExport(plan, None, ExportReport())
    contents = look.run(plan.files)
    plan, choices = decide(fs, plan, contents, look.runs.by_queue)
    report = ExportReport()
    target = _Stream(stream, kind, report)
    export = RecordExport(plan, target, report)
    contents = export.run(plan.files, progress)
    target.close()
    choices = choices_of(fs, plan, contents, export.runs.by_queue)
    report.account = account_of(fs, plan, contents, choices, report.undecodable_places)
    report.account.not_compared += not_listed(listed)
    report.missing_topics = _missing_topics(survey, plan.selection, export.runs.by_queue)
    return report


def _missing_topics(
    survey: StoreSurvey, selection: ExportSelection, runs: dict[QueueName, list[QueueRun]]
) -> list[str]:
    """The selected topics that are neither in the queues nor in the log."""
    known = wanted_topics(survey, selection) | {topic for topic, _ in runs}
    return sorted((selection.topics or frozenset()) - known)
