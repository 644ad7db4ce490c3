"""Reads the records that an export selects, and passes them on as Arrow batches, or only counts them.

``verify`` counts: it says what an export or a salvage would keep, also in an install without pyarrow. So pyarrow is
imported only if there is a target.

Thread rule: one thread; a second one reads ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import CorruptRecordError
from gantrymq.format.names import is_topic_storable
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.queue.queue_units import QueueNumbers
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.audit.queue_runs import QueueName, QueueRuns
from gantrymq.tools.export_files import ExportReport, ExportTarget
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords

if TYPE_CHECKING:
    from gantrymq.tools.arrow import ArrowBatches, LogBatch

STEP = "Exporting"
_DAY_MS = 86_400_000


class RecordExport:
    """Passes the records of a plan to ``target``, batch by batch in the order of the log.

    ``runs`` has what was found of each queue. If ``target`` is None, the records are read only for that.
    """

    def __init__(self, plan: ExportPlan, target: ExportTarget | None, report: ExportReport) -> None:
        self._plan = plan
        self._target = target
        self._report = report
        self._arrow = None if target is None else self._arrow_batches()
        self.runs = QueueRuns()
        self._numbers = QueueNumbers()
        self._names: list[QueueName] = []  # by queue number
        self._topic_ids: list[int] = []  # by queue number: the first queue number of the same topic
        self._first_number: dict[str, int] = {}
        self._wanted: list[bool] = []
        self._begins: list[int] = []

    @property
    def file_system(self) -> FileSystem:
        """The file system of the log."""
        return RealFileSystem()

    @property
    def names(self) -> list[QueueName]:
        """The queues that were found, by number."""
        return self._names

    def run(self, files: list[LogFile], progress: Progress | None = None) -> FoundRecords:
        """Export the selected records of ``files``, the next files of the plan; returns what was found in them."""
        records = IntactRecords(self.file_system, files, log=self._plan.log)
        for batch in one_ahead(records):
            self.add(batch)
            if progress is not None:
                progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
        if progress is not None:
            progress(STEP, records.total_bytes, records.total_bytes)
        return records.contents

    def add(self, batch: RecordBatch) -> None:
        """Note the records of the next batch of the log, and take the selected ones."""
        numbers = self._numbers.assign(batch, self._add_queue)
        phy_offsets = batch.columns[codes.POS, : batch.count] + batch.base
        self._correct_queues(batch, numbers, phy_offsets)
        keep = (numbers >= 0) & (phy_offsets < self._plan.end) & np.array([*self._wanted, False])[numbers]
        if not keep.any():
            return
        self._note_runs(batch, numbers, phy_offsets, keep)
        keep &= phy_offsets >= np.array([*self._begins, 0])[numbers]
        self._choose(batch, numbers, phy_offsets, keep)
        keep &= self._plan.selection.rows(batch)
        if keep.any():
            self.take(batch, numbers, phy_offsets, keep)

    def take(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Convert the records that ``keep`` selects and add them to the target."""
        if self._target is None or self._arrow is None:
            return
        log_batch = self.log_batch(batch, numbers, keep)
        topic_ids = np.array(self._topic_ids)[log_batch.queues]
        days = log_batch.row(codes.STORE_TIMESTAMP) // _DAY_MS
        for topic_id, day, records in log_batch.by(topic_ids, days):
            for rows in self._arrow.convert(records):
                self._target.add(self._names[topic_id][0], day, rows)

    def log_batch(self, batch: RecordBatch, numbers: Int64s, keep: NDArray[np.bool_]) -> LogBatch:
        """The records that ``keep`` selects, at their real positions; ``numbers`` are indexes into ``names``."""
        import pyarrow as pa

        from gantrymq.tools.arrow import LogBatch

        chosen = batch.take(keep)
        chosen.trust_positions()
        topics = pa.array([topic for topic, _ in self._names], pa.string())
        path = str(self._plan.paths.commit_log)
        return LogBatch(path, chosen.base, chosen.buffer, chosen.columns, chosen.count, numbers[keep], topics)

    def _arrow_batches(self) -> ArrowBatches:
        from gantrymq.tools.arrow import MESSAGE_SCHEMA, ArrowBatches

        return ArrowBatches(
            MESSAGE_SCHEMA,
            decompress=self._plan.decompress,
            broker_name=None,
            refuse=self._refuse,
            max_decompressed_body_size=self._plan.config.max_decompressed_body_size_bytes,
        )

    def _correct_queues(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s) -> None:
        """Set the true queue of records that name another one."""
        if not self._plan.true_queues:
            return
        for row in np.flatnonzero(np.isin(phy_offsets, list(self._plan.true_queues))).tolist():
            topic, queue_id = self._plan.true_queues[int(phy_offsets[row])]
            numbers[row] = self._numbers.number_of(topic.encode(), queue_id, self._add_queue)
            batch.columns[codes.QUEUE_ID, row] = queue_id

    def _note_runs(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, wanted: NDArray[np.bool_]) -> None:
        columns = batch.columns[:, : batch.count]
        is_moved = columns[codes.PHY_OFFSET] != phy_offsets
        rows = columns[codes.QUEUE_OFFSET][wanted], phy_offsets[wanted], columns[codes.SIZE][wanted], is_moved[wanted]
        self.runs.add(self._names, numbers[wanted], rows)

    def _choose(self, batch: RecordBatch, numbers: Int64s, phy_offsets: Int64s, keep: NDArray[np.bool_]) -> None:
        """Remove the records that do not count from ``keep``, and correct the queue offsets of the others."""
        if not self._plan.choices:
            return
        for number in np.unique(numbers[keep]).tolist():
            if (choice := self._plan.choices.get(self._names[number])) is not None:
                rows = np.flatnonzero(keep & (numbers == number))
                offsets = batch.columns[codes.QUEUE_OFFSET, rows]
                keep[rows] = choice.apply(offsets, phy_offsets[rows])
                batch.columns[codes.QUEUE_OFFSET, rows] = offsets

    def _refuse(self, error: CorruptRecordError) -> None:
        self._report.undecodable.append(str(error))
        self._report.undecodable_places[error.offset] = error.reason

    def _add_queue(self, topic: bytes, queue_id: int) -> None:
        name = decode_utf8(topic)
        can_be = queue_id >= 0 and is_topic_storable(name)
        self._names.append((name, queue_id))
        self._topic_ids.append(self._first_number.setdefault(name, len(self._topic_ids)))
        self._wanted.append(can_be and self._plan.selection.takes_queue(name, queue_id))
        self._begins.append(self._plan.begin_of((name, queue_id)) or 0)
