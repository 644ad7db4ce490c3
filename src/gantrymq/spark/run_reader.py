"""Reading a run of the commit log on an executor: batches of records, whatever the state of the bytes.

Executors map the files that their run names, read-only, and take no lock. What is read was written before the query
was planned and never changes. Damage inside the log (where no recovery has judged it) is an error that names file and
offset; with failOnDataLoss=false it is passed over, record by record, and logged.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator

import numpy as np

from gantrymq.errors import CorruptRecordError, StoreError
from gantrymq.format.record import MAGIC_V1, MAGIC_V2, CheckCRC, Layout, check_record
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import Bytes, Int64s, new_columns, read_only
from gantrymq.spark.log_batch import LogBatch
from gantrymq.spark.log_run import LogPiece, LogRun
from gantrymq.spark.queue_filter import QueueFilter

# What Spark's JVM takes best, and small enough to stay in the caches while the columns are filled one by one.
BATCH_RECORDS = 16_384
BATCH_BYTES = 4 << 20

_LOGGER = logging.getLogger(__name__)
_ENDS = (codes.STOP_BLANK, codes.STOP_NO_BLANK)
_REASONS = {
    codes.STOP_ZEROS: "zeros",
    codes.STOP_HALF: "half a record",
    codes.STOP_MAGIC: "a wrong magic code",
    codes.STOP_SIZE: "an impossible size",
    codes.STOP_CRC: "its CRC is wrong",
}
_MAGICS = {magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)}
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_AT = 4
_PHY_OFFSET_AT = 28


def read_run(run: LogRun, *, verify_crc: bool, fail_on_data_loss: bool) -> Iterator[LogBatch]:
    """The records of ``run`` that are in a queue, in the order of the log; no batch is empty.

    Raises CorruptRecordError, and StoreError where a file is gone.
    """
    queues = QueueFilter(run.topics)
    columns = new_columns(BATCH_RECORDS)
    for piece in run.pieces:
        reading = _PieceReader(piece, queues, verify_crc=verify_crc, fail_on_data_loss=fail_on_data_loss)
        for batch in reading.batches(columns):
            if batch.count:
                yield batch


class _PieceReader:
    """Reads one piece; once."""

    def __init__(self, piece: LogPiece, queues: QueueFilter, *, verify_crc: bool, fail_on_data_loss: bool) -> None:
        self._piece = piece
        self._queues = queues
        self._check = codes.CHECK_BODY if verify_crc else codes.CHECK_OFF
        self._fail = fail_on_data_loss
        self._start, self._stop = piece.start - piece.base, piece.stop - piece.base

    def batches(self, columns: Int64s) -> Iterator[LogBatch]:
        """Every readable record that is wanted; the batches share ``columns``."""
        piece, position, stop = self._piece, self._start, self._stop
        try:
            mapped = _map(piece)
        except StoreError as error:
            self._lose(error)
            return
        buffer = read_only(mapped)
        while position < stop:
            due = min(position + BATCH_BYTES, stop)
            count, code, position = scan(buffer, position, due, stop, self._check, columns)
            if count:
                yield self._selected(buffer, columns, count)
            if code in _ENDS:
                return
            if code in _REASONS:
                self._lose(CorruptRecordError(piece.path, piece.base + position, _REASONS[code]))
                position = self._next_record(mapped, position + 1)

    def _selected(self, buffer: Bytes, columns: Int64s, count: int) -> LogBatch:
        """The records of wanted queues that lie where they say they do: StoreReader gives no others."""
        piece, queues = self._piece, self._queues
        numbers = queues.numbers(buffer, columns, count)
        batch = LogBatch(piece.path, piece.base, buffer, columns, count, numbers, queues.topics)
        batch = batch.take(queues.wanted(numbers))
        right = batch.row(codes.PHY_OFFSET) == batch.row(codes.POS) + piece.base
        if not right.all():
            wrong = int(batch.row(codes.POS)[np.flatnonzero(~right)[0]])
            self._lose(CorruptRecordError(piece.path, piece.base + wrong, "it says that it lies elsewhere"))
        return batch.take(right)

    def _lose(self, error: StoreError) -> None:
        if self._fail:
            raise error
        _LOGGER.warning("failOnDataLoss=false, going on behind: %s", error)

    def _next_record(self, mapped: mmap.mmap, position: int) -> int:
        """Where the first record from ``position`` on begins that says it lies there; the end of the piece if none."""
        view, base = memoryview(mapped), self._piece.base
        while True:
            found = mapped.find(_MAGIC_START, position + _MAGIC_AT, self._stop)
            if found < 0:
                return self._stop
            position = found - _MAGIC_AT
            says = int.from_bytes(mapped[position + _PHY_OFFSET_AT : position + _PHY_OFFSET_AT + 8], "big")
            believable = mapped[found : found + 4] in _MAGICS and says == base + position
            if believable and isinstance(check_record(view, position, self._stop, CheckCRC.BODY), Layout):
                return position
            position += 1


def _map(piece: LogPiece) -> mmap.mmap:
    try:
        with open(piece.path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise StoreError(piece.path, "the file went away after the query was planned (retention?)") from None
    except (OSError, ValueError) as error:
        raise StoreError(piece.path, f"cannot be read: {error}") from error
    if len(mapped) < piece.stop - piece.base:
        raise StoreError(piece.path, f"is {len(mapped)} bytes long, {piece.stop - piece.base} were there before")
    return mapped
