"""Verifies the consume queues against the log: first by record, then the units that no record asked for.

Each batch of the log determines which units its records must have. If the queue has exactly these bytes, nothing more
is to do. The units that are left at the end (with other bytes, after or between) are checked one by one in
:mod:`gantrymq.tools.check.queue_units_check`.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import is_topic_storable, offset_name, parse_offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.fs.api import Entry, FileSystem
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.queue.consume_queue import REBUILD
from gantrymq.store.queue.group_offsets import EndOf
from gantrymq.store.queue.queue_units import QueueNumbers, QueueUnits, queue_units
from gantrymq.tools.audit.differences import matches_as_stretch, matching
from gantrymq.tools.audit.queue_runs import Coverage
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.bad_disk import joined
from gantrymq.tools.read.queue_files import QueueFiles, queue_directories

_MAX_LISTED = 4096


@dataclass(slots=True)
class RecordsWithoutEntry:
    """(queue offset, physical offset) of records without their unit: the first 4096 are kept, all are counted.

    ``end`` is after the highest of these queue offsets.
    """

    offsets: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    end: int = 0

    def add(self, queue_offsets: NDArray[np.int64], phy_offsets: NDArray[np.int64]) -> None:
        """Add some records."""
        room = _MAX_LISTED - len(self.offsets)
        self.offsets += zip(queue_offsets[:room].tolist(), phy_offsets[:room].tolist(), strict=True)
        self.count += len(queue_offsets)
        self.end = max(self.end, int(queue_offsets.max(initial=-1)) + 1)


@dataclass(slots=True)
class CheckedQueue:
    """One queue: which slots are accounted for, and the records without their unit.

    ``older`` are the records before the one that unit 0 points to. If that unit is right, they are of a topic that was
    deleted and has been recreated since.
    """

    files: QueueFiles
    coverage: Coverage
    without_entry: RecordsWithoutEntry = field(default_factory=RecordsWithoutEntry)
    older: RecordsWithoutEntry = field(default_factory=RecordsWithoutEntry)
    _begin: int | None = None

    @property
    def begin(self) -> int:
        """The physical offset in unit 0; 0 if there is none."""
        if self._begin is None:
            self._begin = self.files.begin
        return self._begin

    @property
    def end(self) -> int:
        """The queue offset after the last message, by the files or by the log."""
        return max(self.files.end, self.older.end, self.without_entry.end)

    @property
    def missed(self) -> list[RecordsWithoutEntry]:
        """The records whose unit is missing."""
        return [self.without_entry] if self.coverage.is_covered(0) else [self.older, self.without_entry]

    def may_be_claimed(self, slot: int) -> bool:
        """Whether a record without its unit has this slot, or may be among those that were only counted."""
        return any(
            records.count > len(records.offsets) or any(slot == offset for offset, _ in records.offsets)
            for records in self.missed
        )


class QueueCheck:
    """Checks the queues below ``directory``. Pass every batch of the log in order to :meth:`add`.

    ``deleted_ends`` maps a topic to the physical offset before which all its records are deleted.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        directory: Path,
        file_size: int,
        delay_levels_ms: Sequence[int],
        deleted_ends: Mapping[str, int],
    ) -> None:
        self._fs, self._deleted_ends = fs, deleted_ends
        self._root = root
        self._directory = directory
        self._file_size = file_size
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._numbers = QueueNumbers()
        self._by_number: list[CheckedQueue | None] = []
        self._queues: dict[tuple[str, int], CheckedQueue] = {}
        self._others: list[Path] = []
        self.entries = 0

    @property
    def queues(self) -> list[CheckedQueue]:
        """Every queue, on disk or in the log, sorted."""
        return [self._queues[key] for key in sorted(self._queues)]

    def load(self) -> None:
        """Find the queues on disk."""
        queues, self._others = queue_directories(self._fs, self._directory)
        for topic, queue_id, path in queues:
            files = QueueFiles.loaded(self._fs, path, topic, queue_id, self._file_size)
            self._queues[topic, queue_id] = CheckedQueue(files, Coverage(files.first))
            self.entries += files.end - files.first

    def ends(self) -> EndOf:
        """A function that returns where a queue ends now.

        It returns 0 for a missing queue whose topic has other queues, and None for an unknown topic.
        """
        topics = {topic for topic, _ in self._queues}

        def end_of(topic: str, queue_id: int) -> int | None:
            queue = self._queues.get((topic, queue_id))
            return queue.end if queue is not None else 0 if topic in topics else None

        return end_of

    def leads_to(self, topic: str, queue_id: int, queue_offset: int, phy_offset: int) -> bool:
        """Whether the unit of this slot of a queue points to ``phy_offset``."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.files.first <= queue_offset < queue.files.end:
            return False
        return queue.files.unit(queue_offset).phy_offset == phy_offset

    # Against the log

    def add(self, batch: RecordBatch) -> None:
        """Look for the units of the records of a batch."""
        numbers = self._numbers.assign(batch, self._add_queue)
        batch.trust_positions()
        grouped = queue_units(batch, numbers, len(self._by_number), self._delay_levels_ms)
        for number in np.flatnonzero(np.diff(grouped.starts)).tolist():
            queue = self._by_number[number]
            if queue is not None:
                self._compare(queue, grouped, int(grouped.starts[number]), int(grouped.starts[number + 1]))

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        is_queue = queue_id >= 0 and is_topic_storable(name)
        self._by_number.append(self._queue(name, queue_id) if is_queue else None)

    def _queue(self, topic: str, queue_id: int) -> CheckedQueue:
        if (topic, queue_id) not in self._queues:
            files = QueueFiles(self._fs, self._directory / topic / str(queue_id), topic, queue_id, self._file_size)
            self._queues[topic, queue_id] = CheckedQueue(files, Coverage(0))
        return self._queues[topic, queue_id]

    def compare(self, topic: str, queue_id: int, batches: Iterable[QueueUnits]) -> CheckedQueue:
        """Look for all units of one queue, batch by batch. The check must not have been loaded."""
        queue = self._queue(topic, queue_id)
        queue.files.load()
        queue.coverage = Coverage(queue.files.first)
        for grouped in batches:
            self._compare(queue, grouped, 0, len(grouped.queue_offsets))
        return queue

    def take(
        self,
        topic: str,
        queue_id: int,
        coverage: Coverage,
        without_entry: RecordsWithoutEntry,
        older: RecordsWithoutEntry,
    ) -> None:
        """Take over the result of :meth:`compare` from another process."""
        queue = self._queue(topic, queue_id)
        queue.coverage, queue.without_entry, queue.older = coverage, without_entry, older

    def _compare(self, queue: CheckedQueue, grouped: QueueUnits, begin: int, end: int) -> None:
        offsets, phy_offsets = grouped.queue_offsets[begin:end], grouped.phy_offsets[begin:end]
        expected = grouped.units[begin * UNIT_SIZE : end * UNIT_SIZE]
        if matches_as_stretch(queue.files, offsets, expected):
            queue.coverage.cover(int(offsets[0]), int(offsets[-1]) + 1)
            return
        same = matching(queue.files, offsets, expected)
        for slot in offsets[same].tolist():
            queue.coverage.cover(slot, slot + 1)
        is_missed = ~same & (phy_offsets >= self._deleted_ends.get(queue.files.topic, -1))
        is_older = is_missed & (phy_offsets < queue.begin)
        for records, which in ((queue.older, is_older), (queue.without_entry, is_missed & ~is_older)):
            records.add(offsets[which], phy_offsets[which])

    # Afterwards

    def look_again(self) -> None:
        """Forget the files that a writer's retention has deleted meanwhile."""
        for queue in self.queues:
            queue.files.look_again()

    def check_files(self, min_offset: int) -> Iterator[Finding]:
        """Report wrong names, wrong sizes and missing files; ``min_offset`` is where the log begins."""
        for path in self._others:
            text = "is not a directory of a queue"
            yield Finding(FindingKind.FOREIGN_FILE, path.relative_to(self._root), text, Severity.NOTE)
        for queue in self.queues:
            files = queue.files
            fields = {"topic": files.topic, "queue_id": files.queue_id}
            for entry in files.others:
                yield self._foreign(files, entry)
            for base, size in sorted(files.sizes.items()):
                if size != self._file_size:
                    text = f"is {size} bytes long, the others {self._file_size}; {REBUILD}"
                    yield self._finding(FindingKind.FILE_SIZE, files.directory / offset_name(base), text, **fields)
            for begin, end in files.missing():
                queue.coverage.cover(begin, end)
                text = "missing between other files"
                slots = {"queue_offset": begin, "count": end - begin}
                yield self._finding(FindingKind.QUEUE_FILE_MISSING, files.path_of(begin), text, **fields, **slots)
            yield from self._stale(files, min_offset)

    def _foreign(self, files: QueueFiles, entry: Entry) -> Finding:
        fields = {"topic": files.topic, "queue_id": files.queue_id}
        level, base = Severity.NOTE, parse_offset_name(entry.name)
        if base is not None and base % self._file_size == 0 and base <= max(files.sizes, default=0) + self._file_size:
            text = f"has the name of a file of the queue; move it away, then {REBUILD}"
            level = Severity.DAMAGE
        elif entry.is_directory:
            text = "is not part of a RocketMQ store, and is left alone; a broker starts with it"
        else:
            text = "is not part of a RocketMQ store, and is left alone; RocketMQ 5.5.0 does not start, gantrymq does"
        return self._finding(FindingKind.FOREIGN_FILE, files.directory / entry.name, text, level=level, **fields)

    def _stale(self, files: QueueFiles, min_offset: int) -> Iterator[Finding]:
        """Report files that retention should have deleted, so that the queue's first offset is too low."""
        stale = 0
        for base in sorted(files.sizes)[:-1]:
            if not 0 <= files.last_phy_offset(base) < min_offset:
                break
            stale += 1
        if stale:
            text = f"the first {stale} file{'s' * (stale > 1)} of the queue point only before the begin of the log"
            fields = {"topic": files.topic, "queue_id": files.queue_id, "queue_offset": files.first}
            yield self._finding(
                FindingKind.QUEUE_MIN_OFFSET_STALE, files.path_of(files.first), text, **fields, count=stale
            )

    def check_unreadable(self) -> Iterator[Finding]:
        """Report the unreadable ranges that were met."""
        for queue in self.queues:
            files = queue.files
            fields = {"topic": files.topic, "queue_id": files.queue_id}
            for (base, begin, end), error in joined(files.unreadable):
                text = f"the disk cannot read bytes {begin} to {end}: {error}; {REBUILD}"
                first, behind = (base + begin) // UNIT_SIZE, -(-(base + end) // UNIT_SIZE)
                slots = {"queue_offset": first, "count": behind - first, "length_bytes": end - begin}
                path = files.directory / offset_name(base)
                yield self._finding(FindingKind.FILE_UNREADABLE, path, text, **fields, **slots)

    def _finding(self, kind: FindingKind, path: Path, text: str, **fields: object) -> Finding:
        return Finding(kind, path.relative_to(self._root), text, **fields)  # type: ignore[arg-type]
