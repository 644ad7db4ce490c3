"""Reading a part of a store's log: the records of the chosen queues, corrected as an export corrects them.

Thread rule: a reading belongs to one thread; a second one reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.copied import CopiedFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.tables.errors import LogDeletedError
from gantrymq.tables.sources.steps import Records
from gantrymq.tools.audit.queue_runs import QueueName
from gantrymq.tools.export_files import ExportReport
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.intact_records import IntactRecords
from gantrymq.tools.record_export import RecordExport


@dataclass(frozen=True, slots=True)
class LandedBefore:
    """The records of each queue that an earlier landing has: those before a physical offset, or before a queue offset.

    Both are 0 for a queue of which nothing has landed.
    """

    phy_offsets: Mapping[QueueName, int] = field(default_factory=dict)
    queue_offsets: Mapping[QueueName, int] = field(default_factory=dict)


class NewRecords(RecordExport):
    """The records of a plan that have not landed before. Subclasses take them in :meth:`take_new`."""

    def __init__(self, plan: ExportPlan, before: LandedBefore) -> None:
        super().__init__(plan, None, ExportReport())
        self._before = before
        self._first_places: list[int] = []
        self._first_offsets: list[int] = []

    @property
    def file_system(self) -> FileSystem:
        """Copies, so that the memory does not grow with the files."""
        return copied_files()

    def take(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Pass on the records that ``keep`` selects and that have not landed."""
        for name in self.names[len(self._first_places) :]:
            self._first_places.append(self._before.phy_offsets.get(name, 0))
            self._first_offsets.append(self._before.queue_offsets.get(name, 0))
        is_new = keep & (phy_offsets >= np.array([*self._first_places, 0])[numbers])
        is_new &= batch.columns[codes.QUEUE_OFFSET, : batch.count] >= np.array([*self._first_offsets, 0])[numbers]
        if is_new.any():
            self.take_new(batch, numbers, phy_offsets, is_new)

    def take_new(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Take the records that ``keep`` selects, of which there is at least one."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class LogPart:
    """The records of ``plan`` from the physical offset ``begin`` to before ``end``, as a part of a step.

    ``generations`` has those that are not 0. ``cuts`` are physical offsets of records at which it may be divided.
    """

    broker: str
    plan: ExportPlan
    begin: int
    end: int
    before: LandedBefore
    generations: Mapping[QueueName, int]
    cuts: tuple[int, ...] = ()

    def divided(self) -> list[LogPart]:
        """The parts between the cuts."""
        bounds = (self.begin, *self.cuts, self.end)
        return [replace(self, begin=begin, end=end, cuts=()) for begin, end in pairwise(bounds)]

    def records(self) -> Iterator[Records]:
        """Read the records in the order of the log. Raises LogDeletedError, StoreError."""
        plan = replace(self.plan, end=min(self.plan.end, self.end))
        reading = _PartReading(plan, self)
        files = files_between(plan.files, self.begin, self.end)
        with closing(one_ahead(IntactRecords(_planned_files(), files, log=plan.log))) as batches:  # type: ignore[type-var]
            for batch in batches:
                if batch.start_offset >= self.end:
                    break
                reading.add(batch)
                yield from reading.drain()


class _PartReading(NewRecords):
    """Turns the new records of a part into batches for Arrow."""

    def __init__(self, plan: ExportPlan, part: LogPart) -> None:
        super().__init__(plan, part.before)
        self._part = part
        self._generations: list[int] = []
        self._records: list[Records] = []

    def take_new(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Keep the records for :meth:`drain`."""
        for name in self.names[len(self._generations) :]:
            self._generations.append(self._part.generations.get(name, 0))
        log_batch = self.log_batch(batch, numbers, keep)
        self._records.append(Records(self._part.broker, log_batch, np.array(self._generations, np.int64)))

    def drain(self) -> list[Records]:
        """What was read since the last call."""
        records, self._records = self._records, []
        return records


class _PlannedFiles(CopiedFileSystem):
    """Files that existed when they were planned: a missing one is an error, for its rows are in no other commit."""

    def open(self, path: Path, **options: Any) -> File:
        """Open a file. Raises LogDeletedError."""
        try:
            return super().open(path, **options)
        except FileNotFoundError as error:
            raise LogDeletedError(path) from error


def _planned_files() -> FileSystem:
    return _PlannedFiles(RealFileSystem()).as_file_system()


def copied_files() -> FileSystem:
    """The file system from which a landing reads a log."""
    return CopiedFileSystem(RealFileSystem()).as_file_system()


def files_between(files: Sequence[LogFile], begin: int, end: int) -> list[LogFile]:
    """The files with records from ``begin``, which is the place of a record, to before ``end``."""
    wanted = [file for file in files if file.end > begin and file.base < end]
    return [replace(file, skip_bytes=max(begin - file.base, 0)) for file in wanted]
