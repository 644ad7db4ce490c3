"""Rebuild on Spark: the same bytes as :mod:`gantrymq.tools.rebuild` writes on one machine.

The driver holds the store's lock, and swaps the new files in when all of them are durable. Until then executors work
below ``rebuild.tmp``:

1. A task for each log file reads it, stages its index entries, and passes the units of its records to a shuffle.

2. Tasks that get all units of some queues, in the order of the log, write the queues' files.

3. A task for each index file writes it from its run of the staged entries. The entries of each log file are staged in
   a file of their own. Their counts determine which entries each index file has, so these tasks are independent: a
   header needs only the end of the file before it.

Each attempt of a task writes to a directory of its own, and only the output that successful ones report is used,
because tasks may be repeated or run twice at once. A job that fails leaves the store as it was.

Thread rule: one rebuild of a store at a time, enforced by its lock.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.index import IndexHeader, file_size
from gantrymq.format.names import following_index_name, index_name
from gantrymq.fs.api import FileSystem
from gantrymq.fs.descriptors import named_errors
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels.arrays import Int64s
from gantrymq.spark.pipelines.jobs import Mount, each, shared_directory
from gantrymq.spark.pipelines.unit_rows import QueueRows, UnitRow, UnitRows, by_queue, result
from gantrymq.store.index.index_dispatch import index_entries
from gantrymq.store.index.index_file import IndexFile
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import IndexEntries, RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import ConsumeQueues
from gantrymq.store.queue.queue_dispatch import append_units
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.read.intact_records import FoundRecords, joined
from gantrymq.tools.rebuild import Build, BuildOrder, Built, RebuildReport, rebuild_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FIELDS = 3  # hash, physical offset, store time
_ENTRY_BYTES = _FIELDS * 8
_AT_ONCE = 65_536
_ENTRIES = "entries"


@dataclass(frozen=True, slots=True)
class StagedEntries:
    """A file of ``count`` entries."""

    path: Path
    count: int


@dataclass(frozen=True, slots=True)
class IndexRun:
    """The entries of one index file, as (staged file, first entry, count).

    ``before`` has the last entry before the first one.
    """

    name: str
    pieces: tuple[tuple[Path, int, int], ...]
    before: IndexHeader


class EntryStage:
    """Stages the entries of one log file below ``directory``. Raises DiskFullError, DiskError, StorePermissionError.

    Entries are buffered, so flushing and closing the file may also find the disk full.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / uuid.uuid4().hex
        self._count = 0

    def __enter__(self) -> EntryStage:
        """Create the file."""
        with named_errors(self._path):
            self._file: BinaryIO = self._path.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        with named_errors(self._path, io.DEFAULT_BUFFER_SIZE):
            self._file.close()

    def add(self, batch: RecordBatch) -> None:
        """Add the entries of a batch, whose PHY_OFFSET column must be corrected already (``trust_positions``)."""
        entries = np.stack(index_entries(batch), axis=1)
        with named_errors(self._path, entries.nbytes):
            self._file.write(entries.tobytes())
        self._count += len(entries)

    def staged(self) -> StagedEntries:
        """The staged file, flushed."""
        with named_errors(self._path, io.DEFAULT_BUFFER_SIZE):
            self._file.flush()
        return StagedEntries(self._path, self._count)


def plan_runs(stages: Sequence[StagedEntries], entries_a_file: int) -> list[IndexRun]:
    """Divide the entries into index files of ``entries_a_file`` entries. Reads the first and last entry of each."""
    runs: list[IndexRun] = []
    before, name = IndexHeader(), ""
    for pieces in _cut(stages, entries_a_file):
        (_, _, first_ms), (_, last_offset, last_ms) = _entry(pieces[0], 0), _entry(pieces[-1], -1)
        wanted = index_name(first_ms)
        name = wanted if wanted > name else following_index_name(name)
        runs.append(IndexRun(name, tuple(pieces), before))
        before = IndexHeader(end_phy_offset=last_offset, end_timestamp_ms=last_ms)
    return runs


def _cut(stages: Sequence[StagedEntries], size: int) -> Iterator[list[tuple[Path, int, int]]]:
    pieces: list[tuple[Path, int, int]] = []
    room = size
    for stage in stages:
        at = 0
        while at < stage.count:
            count = min(stage.count - at, room)
            pieces.append((stage.path, at, count))
            at, room = at + count, room - count
            if not room:
                yield pieces
                pieces, room = [], size
    if pieces:
        yield pieces


def _entry(piece: tuple[Path, int, int], number: int) -> tuple[int, int, int]:
    path, first, count = piece
    with path.open("rb") as file:
        file.seek((first + number % count) * _ENTRY_BYTES)
        key_hash, phy_offset, stored_ms = np.frombuffer(file.read(_ENTRY_BYTES), np.int64).tolist()
    return key_hash, phy_offset, stored_ms


def write_index_file(run: IndexRun, directory: Path, config: MessageStoreConfig) -> tuple[Path, int]:
    """Write the file of a run durably, in a directory of its own below ``directory``.

    Returns its path and the store time of its last entry in ms. Raises DiskFullError.
    """
    fs, slots, entries = RealFileSystem(), config.max_hash_slot_num, config.max_index_num
    target = directory / f"index-{uuid.uuid4().hex}"
    fs.make_directory(target)
    opened = fs.open(target / run.name, writable=True, create=True)
    opened.resize(file_size(slots, entries))
    file = IndexFile(opened, slots, entries, is_new=True)
    try:
        file.reserve(np.empty(0, np.int32))
        file.stream()
        file.begin_after(run.before)
        for chunk in _chunks(run):
            index_entries = IndexEntries.of_each(*chunk.T)
            file.reserve(index_entries.hashes)
            file.put(index_entries, 0)
        file.flush()
        return target / run.name, file.header.end_timestamp_ms
    finally:
        file.close()


def _chunks(run: IndexRun) -> Iterator[Int64s]:
    for path, first, count in run.pieces:
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), first * _ENTRY_BYTES, count * _ENTRY_BYTES, os.POSIX_FADV_SEQUENTIAL)
            file.seek(first * _ENTRY_BYTES)
            for done in range(0, count, _AT_ONCE):
                raw = file.read(min(count - done, _AT_ONCE) * _ENTRY_BYTES)
                yield np.frombuffer(raw, np.int64).reshape(-1, _FIELDS)


@dataclass(frozen=True, slots=True)
class _FileRead:
    """What a task found in one log file.

    ``last_record`` is (store time in ms, physical offset) of the last record with a unit.
    """

    base: int
    contents: FoundRecords
    entries: StagedEntries | None
    last_record: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _QueuesWritten:
    """What a task wrote below ``root``."""

    root: StorePaths
    queues: int
    units: int
    renumbered: list[tuple[str, int, Renumbered]]
    passed_over: list[tuple[str, int, PassedOver]]


def rebuild_on_spark(
    spark: SparkSession,
    path: str | Path,
    config: MessageStoreConfig | None = None,
    *,
    queues: bool = True,
    index: bool = True,
    given: Collection[str] = (),
) -> RebuildReport:
    """As :func:`gantrymq.tools.rebuild.rebuild_store`; also raises StoreError if the Spark job fails."""
    path = Path(path).absolute()
    return rebuild_store(path, config, queues=queues, index=index, given=given, build=build_on(spark))


def build_on(spark: SparkSession) -> Build:
    """The ``build`` argument of :func:`gantrymq.tools.rebuild.rebuild_store` that runs on Spark."""
    return partial(_build, spark)


def _build(spark: SparkSession, fs: FileSystem, order: BuildOrder, progress: Progress | None) -> Built:
    with shared_directory(Mount.of(order.files), order.work.root) as mount:
        return _build_shared(spark, fs, order, mount)


def _build_shared(spark: SparkSession, fs: FileSystem, order: BuildOrder, mount: Mount) -> Built:
    results = by_queue(spark, order.files, partial(_read, order), partial(_write, order), mount)
    read = sorted((outcome for outcome in results if isinstance(outcome, _FileRead)), key=lambda outcome: outcome.base)
    written = [outcome for outcome in results if isinstance(outcome, _QueuesWritten) and outcome.queues]
    built = Built(joined(order.files, [outcome.contents for outcome in read]), [part.root for part in written])
    built.queues, built.queue_units = sum(part.queues for part in written), sum(part.units for part in written)
    built.renumbered = [record for part in written for record in part.renumbered]
    built.passed_over = [record for part in written for record in part.passed_over]
    for outcome in read:
        if outcome.last_record is not None:
            built.queued_timestamp_ms, built.queued_phy_offset = outcome.last_record
    if order.index:
        _build_index(
            spark, fs, order, mount, [outcome.entries for outcome in read if outcome.entries is not None], built
        )
    return built


def _build_index(
    spark: SparkSession, fs: FileSystem, order: BuildOrder, mount: Mount, stages: list[StagedEntries], built: Built
) -> None:
    config, work = order.config, order.work
    runs = plan_runs(stages, config.max_index_num - 1)
    size_bytes = file_size(config.max_hash_slot_num, config.max_index_num)
    made = each(spark, runs, partial(write_index_file, directory=work.root, config=config), lambda _: size_bytes, mount)
    fs.make_directory(work.index)
    for path, _ in made:
        fs.rename(path, work.index / path.name)
    fs.sync_directory(work.index)
    built.index_files, built.index_entries = len(runs), sum(stage.count for stage in stages)
    built.index_timestamp_ms = made[-2][1] if len(made) > 1 else 0


# On executors


def _read(order: BuildOrder, file: LogFile) -> Iterator[UnitRow | bytes]:
    records = order.records(RealFileSystem(), [file])
    rows = UnitRows(order.config.delay_levels_ms, order.left_out)
    with EntryStage(order.work.root / _ENTRIES) as stage:
        for batch in one_ahead(records):
            batch.trust_positions()
            if order.index:
                stage.add(batch)
            if order.queues:
                yield from rows.of(batch)
        yield result(_FileRead(file.base, records.contents, stage.staged() if order.index else None, rows.last_record))


def _write(order: BuildOrder, queues: Iterator[QueueRows]) -> Iterator[_QueuesWritten]:
    fs, root = RealFileSystem(), StorePaths(order.work.root / f"queues-{uuid.uuid4().hex}")
    begin_of, count, units = order.begin_of(fs), 0, 0
    renumbered: list[tuple[str, int, Renumbered]] = []
    passed_over: list[tuple[str, int, PassedOver]] = []
    for topic, queue_id, batches in queues:
        opened = ConsumeQueues(fs, root, order.config)
        queue = opened.get_or_create(topic, queue_id)
        for grouped in batches:
            count_of, deleted_end = len(grouped.phy_offsets), order.deleted_ends.get(topic, -1)
            first = int(np.searchsorted(grouped.phy_offsets, deleted_end))
            if first < count_of:
                append_units(queue, grouped, first, count_of, fill_gaps=True, begin_of=begin_of)
        units += queue.max_offset
        renumbered += [(topic, queue_id, record) for record in queue.renumbered]
        passed_over += [(topic, queue_id, record) for record in queue.passed_over]
        count += queue.max_physic_offset >= 0  # others have only left-out records
        opened.flush()
        opened.close()
    yield _QueuesWritten(root, count, units, renumbered, passed_over)
