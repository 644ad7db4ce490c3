"""Export on Spark: the rows of :mod:`gantrymq.tools.export`, in the same directories.

The driver plans which part of the log is selected. Executors write it; each task writes the files of some consecutive
log files. There are more files than on one machine, but their names in a directory still follow the log. A repeated
task writes the same files again. Everything is in an unfinished directory until the driver renames it.

Thread rule: the driver's thread.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.spark.pipelines.jobs import TASK_BYTES, Mount, each, shared_directory, worth_a_task
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.audit.queue_runs import QueueName, QueueRun, QueueRuns
from gantrymq.tools.export import Exported, export_store
from gantrymq.tools.export_files import ExportFormat, ExportParts, ExportReport
from gantrymq.tools.export_plan import ExportPlan, ExportSelection
from gantrymq.tools.read.intact_records import FoundRecords, joined
from gantrymq.tools.record_export import RecordExport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive files of the log, for one task."""

    number: int
    files: list[LogFile]


def export_on_spark(
    spark: SparkSession,
    path: str | Path,
    target: str | Path,
    kind: ExportFormat = ExportFormat.PARQUET,
    selection: ExportSelection | None = None,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    decompress: bool = True,
) -> ExportReport:
    """As :func:`gantrymq.tools.export.export_store`; also raises StoreError if the Spark job fails."""
    path, target = Path(path).absolute(), Path(target).absolute()
    export = partial(_export, spark)
    return export_store(path, target, kind, selection, config, given=given, decompress=decompress, export=export)


def _export(
    spark: SparkSession,
    root: Path,
    kind: ExportFormat,
    plan: ExportPlan,
    report: ExportReport,
    progress: Progress | None,
) -> Exported:
    cut = worth_a_task(plan.files, lambda file: file.size_bytes)
    groups = [_Group(number, files) for number, files in enumerate(cut)]
    with shared_directory(Mount.of(plan.files), root) as mount:
        done = each(spark, groups, partial(_export_group, root, kind, plan, mount), lambda _: TASK_BYTES, mount)
    runs = QueueRuns()
    for part, _, found_runs in done:
        runs.join(found_runs)
        report.rows += part.rows
        report.files += part.files
        report.file_bytes += part.file_bytes
        report.undecodable += part.undecodable
        report.undecodable_places |= part.undecodable_places
        for topic, rows in part.topics.items():
            report.topics[topic] = report.topics.get(topic, 0) + rows
    for left in root.glob("*/*/.*.tmp"):  # left by killed attempts
        left.unlink(missing_ok=True)
    return joined(plan.files, [part for _, parts, _ in done for part in parts]), runs.by_queue


# On executors


def _export_group(
    root: Path, kind: ExportFormat, plan: ExportPlan, mount: Mount, group: _Group
) -> tuple[ExportReport, list[FoundRecords], dict[QueueName, list[QueueRun]]]:
    mount.require(group.files)
    report = ExportReport()
    parts = ExportParts(root, kind, report, f"part-{group.number:05d}-")
    try:
        export = RecordExport(plan, parts, report)
        contents = [export.run([file]) for file in group.files]
        parts.finish()
        return report, contents, export.runs.by_queue
    except BaseException:
        parts.abandon()
        raise
