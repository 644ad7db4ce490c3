"""Messages of a store as Parquet, JSON lines or CSV, for whoever knows nothing of RocketMQ.

The layout is Hive's: ``topic=NAME/day=YYYY-MM-DD/part-00000.parquet`` below the target, by topic and by the UTC day of
the storeTimestamp, so that Spark, DuckDB and ``pyarrow.dataset`` read it as one table and skip what is not asked for.
All columns stand in the files too. Rows are in the order of the log. ``_SUCCESS`` comes last.

What is exported is what a recovery would leave: the recovery runs over a private view, no lock is taken, nothing of
the store is written. Every CRC is checked; damage is passed over and reported.

Memory is bounded: rows of many topics wait in memory until there are enough of one, and the largest go first.

Thread rule: one export is one call; a second thread reads ahead.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, CorruptRecordError, StoreError
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.store.consume_queues import is_topic_storable
from gantrymq.store.log_scanner import RecordBatch, one_ahead
from gantrymq.store.queue_numbers import QueueNumbers
from gantrymq.store.reader import StoreReader
from gantrymq.tools.arrow_batches import ArrowBatches
from gantrymq.tools.export_files import ExportFile, ExportFormat
from gantrymq.tools.intact_records import IntactRecords, LostRange
from gantrymq.tools.log_batch import LogBatch
from gantrymq.tools.log_files import LogFile
from gantrymq.tools.message_schema import MESSAGE_SCHEMA
from gantrymq.tools.verify import Progress

STEP = "Exporting"
SUCCESS = "_SUCCESS"
_DAY_MS = 86_400_000
_WAITING_BYTES = 256 << 20  # rows of all topics together
_WORTH_WRITING_BYTES = 32 << 20  # rows of one topic: a row group
_LARGEST_FILE_BYTES = 512 << 20
_LAST_DAY = 2_932_896  # of the year 9999
_UNKNOWN_DAY = "__HIVE_DEFAULT_PARTITION__"

Partition = tuple[str, int]


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


@dataclass(slots=True)
class ExportReport:
    """What was written; ``lost`` are places of the log without a whole record, ``undecodable`` are bodies left out."""

    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    missing_topics: list[str] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    undecodable: list[str] = field(default_factory=list)


class _Parts:
    """The files of an export. A partition has one open file at most, and that of a day that is over is ended."""

    def __init__(self, root: Path, kind: ExportFormat, report: ExportReport) -> None:
        self._root = root
        self._kind = kind
        self._report = report
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._day: dict[str, int] = {}
        self._open: dict[str, ExportFile] = {}
        self._numbers: dict[Partition, int] = {}

    def add(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        """Rows of one topic and day, in order."""
        if self._day.get(topic, day) != day:
            self._end(topic)
        self._day[topic] = day
        self._waiting.setdefault(topic, []).append(rows)
        self._waiting_bytes[topic] = self._waiting_bytes.get(topic, 0) + rows.nbytes
        if self._waiting_bytes[topic] >= _WORTH_WRITING_BYTES:
            self._write(topic)
        elif sum(self._waiting_bytes.values()) >= _WAITING_BYTES:
            self._write(max(self._waiting_bytes, key=self._waiting_bytes.__getitem__))

    def finish(self) -> None:
        """End every file."""
        for topic in list(self._day):
            self._end(topic)

    def abandon(self) -> None:
        """Remove what is not whole."""
        for file in self._open.values():
            file.abandon()

    def _write(self, topic: str) -> None:
        rows = self._waiting.pop(topic, [])
        self._waiting_bytes.pop(topic, None)
        if not rows:
            return
        if topic not in self._open:
            self._open[topic] = ExportFile(self._next_path(topic), self._kind)
        file = self._open[topic]
        (joined,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
        file.write(joined)
        self._report.rows += joined.num_rows
        self._report.topics[topic] = self._report.topics.get(topic, 0) + joined.num_rows
        if file.size_bytes >= _LARGEST_FILE_BYTES:
            self._commit(topic)

    def _next_path(self, topic: str) -> Path:
        day = self._day[topic]
        number = self._numbers.get((topic, day), 0)
        self._numbers[topic, day] = number + 1
        return (
            self._root / f"topic={quote(topic, safe='')}" / f"day={_day_text(day)}" / f"part-{number:05d}.{self._kind}"
        )

    def _end(self, topic: str) -> None:
        self._write(topic)
        self._day.pop(topic, None)
        self._commit(topic)

    def _commit(self, topic: str) -> None:
        if topic in self._open:
            self._report.file_bytes += self._open[topic].commit()
            self._report.files += 1
            del self._open[topic]


def _day_text(day: int) -> str:
    if not 0 <= day <= _LAST_DAY:
        return _UNKNOWN_DAY
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%Y-%m-%d}"


class _Export:
    """One export from an open reader."""

    def __init__(
        self,
        reader: StoreReader,
        selection: ExportSelection,
        parts: _Parts,
        report: ExportReport,
        *,
        decompress: bool,
        progress: Progress | None,
    ) -> None:
        self._reader = reader
        self._selection = selection
        self._parts = parts
        self._report = report
        self._arrow = ArrowBatches(MESSAGE_SCHEMA, decompress=decompress, broker_name=None)
        self._progress = progress
        self._numbers = QueueNumbers()
        self._topics: list[str] = []  # of each queue number
        self._topic_ids: list[int] = []  # the first queue number of that topic
        self._wanted: list[bool] = []

    def run(self) -> None:
        begin, end = self._bounds()
        files = [file for file in self._files() if file.end > begin and file.base < end]
        records = IntactRecords(RealFileSystem(), files)
        for batch in one_ahead(records):
            self._add(batch, end)
            if self._progress is not None:
                self._progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        self._report.lost = [one for one in records.found.lost() if one.start < end]

    def _files(self) -> list[LogFile]:
        """Those of the log that may have records of the wanted time: it does not go back from file to file."""
        files = [LogFile(file.path, file.file_from_offset, file.size) for file in self._reader.log.queue.files]
        selection, kept = self._selection, []
        for number, file in enumerate(files):
            following = self._first_stored_ms(files[number + 1]) if number + 1 < len(files) else None
            first = self._first_stored_ms(file)
            is_before = selection.begin_ms is not None and following is not None and following < selection.begin_ms
            is_behind = selection.end_ms is not None and first is not None and first >= selection.end_ms
            if not is_before and not is_behind:
                kept.append(file)
        return kept

    def _first_stored_ms(self, file: LogFile) -> int | None:
        message = self._reader.message_at(file.base)
        return None if message is None else message.store_timestamp_ms

    def _bounds(self) -> tuple[int, int]:
        """From where to where the log has wanted messages, as far as the queues say so soundly."""
        low, high = max(self._reader.min_phy_offset, 0), self._reader.max_phy_offset
        selection = self._selection
        queues = [one for one in self._reader.consume_queues if selection.takes_queue(one.topic, one.queue_id)]
        if selection.topics is not None:
            self._report.missing_topics = sorted(selection.topics - {one.topic for one in queues})
        if selection.topics is None or not queues:
            return low, high
        starts, ends = [], []
        for queue in queues:
            first = max(queue.min_offset, selection.from_offset or 0)
            last = min(queue.max_offset, queue.max_offset if selection.to_offset is None else selection.to_offset) - 1
            if first > last:
                continue
            begin, end = queue.entry(first), queue.real_entry(last)
            # A unit that leads to no record is not believed.
            starts.append(begin.phy_offset if begin and self._reader.message_at(begin.phy_offset) else low)
            ends.append(end.phy_offset + end.size_bytes if end and self._reader.message_at(end.phy_offset) else high)
        return (max(min(starts), low), min(max(ends), high)) if starts else (low, low)

    def _add(self, batch: RecordBatch, end: int) -> None:
        numbers = self._numbers.assign(batch, self._add_queue)
        keep = self._selection.rows(batch) & (numbers >= 0)
        keep &= batch.columns[codes.POS, : batch.count] + batch.base < end
        keep &= np.array([*self._wanted, False])[numbers]
        if not keep.any():
            return
        chosen = batch.take(keep)
        chosen.believe_places()
        topics, queues = pa.array(self._topics, pa.string()), numbers[keep]
        path = str(self._reader.log.queue.directory)
        log_batch = LogBatch(path, chosen.base, chosen.buffer, chosen.columns, chosen.count, queues, topics)
        # Of a topic and a day at a time: sorting by topic keeps the order of the log within it.
        topic_ids = np.array(self._topic_ids)[queues]
        days = log_batch.row(codes.STORE_TIMESTAMP) // _DAY_MS
        for topic_id in np.unique(topic_ids).tolist():
            of_topic = topic_ids == topic_id
            for day in np.unique(days[of_topic]).tolist():
                self._add_rows(self._topics[topic_id], day, log_batch.take(of_topic & (days == day)))

    def _add_rows(self, topic: str, day: int, batch: LogBatch) -> None:
        while batch.count:
            try:
                self._parts.add(topic, day, self._arrow.convert(batch))
                return
            except CorruptRecordError as error:
                self._report.undecodable.append(str(error))
                batch = batch.take(batch.row(codes.PHY_OFFSET) != error.offset)

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        can_be = queue_id >= 0 and is_topic_storable(name)
        self._topics.append(name)
        self._topic_ids.append(self._topics.index(name))
        self._wanted.append(can_be and self._selection.takes_queue(name, queue_id))


def export_store(
    path: str | Path,
    target: str | Path,
    kind: ExportFormat = ExportFormat.PARQUET,
    selection: ExportSelection | None = None,
    config: MessageStoreConfig | None = None,
    *,
    given: Collection[str] = (),
    decompress: bool = True,
    progress: Progress | None = None,
) -> ExportReport:
    """Write the messages of the store at ``path`` into the directory ``target``, which is missing or empty.

    ``decompress`` gives bodies as they were before their producer packed them. Raises NotAStoreError,
    WrongFileSizeError, StoreError (where ``target`` is not empty), ConfigError, DiskFullError, OSError; then nothing is
    left of the export. A killed one leaves whole files, hidden ones, and no ``_SUCCESS``.
    """
    root, report = Path(target), ExportReport()
    require_empty(root)
    with closing(StoreReader.open(path, config, given=given, progress=progress)) as reader:
        parts = _Parts(root, kind, report)
        try:
            _Export(
                reader, selection or ExportSelection(), parts, report, decompress=decompress, progress=progress
            ).run()
            parts.finish()
        except BaseException:
            parts.abandon()
            remove_export(root)
            raise
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
