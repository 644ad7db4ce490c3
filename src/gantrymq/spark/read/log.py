"""Reading a run of the commit log on an executor: batches of records, whatever the state of the bytes.

Executors read the files that their run names and take no lock. The bytes were written before the query was planned
and never change; the marks of each piece prove that. Damage inside the log and bad sectors are an error that names
file and offset. With failOnDataLoss=false reading continues at the next record, and each skipped range is logged. A
file that was cut, cannot be opened, belongs to another log, or is missing for another reason than retention is always
an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from gantrymq.errors import CorruptRecordError, StoreError
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, SECTOR
from gantrymq.kernels import codes
from gantrymq.spark.data_loss import DataLossError, report
from gantrymq.spark.log_file import LogEnd, NotThereError, OpenLogFile, RangeSource, require_retention
from gantrymq.spark.queue_filter import QueueFilter
from gantrymq.spark.read.queue_audit import QueueAudit
from gantrymq.spark.runs import ENDLESS, LogPiece, LogRun
from gantrymq.spark.selection import RowFilter
from gantrymq.store.log.record_batch import RecordBatch, RecordScan
from gantrymq.store.log.record_chain import RecordChain, next_record
from gantrymq.tools.arrow import LogBatch, byte_buffer
from gantrymq.tools.queue_key import QueueKey

# The size that Spark's JVM takes best. It also stays in the CPU caches while the columns are filled one by one.
BATCH_RECORDS = 16_384
CHUNK_BYTES = 4 << 20

_QUEUES_SHOWN = 3
_AUDITED = "the log is damaged there: see `gantrymq store verify`; failOnDataLoss=false continues without them"
_LOGGER = logging.getLogger(__name__)


def read_run(run: LogRun, *, verify_crc: bool, fail_on_data_loss: bool) -> Iterator[LogBatch]:
    """The records of ``run`` that are in a queue, in the order of the log; no batch is empty.

    Raises CorruptRecordError, DataLossError, and StoreError if a file is gone.
    """
    queues = QueueFilter(run.selection, run.bounds, run.broker)
    room = _Room(codes.CHECK_BODY if verify_crc else codes.CHECK_OFF)
    audit = QueueAudit(run, run.audit) if run.audit is not None else None
    rows = run.rows or RowFilter()
    for piece in run.pieces:
        reading = _PieceReader(piece, queues, audit, room, run.log_end, fail_on_data_loss=fail_on_data_loss)
        try:
            for batch in map(rows.apply, reading.batches()):
                batch = run.pending.apply(batch) if run.pending is not None else batch
                if batch.count:
                    yield batch
        except StoreError as error:
            raise _with_queues(error, run) from None
    if audit is not None and (losses := audit.losses()):
        if fail_on_data_loss:
            raise DataLossError(losses, _AUDITED)
        report(losses, fail=False)
    _warn_of_queues(queues, run)


def _warn_of_queues(queues: QueueFilter, run: LogRun) -> None:
    """Log messages of the log that the queues of the store lack, so that no consumer sees them either."""
    for number, last in queues.behind_end.items():
        topic, queue_id = queues.keys[number]
        end = (run.bounds or {})[topic or "", queue_id].end
        _LOGGER.warning(
            "%s: ends at offset %d, but the log has messages of it up to offset %d, which are left out: "
            "`gantrymq store rebuild` restores the queue",
            *(QueueKey(run.broker or "", topic or "", queue_id), end, last),
        )
    if queues.without_queue:
        shown = "; ".join(
            f"topic {topic}, queue {queue_id}" for topic, queue_id in queues.without_queue[:_QUEUES_SHOWN]
        )
        more = len(queues.without_queue) - _QUEUES_SHOWN
        _LOGGER.warning(
            "left out, as the store has no such queue (its topic was deleted, or `store rebuild` brings it back): %s%s",
            *(shown, f"; and {more} more queues" if more > 0 else ""),
        )


def _with_queues(error: StoreError, run: LogRun) -> StoreError:
    """The error with the queues that were being read, because users know these and not physical offsets."""
    parts = sorted((key, bounds) for key, bounds in (run.bounds or {}).items() if bounds.low < bounds.high != ENDLESS)
    if not parts:
        return error
    shown = [
        f"topic {topic}, queue {queue_id}, offsets {bounds.low} to {bounds.high - 1}"
        for (topic, queue_id), bounds in parts[:_QUEUES_SHOWN]
    ]
    more = len(parts) - len(shown)
    reading = f"while reading broker {run.broker}: {'; '.join(shown)}{f'; and {more} more queues' if more else ''}"
    error.args = (f"{error}, {reading}",)
    return error


class _Room:
    """Memory that every chunk of a run reuses: its bytes, and the columns of its records."""

    def __init__(self, check: int) -> None:
        self.scan = RecordScan(check, BATCH_RECORDS, sets=1)
        self._bytes = byte_buffer(CHUNK_BYTES + SECTOR).array  # a window begins at a sector

    def view(self, size: int) -> memoryview:
        """A view of ``size`` bytes. Earlier views are overwritten."""
        if size > len(self._bytes):
            self._bytes = byte_buffer(size).array
        return self._bytes[:size].data


class _PieceReader:
    """Reads one piece, once. Positions are physical offsets."""

    def __init__(
        self,
        piece: LogPiece,
        queues: QueueFilter,
        audit: QueueAudit | None,
        room: _Room,
        log_end: LogEnd | None,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._piece = piece
        self._log_end = log_end
        self._queues = queues
        self._audit = audit
        self._room = room
        self._fail = fail_on_data_loss

    def batches(self) -> Iterator[LogBatch]:
        """Yield every selected readable record; a batch is valid until the next one."""
        file = self._opened()
        if file is not None:
            with file:
                for mark in self._piece.marks:
                    mark.require(file)
                yield from self._batches(file)

    def _opened(self) -> OpenLogFile | None:
        """The file; None if retention deleted it, which is a data loss. Any other missing file is an error."""
        piece = self._piece
        try:
            return OpenLogFile(piece.location)
        except NotThereError as error:
            require_retention(error, piece.location, piece.base, self._log_end)
            self._lose(error)
            return None

    def _batches(self, file: OpenLogFile) -> Iterator[LogBatch]:
        piece = self._piece
        source = RangeSource(file, piece.base, piece.stop - piece.base, CHUNK_BYTES, self._room.view)
        chain = RecordChain(source, self._room.scan, piece.start - piece.base, source.size, cuts_holes=False)
        while True:
            for batch in chain:
                yield self._selected(batch)
            size, magic = chain.head
            if not chain.stop or source.size - chain.position < BLANK_SIZE:
                return
            # Trust a blank only if it fills its file: there may be records after any other.
            if magic == MAGIC_BLANK and chain.position + size == file.size_bytes():
                return
            position = piece.base + chain.position
            error = chain.error or CorruptRecordError(str(piece.location), position, chain.stop.error)
            chain.continue_at(self._skip_damage(error, source, chain.position))

    def _selected(self, records: RecordBatch) -> LogBatch:
        """The records of selected queues that carry their own physical offset, as StoreReader returns them."""
        path, queues, columns = str(self._piece.location), self._queues, records.columns
        numbers = queues.numbers(records.buffer, columns, records.count)
        wanted = queues.wanted(numbers, columns, records.base)
        batch = LogBatch(path, records.base, records.buffer, columns, records.count, numbers, queues.topics)
        batch = batch.take(wanted)
        right = batch.row(codes.PHY_OFFSET) == batch.row(codes.POS) + batch.base
        if not right.all():
            wrong = batch.row(codes.POS)[~right] + batch.base
            more = f"; so do {len(wrong) - 1} more, up to offset {int(wrong[-1])}" if len(wrong) > 1 else ""
            self._lose(CorruptRecordError(path, int(wrong[0]), f"it names another physical offset{more}"))
            batch = batch.take(right)
        return self._audited(batch) if self._audit is not None and batch.count else batch

    def _audited(self, batch: LogBatch) -> LogBatch:
        """The records that are the messages that they claim to be."""
        assert self._audit is not None
        doubles = self._audit.take(self._queues.keys, batch)
        for at, why in doubles.items():
            self._lose(CorruptRecordError(batch.path, int(batch.row(codes.PHY_OFFSET)[at]), why))
        return batch.take(~np.isin(np.arange(batch.count), list(doubles))) if doubles else batch

    def _skip_damage(self, error: StoreError, source: RangeSource, position: int) -> int:
        """The position of the next record. Raises ``error``, or logs it with the skipped range."""
        if self._fail:
            raise error
        next_position = next_record(source, position + 1).position
        next_position = source.size if next_position is None else next_position
        _LOGGER.warning(
            "failOnDataLoss=false, continuing after: %s; the physical offsets %d to %d are skipped",
            *(error, source.base + position, source.base + next_position - 1),
        )
        return next_position

    def _lose(self, error: StoreError) -> None:
        if self._fail:
            raise error
        _LOGGER.warning("failOnDataLoss=false, continuing after: %s", error)
