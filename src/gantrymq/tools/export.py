"""Messages of a store as Parquet, JSON lines or CSV, for whoever knows nothing of RocketMQ.

The layout is Hive's: ``topic=NAME/day=YYYY-MM-DD/part-00000.parquet`` below the target, by topic and by the UTC day of
the storeTimestamp, so that Spark, DuckDB and ``pyarrow.dataset`` read it as one table and skip what is not asked for.
All columns stand in the files too. Rows are in the order of the log. ``_SUCCESS`` comes last.

What is exported is what a recovery would leave: the recovery runs over a private view, no lock is taken, nothing of
the store is written. Every CRC is checked; damage is passed over and reported.

Thread rule: one export is one call; a second thread reads ahead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, CorruptRecordError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.consume_queues import is_topic_storable
from gantrymq.store.log_scanner import one_ahead
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue_numbers import QueueNumbers
from gantrymq.store.reader import StoreReader
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.recovery import Progress
from gantrymq.tools.arrow_batches import ArrowBatches
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.export_parts import ExportParts, ExportReport
from gantrymq.tools.intact_records import FoundRecords, IntactRecords
from gantrymq.tools.log_batch import LogBatch
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.message_schema import MESSAGE_SCHEMA

STEP = "Exporting"
SUCCESS = "_SUCCESS"
_DAY_MS = 86_400_000
_EVER_MS = 1 << 63


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """Which messages: of ``topics`` (None: all), of one queue, stored in [begin, end), of offsets [from, to)."""

    topics: frozenset[str] | None = None
    queue_id: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError where offsets are given without the queue that they count."""
        has_offsets = self.from_offset is not None or self.to_offset is not None
        if has_offsets and (self.queue_id is None or self.topics is None or len(self.topics) != 1):
            raise ConfigError("--from/--to", "", "together with one --topic and --queue, whose offsets they are")
        if self.begin_ms is not None and self.end_ms is not None and self.begin_ms >= self.end_ms:
            raise ConfigError("--begin", self.begin_ms, f"before --end, which is {self.end_ms}")

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        """Whether messages of this queue may be wanted."""
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def rows(self, batch: RecordBatch) -> NDArray[np.bool_]:
        """Which records are within the times and offsets."""
        stored, offsets = (batch.columns[row, : batch.count] for row in (codes.STORE_TIMESTAMP, codes.QUEUE_OFFSET))
        keep = np.ones(batch.count, np.bool_)
        for values, low, high in (
            (stored, self.begin_ms, self.end_ms),
            (offsets, self.from_offset, self.to_offset),
        ):
            if low is not None:
                keep &= values >= low
            if high is not None:
                keep &= values < high
        return keep


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is to be read: the records of ``files`` in front of ``end`` that ``selection`` takes.

    ``begins`` says of queues that begin with offset 0 where the record of that lies: those in front of it are of a
    topic that was deleted, and made anew since.
    """

    directory: Path
    files: list[LogFile]
    end: int
    begins: dict[tuple[str, int], int]
    selection: ExportSelection
    missing_topics: list[str]
    decompress: bool
    max_decompressed_body_size: int


def plan_export(reader: StoreReader, selection: ExportSelection, *, decompress: bool) -> ExportPlan:
    """Find the part of the log that may have wanted messages."""
    queues = [one for one in reader.consume_queues if selection.takes_queue(one.topic, one.queue_id)]
    missing = sorted(selection.topics - {one.topic for one in queues}) if selection.topics is not None else []
    begin, end = _bounds(reader, selection, queues)
    files = [file for file in _files(reader, selection) if file.end > begin and file.base < end]
    firsts = [(one, _extent(reader, one, 0)) for one in queues if one.min_offset == 0]
    begins = {(queue.topic, queue.queue_id): first[0] for queue, first in firsts if first}
    directory, limit = reader.log.queue.directory, reader.config.max_decompressed_body_size_bytes
    return ExportPlan(directory, files, end, begins, selection, missing, decompress, limit)


def _bounds(reader: StoreReader, selection: ExportSelection, queues: list[ConsumeQueue]) -> tuple[int, int]:
    """From where to where the log has wanted messages, as far as the queues say so soundly."""
    low, high = max(reader.min_phy_offset, 0), reader.max_phy_offset
    if selection.topics is None or not queues:
        return low, high
    starts, ends = [], []
    for queue in queues:
        first = max(queue.min_offset, selection.from_offset or 0)
        last = min(queue.max_offset, queue.max_offset if selection.to_offset is None else selection.to_offset) - 1
        if first > last:
            continue
        begin, end = _extent(reader, queue, first), _extent(reader, queue, last)
        starts.append(begin[0] if begin else low)
        ends.append(end[1] if end else high)
    return (max(min(starts), low), min(max(ends), high)) if starts else (low, low)


def _extent(reader: StoreReader, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int] | None:
    """From where to where the record of a unit lies; None where the unit does not lead to the one that it should."""
    entry = queue.entry(queue_offset)
    if entry is None or not reader.log.has_message(entry, queue.topic, queue.queue_id, queue_offset):
        return None
    return entry.phy_offset, entry.phy_offset + entry.size_bytes


def _files(reader: StoreReader, selection: ExportSelection) -> list[LogFile]:
    """The part of the log that may have records of the wanted time.

    Times follow the clock of whoever stored, which may have been wrong for a while, so that they go back. A file is of
    another time only where the first records of it, of the file in front and of the two behind all are, by more than a
    day: by so much a clock is wrong that takes the time of one zone for that of another. And only such files are left
    out as have no others in front of them, or none behind. What can be missed are records of a clock that was off by
    more, and was put right before the next file began.
    """
    files = [LogFile(file.path, file.file_from_offset, file.size) for file in reader.log.queue.files]
    places = [*(file.base for file in files), reader.consume_queues.last_phy_offset]
    begin_ms = -_EVER_MS if selection.begin_ms is None else selection.begin_ms - _DAY_MS
    end_ms = _EVER_MS if selection.end_ms is None else selection.end_ms + _DAY_MS
    messages = [reader.message_at(place) for place in places]
    times = [(one.store_timestamp_ms, one.store_timestamp_ms) if one else (-_EVER_MS, _EVER_MS) for one in messages]
    kept = []
    for number in range(len(files)):
        least, most = zip(*times[max(number - 1, 0) : number + 3], strict=True)
        if min(least) < end_ms and max(most) >= begin_ms:
            kept.append(number)
    return files[kept[0] : kept[-1] + 1] if kept else []


class RecordExport:
    """Gives the records of a plan, batch by batch and in the order of the log, to ``parts``."""

    def __init__(self, plan: ExportPlan, parts: ExportParts, report: ExportReport) -> None:
        self._plan = plan
        self._parts = parts
        self._report = report
        self._arrow = ArrowBatches(
            MESSAGE_SCHEMA,
            decompress=plan.decompress,
            broker_name=None,
            refuse=self._refuse,
            max_decompressed_body_size=plan.max_decompressed_body_size,
        )
        self._numbers = QueueNumbers()
        self._topics: list[str] = []  # of each queue number
        self._topic_ids: list[int] = []  # the first queue number of that topic
        self._first_number: dict[str, int] = {}
        self._wanted: list[bool] = []
        self._begins: list[int] = []

    def run(self, files: list[LogFile], progress: Progress | None = None) -> FoundRecords:
        """Export what is wanted of some files of the plan, the next ones; says what was found there."""
        records = IntactRecords(RealFileSystem(), files)
        for batch in one_ahead(records):
            self._add(batch)
            if progress is not None:
                progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        return records.found

    def _add(self, batch: RecordBatch) -> None:
        numbers = self._numbers.assign(batch, self._add_queue)
        keep = self._plan.selection.rows(batch) & (numbers >= 0)
        places = batch.columns[codes.POS, : batch.count] + batch.base
        keep &= (places < self._plan.end) & (places >= np.array([*self._begins, 0])[numbers])
        keep &= np.array([*self._wanted, False])[numbers]
        if not keep.any():
            return
        chosen = batch.take(keep)
        chosen.believe_places()
        topics, queues = pa.array(self._topics, pa.string()), numbers[keep]
        path = str(self._plan.directory)
        log_batch = LogBatch(path, chosen.base, chosen.buffer, chosen.columns, chosen.count, queues, topics)
        topic_ids = np.array(self._topic_ids)[queues]
        days = log_batch.row(codes.STORE_TIMESTAMP) // _DAY_MS
        for topic_id, day, records in log_batch.by(topic_ids, days):
            for rows in self._arrow.convert(records):
                self._parts.add(self._topics[topic_id], day, rows)

    def _refuse(self, error: CorruptRecordError) -> None:
        self._report.undecodable.append(str(error))

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        can_be = queue_id >= 0 and is_topic_storable(name)
        self._topics.append(name)
        self._topic_ids.append(self._first_number.setdefault(name, len(self._topic_ids)))
        self._wanted.append(can_be and self._plan.selection.takes_queue(name, queue_id))
        self._begins.append(self._plan.begins.get((name, queue_id), 0))


ExportLog = Callable[[Path, ExportFormat, ExportPlan, ExportReport, Progress | None], FoundRecords]


def export_here(
    root: Path, kind: ExportFormat, plan: ExportPlan, report: ExportReport, progress: Progress | None
) -> FoundRecords:
    """Read and write on this machine; raises DiskFullError, OSError, and leaves nothing half-written then."""
    parts = ExportParts(root, kind, report)
    try:
        found = RecordExport(plan, parts, report).run(plan.files, progress)
        parts.finish()
        return found
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
    """Write the messages of the store at ``path`` into the directory ``target``, which is missing or empty.

    ``decompress`` gives bodies as they were before their producer packed them; ``export`` reads and writes. Raises
    NotAStoreError, WrongFileSizeError, StoreError (where ``target`` is not empty, or lies in the store), ConfigError,
    DiskFullError, OSError; then nothing is left of the export. A killed one leaves whole files, hidden ones, and no
    ``_SUCCESS``.
    """
    root, report = Path(target), ExportReport()
    require_empty(root)
    StorePaths.of(Path(path), config or MessageStoreConfig()).require_outside(root)
    with closing(StoreReader.open(path, config, given=given, progress=progress)) as reader:
        plan = plan_export(reader, selection or ExportSelection(), decompress=decompress)
        report.missing_topics = plan.missing_topics
        try:
            found = export(root, kind, plan, report, progress)
        except BaseException:
            remove_export(root)
            raise
    report.lost = [one for one in found.lost() if one.start < plan.end]
    root.mkdir(parents=True, exist_ok=True)
    (root / SUCCESS).touch()
    return report


def require_empty(root: Path) -> None:
    """Raise StoreError where an export into ``root`` would come upon something else."""
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise StoreError(root, "is not an empty directory; an export needs one of its own")


def remove_export(root: Path) -> None:
    """Remove what an export that failed has written below ``root``, which was empty before."""
    for topic in root.glob("topic=*"):
        shutil.rmtree(topic, ignore_errors=True)


def lines_of(report: ExportReport) -> Iterator[str]:
    """What was left out, for people."""
    yield from (
        f"{one.path.name}, offset {one.start}, {one.end - one.start} bytes: {one.reason}" for one in report.lost
    )
    yield from report.undecodable
