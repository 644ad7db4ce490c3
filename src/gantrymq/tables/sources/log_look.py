"""The first look at what is new in a log: where the commits end, and which runs of offsets each queue has.

No body is decompressed and no row is made. The look is needed before the first commit, because the records behind it
decide which of two records counts, and whether a queue was recreated (:mod:`gantrymq.tools.audit.queue_runs`).

Thread rule: one thread; a second one reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.tables.sources.log_part import LandedBefore, NewRecords
from gantrymq.tools.audit.queue_runs import QueueChoice, QueueName, QueueRun, append_run, runs_of
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.intact_records import FoundRecords

CUT_BYTES = 32 << 20  # of log between two cuts of a segment


@dataclass(slots=True)
class LogSegment:
    """The part [begin, end) of the log that one commit reads, with ``rows`` new records at most.

    ``runs`` are those of its new records; ``last_place`` and ``last_ms`` the physical offset and the store timestamp of
    the last one, -1 without any. ``cuts`` are physical offsets of records at which a reading may be divided.
    """

    begin: int
    end: int = -1
    rows: int = 0
    cuts: list[int] = field(default_factory=list)
    runs: dict[QueueName, list[QueueRun]] = field(default_factory=dict)
    last_place: int = -1
    last_ms: int = -1

    def next_offsets(self, choices: Mapping[QueueName, QueueChoice]) -> dict[QueueName, int]:
        """The offset after the last message of each queue of the segment, where ``choices`` count it."""
        ends = {}
        for name, runs in self.runs.items():
            offsets = np.array([run.end - 1 for run in runs], np.int64)
            phy_offsets = np.array([run.phy_end - 1 for run in runs], np.int64)
            keep = choices[name].apply(offsets, phy_offsets) if name in choices else np.ones(len(runs), np.bool_)
            if keep.any():
                ends[name] = int(offsets[keep].max()) + 1
        return ends


class LogLook(NewRecords):
    """Looks at the new records of a plan; ``segments`` divide them into commits."""

    def __init__(self, plan: ExportPlan, before: LandedBefore, commit_rows: int) -> None:
        super().__init__(plan, before)
        self._commit_rows = commit_rows
        self._plan_end = plan.end
        self.segments: list[LogSegment] = []
        self.last_record = -1
        """The physical offset of the last record, of whichever queue."""

    def seed(self, runs: Mapping[QueueName, QueueRun]) -> None:
        """Begin with runs of messages that have landed, so that those in the log continue them."""
        self.runs.by_queue.update({name: [run] for name, run in runs.items()})

    def look(self, files: list[LogFile]) -> FoundRecords:
        """Read the records of ``files``."""
        self.segments = [LogSegment(files[0].begin if files else 0)]
        contents = self.run(files)
        self.segments[-1].end = min(max(contents.end_offset, self.segments[-1].begin), self._plan_end)
        return contents

    def add(self, batch: RecordBatch) -> None:
        """Note the next records."""
        phy_offsets = batch.columns[codes.POS, : batch.count] + batch.base
        before_end = int(np.searchsorted(phy_offsets, self._plan_end))
        if before_end:
            self.last_record = int(phy_offsets[before_end - 1])
        super().add(batch)

    def take_new(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Divide the records into segments."""
        rows = np.flatnonzero(keep)
        while len(rows):
            segment = self.segments[-1]
            room = self._commit_rows - segment.rows
            if room == 0:
                segment.end = int(phy_offsets[rows[0]])
                self.segments.append(LogSegment(segment.end))
                continue
            self._add_rows(segment, batch, numbers, phy_offsets, rows[:room])
            rows = rows[room:]

    def _add_rows(
        self, segment: LogSegment, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, rows: Int64s
    ) -> None:
        columns = batch.columns
        at = columns[codes.QUEUE_OFFSET, rows], phy_offsets[rows], columns[codes.SIZE, rows]
        for number, _, run in runs_of(numbers[rows], *at):
            append_run(segment.runs.setdefault(self.names[number], []), run)
        first = int(phy_offsets[rows[0]])
        if first - (segment.cuts or [segment.begin])[-1] >= CUT_BYTES:
            segment.cuts.append(first)
        segment.rows += len(rows)
        segment.last_place = int(phy_offsets[rows[-1]])
        segment.last_ms = int(columns[codes.STORE_TIMESTAMP, rows[-1]])


def merged_ends(parts: Iterable[Mapping[QueueName, int]]) -> dict[QueueName, int]:
    """The largest offset of each queue."""
    merged: dict[QueueName, int] = {}
    for part in parts:
        for name, end in part.items():
            merged[name] = max(merged.get(name, 0), end)
    return merged
