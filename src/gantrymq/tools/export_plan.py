"""What an export reads: which messages are selected, and which part of the log may have them.

An export reads the log, not the queues, so a message is exported even if its queue lacks the unit. The queues are used
for two things. If unit 0 of a queue points to the record of its offset 0, the records before it belong to an older
topic of that name, which was deleted. A unit is also evidence that a message existed, so the message is reported as
lost if the export does not have it.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError, GantrymqError
from gantrymq.fs.api import FileSystem
from gantrymq.fs.lock_holder import lock_holder
from gantrymq.kernels import codes
from gantrymq.store.deleted_topics import DeletedTopics
from gantrymq.store.geometry import require_store
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader
from gantrymq.tools.audit.queue_runs import QueueChoice, QueueName
from gantrymq.tools.read.filed_queues import FiledQueues, filed
from gantrymq.tools.read.foreign_log_files import mark_foreign
from gantrymq.tools.read.index_files import found_sizes
from gantrymq.tools.read.log_places import placed_files
from gantrymq.tools.read.queue_files import QueueFiles, queue_directories
from gantrymq.tools.read.record_lookup import RecordClaim, RecordLookup, claims_at

_DAY_MS = 86_400_000
_EVER_MS = 1 << 63
_ENDLESS = (1 << 63) - 1
_LOOK_UNITS = 4096


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """Which messages to export. None means no restriction.

    ``topics`` and ``queue_id`` select queues; store timestamps are in [begin_ms, end_ms), queue offsets in
    [from_offset, to_offset).
    """

    topics: frozenset[str] | None = None
    queue_id: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for offsets without exactly one topic and queue, and for a begin at or after the end."""
        has_offsets = self.from_offset is not None or self.to_offset is not None
        if has_offsets and (self.queue_id is None or self.topics is None or len(self.topics) != 1):
            raise ConfigError("--from/--to", "", "only with one --topic and one --queue")
        if self.begin_ms is not None and self.end_ms is not None and self.begin_ms >= self.end_ms:
            raise ConfigError("--begin", self.begin_ms, f"before --end, which is {self.end_ms}")

    @property
    def is_everything(self) -> bool:
        """Whether every queue is selected."""
        return self.topics is None and self.queue_id is None

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        """Whether messages of this queue can be selected."""
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def rows(self, batch: RecordBatch) -> NDArray[np.bool_]:
        """A mask (``batch.count`` long) of the records within the times and offsets."""
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
    """What to read: the records of ``files`` before the physical offset ``end`` that ``selection`` takes.

    ``log`` are all files of the log, of which ``files`` may be a part; ``skipped`` are files that have no place in it.
    Records of a topic before its physical offset in ``deleted_ends`` are deleted. ``begins`` has the physical offset of
    a queue's record of offset 0, if that is certain. ``choices`` say which records count in queues with faults.
    ``true_queues`` maps a physical offset to the queue that its record belongs to, if the record names another one.
    ``filed`` knows the queue files that have the wrong name. ``compared_from`` has the queue offset from which a queue
    is compared with its records; earlier messages were exported before. ``unit_ends`` has the offset after the last
    unit of each queue on the disk, unless the queues were not read (``reads_queues``).
    """

    paths: StorePaths
    config: MessageStoreConfig
    files: list[LogFile]
    log: list[LogFile]
    skipped: list[Path]
    deleted_ends: Mapping[str, int]
    end: int
    begins: dict[QueueName, int]
    selection: ExportSelection
    decompress: bool
    is_live: bool = False
    choices: dict[QueueName, QueueChoice] = field(default_factory=dict)
    true_queues: dict[int, QueueName] = field(default_factory=dict)
    filed: FiledQueues | None = None
    compared_from: Mapping[QueueName, int] = field(default_factory=dict)
    unit_ends: Mapping[QueueName, int] = field(default_factory=dict)
    reads_queues: bool = True

    def queues_of(self, fs: FileSystem) -> FileSystem:
        """``fs`` with each queue file under its right name."""
        return filed(fs, self.filed.filed_as) if self.filed is not None else fs

    @property
    def has_end(self) -> bool:
        """Whether reading stops at a known physical offset instead of at the end of the log."""
        return self.end < _ENDLESS

    @property
    def log_begin(self) -> int:
        """The physical offset at which the log begins."""
        return self.log[0].base if self.log else 0

    def begin_of(self, name: QueueName) -> int | None:
        """The physical offset before which no record belongs to the queue; None if only the records can tell."""
        begins = [self.begins[name]] if name in self.begins else []
        begins += [self.deleted_ends[name[0]]] if name[0] in self.deleted_ends else []
        return max(begins, default=None)


class StoreSurvey:
    """What the directories of a store say: the sizes of its files, its queues, and the end of a log that is written.

    An answer costs O(queues), so it is kept, and the plans of one landing of many tables share a survey. What a writer
    adds after an answer is left to the next survey; a file that it has deleted since then counts as missing.
    """

    def __init__(self, fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, given: Collection[str]) -> None:
        self.fs, self.paths = fs, paths
        self._config, self._given = config, given
        self._live_end: int | None = None
        self._filed: FiledQueues | None = None
        self._queues: list[tuple[str, int, Path]] | None = None

    @cached_property
    def config(self) -> MessageStoreConfig:
        """The settings with the sizes of the files. Raises ConfigError, StorePermissionError."""
        return found_sizes(self.fs, self.paths, self._config, self._given)

    @property
    def end(self) -> int:
        """The end of the log if a writer has it open, else no limit. Later messages are not reported as missing."""
        if lock_holder(self.paths.lock) is None:
            return _ENDLESS
        if self._live_end is None:
            try:
                path, config = self.paths.root, self.config
                with StoreReader.open(path, config, given=self._given, trusts_writer=True) as reader:
                    self._live_end = reader.max_phy_offset
            except (GantrymqError, OSError):  # damage: it is skipped and reported
                return _ENDLESS
        return self._live_end

    def filed(self, files: list[LogFile]) -> FiledQueues:
        """The queue files that have the wrong name, as the records in ``files`` of the log show it."""
        if self._filed is None:
            filed_queues = FiledQueues(self.paths, files)
            filed_queues.find_misfiled(self.fs)
            self._filed = filed_queues
            self._queues = None if filed_queues.filed_as else self._queues
        return self._filed.copy()

    @property
    def queues(self) -> list[tuple[str, int, Path]]:
        """The queues that have a directory: topic, queue id, directory."""
        if self._queues is None:
            filed_as = self._filed.filed_as if self._filed is not None else {}
            self._queues = queue_directories(filed(self.fs, filed_as), self.paths.consume_queue)[0]
        return self._queues


def plan_export(
    survey: StoreSurvey, selection: ExportSelection, *, decompress: bool, reads_queues: bool = True
) -> ExportPlan:
    """Find the part of the log that can have selected messages. Raises NotAStoreError, StorePermissionError.

    Without ``reads_queues``, which costs O(queues), only the records tell where a queue begins.
    """
    fs, paths = survey.fs, survey.paths
    require_store(fs, paths)
    config = survey.config
    files, skipped = placed_files(fs, paths, config.mapped_file_size_commit_log)
    files = mark_foreign(fs, paths, config, files)
    end = survey.end
    lookup = RecordLookup.of(fs, files)
    try:
        deleted_ends = DeletedTopics(fs, paths, lookup.topic_and_end, files[0].base if files else 0).ends
        filed_queues = survey.filed(files) if reads_queues else FiledQueues(paths, files)
        queues = _loaded(survey, filed_queues, selection) if reads_queues else []
        begins = _begins(lookup, queues)
        low, high = _bounds(lookup, queues, begins, selection)
        wanted = [file for file in files if file.end > low and file.base < min(high, end)]
        wanted = _files_of_the_time(lookup, wanted, selection)
    finally:
        lookup.close()
    return ExportPlan(
        paths,
        config,
        wanted,
        files,
        skipped,
        dict(deleted_ends),
        min(end, high),
        begins,
        selection,
        decompress,
        is_live=end < _ENDLESS,
        filed=filed_queues,
        unit_ends={(queue.topic, queue.queue_id): _end_before(queue, end) for queue in queues},
        reads_queues=reads_queues,
    )


def wanted_topics(survey: StoreSurvey, selection: ExportSelection) -> set[str]:
    """The topics with queues on disk that the selection can take."""
    return {topic for topic, queue_id, _ in survey.queues if selection.takes_queue(topic, queue_id)}


def _loaded(survey: StoreSurvey, filed_queues: FiledQueues, selection: ExportSelection) -> list[QueueFiles]:
    """The queues on disk that the selection can take."""
    fs, size = filed(survey.fs, filed_queues.filed_as), survey.config.mapped_file_size_consume_queue
    return [
        QueueFiles.loaded(fs, directory, topic, queue_id, size)
        for topic, queue_id, directory in survey.queues
        if selection.takes_queue(topic, queue_id)
    ]


def _end_before(queue: QueueFiles, end: int) -> int:
    """The offset after the last unit, without those that a writer has added for records at or after ``end``."""
    if end == _ENDLESS:
        return queue.end
    for stop in range(queue.end, queue.first, -_LOOK_UNITS):
        start = max(stop - _LOOK_UNITS, queue.first)
        rows = np.flatnonzero(queue.units(start, stop).phy_offsets < end)
        if len(rows):
            return start + int(rows[-1]) + 1
    return 0


def _begins(lookup: RecordLookup, queues: Iterable[QueueFiles]) -> dict[QueueName, int]:
    """The physical offset of the record of offset 0, for each queue whose unit 0 points to it."""
    units = {(queue.topic, queue.queue_id): _unit(queue, 0) for queue in queues}
    claims = claims_at(lookup, (unit[0] for unit in units.values() if unit is not None))
    begins = {}
    for name, unit in units.items():
        claim = claims.get(unit[0]) if unit is not None else None
        if unit is not None and claim is not None and _is_of(claim, name, 0) and claim.size_bytes == unit[1]:
            begins[name] = claim.phy_offset
    return begins


def _unit(queue: QueueFiles, queue_offset: int) -> tuple[int, int] | None:
    """The physical offset and the size in a unit; None if it points to no record."""
    unit = queue.unit(queue_offset)
    return unit[:2] if unit.is_message else None


def _is_of(claim: RecordClaim, name: QueueName, queue_offset: int) -> bool:
    return (claim.topic, claim.queue_id, claim.queue_offset) == (*name, queue_offset)


def _bounds(
    lookup: RecordLookup, queues: list[QueueFiles], begins: dict[QueueName, int], selection: ExportSelection
) -> tuple[int, int]:
    """The part [low, high) of the log outside of which there is certainly no selected message."""
    if selection.topics is None or not queues:
        return 0, _ENDLESS
    low = min((begins.get((queue.topic, queue.queue_id), 0) for queue in queues), default=0)
    if any(topic not in {queue.topic for queue in queues} for topic in selection.topics):
        low = 0
    high = _ENDLESS
    for queue in queues:  # a single queue if offsets are given
        name = queue.topic, queue.queue_id
        first, last = selection.from_offset, selection.to_offset
        if first is not None and (claim := _of_unit(lookup, queue, first)) is not None and _is_of(claim, name, first):
            low = max(low, claim.phy_offset)
        if last is not None and (claim := _of_unit(lookup, queue, last)) is not None and _is_of(claim, name, last):
            high = claim.phy_offset
    return low, high


def _of_unit(lookup: RecordLookup, queue: QueueFiles, queue_offset: int) -> RecordClaim | None:
    unit = _unit(queue, queue_offset)
    return claims_at(lookup, [unit[0]]).get(unit[0]) if unit is not None else None


def _files_of_the_time(lookup: RecordLookup, files: list[LogFile], selection: ExportSelection) -> list[LogFile]:
    """The files that may have records of the selected time.

    Store timestamps follow the broker's clock, which may have been wrong for a while, so they can go back. A file is
    skipped only if its own first record and those of the file before and of the two files after it all lie outside of
    the selected time by more than a day. A day covers a clock that was set to the wrong time zone. Only files at the
    beginning or at the end are skipped. Missed records are possible only if the clock was off by more than a day and
    was corrected within these files. The store timestamp of the log's last record is unknown, so it counts as
    unlimited.
    """
    if selection.begin_ms is None and selection.end_ms is None:
        return files
    begin_ms = -_EVER_MS if selection.begin_ms is None else selection.begin_ms - _DAY_MS
    end_ms = _EVER_MS if selection.end_ms is None else selection.end_ms + _DAY_MS
    claims = claims_at(lookup, (file.base for file in files))
    times = [
        (claims[file.base].store_timestamp_ms,) * 2 if file.base in claims else (-_EVER_MS, _EVER_MS) for file in files
    ]
    times += [(first_ms, _EVER_MS) for first_ms, _ in times[-1:]]
    numbers = []
    for number in range(len(files)):
        first_times, last_times = zip(*times[max(number - 1, 0) : number + 3], strict=True)
        if min(first_times) < end_ms and max(last_times) >= begin_ms:
            numbers.append(number)
    return files[numbers[0] : numbers[-1] + 1] if numbers else []
