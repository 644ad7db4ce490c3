"""Salvage on Spark: the store that :mod:`gantrymq.tools.salvage` makes on one machine.

Records keep their places, so a task for each log file writes one new file, independently of the others. The end of a
file depends on whether another file follows: the driver writes these last eight bytes. Queues and index are then built
by :mod:`gantrymq.spark.pipelines.rebuild`.

A repeated attempt writes the same bytes to the same places.

Thread rule: the driver's thread.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.spark.pipelines.jobs import Mount, each, shared_directory
from gantrymq.spark.pipelines.rebuild import build_on
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords, joined
from gantrymq.tools.repair.log_salvage import CopiedRecords, CopyOrder, RecordCopier, end_file, has_crc_property
from gantrymq.tools.salvage import SalvageReport, salvage_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEAD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _FileCopied:
    """The result of copying one file."""

    base: int
    contents: FoundRecords
    copied: CopiedRecords


def salvage_on_spark(
    spark: SparkSession,
    source: str | Path,
    target: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
) -> SalvageReport:
    """As :func:`gantrymq.tools.salvage.salvage_store`; also raises StoreError if the Spark job fails."""
    source, target = Path(source).absolute(), Path(target).absolute()
    copy, build = partial(_copy, spark), build_on(spark)
    return salvage_store(source, target, config, given=given, copy=copy, build=build)


def _copy(
    spark: SparkSession, fs: FileSystem, order: CopyOrder, progress: Progress | None
) -> tuple[FoundRecords, CopiedRecords]:
    with shared_directory(Mount.of(order.files), order.target.parent) as mount:
        append_crc = order.append_crc or _has_crc(spark, order.files, mount)
        task = partial(_copy_file, order, append_crc)
        parts = each(spark, order.files, task, lambda file: file.size_bytes, mount)
    contents, copied = joined(order.files, [part.contents for part in parts]), CopiedRecords()
    for part in parts:
        copied.records += part.copied.records
        copied.record_bytes += part.copied.record_bytes
        copied.corrected += part.copied.corrected
        copied.dropped += part.copied.dropped
    written = [part for part in parts if part.copied.records]
    if written:
        copied.min_phy_offset = next(part for part in parts if part.contents.records).copied.min_phy_offset
        copied.max_phy_offset = written[-1].copied.max_phy_offset
        _end_files(fs, order, written)
    return contents, copied


def _end_files(fs: FileSystem, order: CopyOrder, written: list[_FileCopied]) -> None:
    """Write the blank of every file but the last one, including files of which nothing is left."""
    ends = {part.base: part.copied.max_phy_offset for part in written}
    for base in range(written[0].base, written[-1].base, order.file_size):
        end_file(fs, order.target, base, ends.get(base, base), order.file_size)
    fs.sync_directory(order.target)


def _has_crc(spark: SparkSession, files: list[LogFile], mount: Mount) -> bool:
    """Whether the first record of the log ends with a record CRC."""
    answers = each(spark, files, partial(_first_has_crc, files), lambda file: min(file.size_bytes, _HEAD_BYTES), mount)
    return next((answer for answer in answers if answer is not None), False)


# On executors


def _first_has_crc(files: list[LogFile], file: LogFile) -> bool | None:
    first = next(iter(IntactRecords(RealFileSystem(), [file], log=files)), None)
    return None if first is None else has_crc_property(first)


def _copy_file(order: CopyOrder, append_crc: bool, file: LogFile) -> _FileCopied:
    fs = RealFileSystem()
    records = IntactRecords(fs, [file], log=order.files)
    copier = RecordCopier(fs, order, append_crc=append_crc)
    for batch in one_ahead(records):
        copier.add(batch)
    copier.finish()
    return _FileCopied(file.base, records.contents, copier.copied)
