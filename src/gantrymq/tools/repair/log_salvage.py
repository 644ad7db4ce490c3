"""Copies the whole records of a damaged log to a clean one, each at its old physical offset.

Every physical offset, message id and offset of a half message stays valid. Lost bytes in between become filler: records
of a rolled-back transaction, which enter no queue and no index, with a body of zeros as long as the gap. Lost bytes at
the end of a file become the blank. A file without any record becomes one blank. If a gap is too short for the filler
topic, the topic is cut.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import (
    BLANK_SIZE,
    PHY_OFFSET_AT,
    QUEUE_OFFSET_AT,
    Layout,
    body_crc,
    decode_record,
    encode_blank,
    encode_crc,
    encode_record,
    read_layout,
    record_size,
)
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import File, FileSystem
from gantrymq.kernels import codes
from gantrymq.model.flags import TRANSACTION_ROLLBACK
from gantrymq.model.message import LOOPBACK, PROPERTY_CRC32, StoredMessage
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.log.scan_ahead import one_ahead
from gantrymq.store.queue.queue_units import Renumbered
from gantrymq.store.recovery.recovery import Progress
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords
from gantrymq.tools.reports import LostRange, Quarantined

FILLER_TOPIC = "RMQ_SYS_SALVAGE_FILLER"
_LARGEST_FILLER = 1 << 20  # bytes; a broker reads a record as a whole
_SMALLEST_FILLER = record_size(1, TRANSACTION_ROLLBACK, 0, 1, 0)  # not more than the smallest record that can be lost
_WHOLE_FILLER = record_size(1, TRANSACTION_ROLLBACK, 0, len(FILLER_TOPIC), CRC_PROPERTY_SIZE)
STEP = "Salvaging"
_CRC_PROPERTY = PROPERTY_CRC32.encode() + b"\x01"


class LogCopy:
    """Writes files of ``file_size`` bytes to ``directory``. Records are written at rising physical offsets.

    ``position`` is the physical offset after the last record.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size: int, *, append_crc: bool) -> None:
        self._fs = fs
        self._directory = directory
        self._file_size = file_size
        self._crc_size = CRC_PROPERTY_SIZE if append_crc else 0
        self._file: File | None = None
        self._base = 0
        self.position = 0

    def can_take(self, start: int, end: int) -> bool:
        """Whether a record at [start, end) fits into its file.

        There must be room for the blank after it, and for filler before it.
        """
        base = start - start % self._file_size
        before = self.position if self._file is not None and base == self._base else base
        gap = start - before
        return (gap == 0 or gap >= _SMALLEST_FILLER) and end + BLANK_SIZE <= base + self._file_size

    def write(self, start: int, raw: memoryview, last_store_ms: int) -> None:
        """Write records at ``start``, which :meth:`can_take` must have accepted. Raises DiskFullError."""
        base = start - start % self._file_size
        if self._file is None:
            self._begin(base)
        while self._base < base:
            self._end_file()
            self._begin(self._base + self._file_size)
        assert self._file is not None
        self._fill(start, last_store_ms)
        self._file.write_at(start - self._base, raw)
        self.position = start + len(raw)

    def finish(self) -> None:
        """Make the last file durable. It reads as zeros after its last record."""
        if self._file is not None:
            self._close()
            self._fs.sync_directory(self._directory)

    def _begin(self, base: int) -> None:
        self._fs.make_directory(self._directory)
        self._file = self._fs.open(self._directory / offset_name(base), writable=True, create=True)
        self._file.resize(self._file_size)
        self._base = self.position = base

    def _end_file(self) -> None:
        assert self._file is not None
        self._file.write_at(*_blank(self.position - self._base, self._file_size))
        self._close()

    def _close(self) -> None:
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = None

    def _fill(self, end: int, store_ms: int) -> None:
        assert self._file is not None
        while self.position < end:
            gap = end - self.position
            # The rest after this piece must be empty, or long enough for another piece.
            size = gap if gap <= _LARGEST_FILLER else min(_LARGEST_FILLER, gap - _WHOLE_FILLER)
            self._file.write_at(
                self.position - self._base, encode_filler(self.position, size, store_ms, self._crc_size)
            )
            self.position += size


def encode_filler(phy_offset: int, size: int, store_ms: int, crc_size: int) -> bytes:
    """A record of ``size`` bytes (at least 90) that enters no queue and no index."""
    # Filler without room for a record CRC is shorter than any record with one, so the lost record had none.
    crc_size = crc_size if size >= _SMALLEST_FILLER + crc_size else 0
    room = size - crc_size - _SMALLEST_FILLER
    topic = FILLER_TOPIC[: 1 + room]
    body = bytes(room + 1 - len(topic))
    message = StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=0,
        phy_offset=phy_offset,
        size_bytes=size,
        flag=0,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp_ms=store_ms,
        born_host=LOOPBACK,
        store_timestamp_ms=store_ms,
        store_host=LOOPBACK,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
        body=body,
        properties={},
        version=1,
    )
    raw = encode_record(message, topic.encode(), b"", append_crc=crc_size > 0)
    if len(raw) != size:
        raise StoreError(FILLER_TOPIC, f"no filler of {size} bytes can be made")
    return raw


def end_file(fs: FileSystem, directory: Path, base: int, end: int, file_size: int) -> None:
    """Write the blank at the physical offset ``end`` of the file of a copy.

    The file is created if it is missing. Raises DiskFullError.
    """
    fs.make_directory(directory)
    file = fs.open(directory / offset_name(base), writable=True, create=True)
    try:
        file.resize(file_size)
        file.write_at(*_blank(end - base, file_size))
        file.sync()
    finally:
        file.close()


def _blank(position: int, file_size: int) -> tuple[int, bytes]:
    """The position and the bytes of the blank that ends a file."""
    return position, encode_blank(file_size - position)


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """An order to copy the records of ``files``, in ``source``, to files of ``file_size`` bytes in ``target``.

    Filler gets a record CRC if ``append_crc`` is set, or if the first record has one.
    """

    files: list[LogFile]
    source: Path
    target: Path
    file_size: int
    append_crc: bool


@dataclass(slots=True)
class CopiedRecords:
    """What was copied.

    ``corrected`` counts records whose physical offset was corrected. ``dropped`` are records that the new file had no
    room for. The copy begins at ``min_phy_offset`` and ends at ``max_phy_offset``; both are -1 if nothing was copied.
    """

    records: int = 0
    record_bytes: int = 0
    corrected: int = 0
    dropped: list[LostRange] = field(default_factory=list)
    min_phy_offset: int = -1
    max_phy_offset: int = -1


CopyLog = Callable[[FileSystem, CopyOrder, Progress | None], tuple[FoundRecords, CopiedRecords]]


def copy_here(fs: FileSystem, order: CopyOrder, progress: Progress | None) -> tuple[FoundRecords, CopiedRecords]:
    """Copy on this machine. The new files are durable when this returns. Raises DiskFullError."""
    records = IntactRecords(fs, order.files)
    copier: RecordCopier | None = None
    for batch in one_ahead(records):
        copier = copier or RecordCopier(fs, order, append_crc=order.append_crc or has_crc_property(batch))
        copier.add(batch)
        if progress is not None:
            progress(STEP, batch.end_offset - records.min_offset, records.total_bytes)
    if copier is None:
        return records.contents, CopiedRecords()
    copier.finish()
    return records.contents, copier.copied


def has_crc_property(batch: RecordBatch) -> bool:
    """Whether the first record ends with the CRC32 property, the CRC of the whole record."""
    end = int(batch.columns[codes.POS, 0] + batch.columns[codes.SIZE, 0])
    return batch.buffer[end - CRC_PROPERTY_SIZE : end].tobytes().startswith(_CRC_PROPERTY)


class RecordCopier:
    """Copies records batch by batch, in the order of the log. ``copied`` has the totals."""

    def __init__(self, fs: FileSystem, order: CopyOrder, *, append_crc: bool) -> None:
        self._source = order.source
        self._file_size = order.file_size
        self._copy = LogCopy(fs, order.target, order.file_size, append_crc=append_crc)
        self.copied = CopiedRecords()

    def finish(self) -> None:
        """Make the last file durable. It reads as zeros after its last record."""
        self._copy.finish()

    def add(self, batch: RecordBatch) -> None:
        """Copy the records of a batch, in runs of adjacent records. Raises DiskFullError."""
        if self.copied.min_phy_offset < 0:
            self.copied.min_phy_offset = batch.start_offset - batch.start_offset % self._file_size
        columns = batch.columns[:, : batch.count]
        starts = columns[codes.POS]
        ends = starts + columns[codes.SIZE]
        buffer = self._corrected(batch, starts)
        cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for rows in np.split(np.arange(batch.count), cuts):
            self._copy_run(batch, buffer, rows, starts, ends)

    def _copy_run(
        self,
        batch: RecordBatch,
        buffer: NDArray[np.uint8],
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        base = batch.base
        # Only in a file of an odd size can a record leave no room for the filler before it or the blank after it.
        while len(rows) and not self._copy.can_take(base + int(starts[rows[0]]), base + int(ends[rows[0]])):
            rows = self._drop(rows, base, starts, ends, first=True)
        while len(rows) and not self._copy.can_take(base + int(starts[rows[0]]), base + int(ends[rows[-1]])):
            rows = self._drop(rows, base, starts, ends, first=False)
        if not len(rows):
            return
        start, end = int(starts[rows[0]]), int(ends[rows[-1]])
        stored_ms = int(batch.columns[codes.STORE_TIMESTAMP, rows[0]])
        self._copy.write(base + start, buffer[start:end].data, stored_ms)
        self.copied.records += len(rows)
        self.copied.record_bytes += end - start
        self.copied.max_phy_offset = base + end

    def _drop(
        self, rows: NDArray[np.int64], base: int, starts: NDArray[np.int64], ends: NDArray[np.int64], *, first: bool
    ) -> NDArray[np.int64]:
        row = rows[0 if first else -1]
        reason = StopReason.NO_ROOM_BEFORE if first else StopReason.NO_ROOM_AFTER
        lost = LostRange(self._source, base + int(starts[row]), base + int(ends[row]), reason)
        self.copied.dropped.append(lost)
        return rows[1:] if first else rows[:-1]

    def _corrected(self, batch: RecordBatch, starts: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of the batch, with the true physical offset in every record."""
        wrong = np.flatnonzero(batch.columns[codes.PHY_OFFSET, : batch.count] != starts + batch.base)
        if not len(wrong):
            return batch.buffer
        buffer = batch.buffer.copy()
        for row in wrong.tolist():
            at, size = int(starts[row]), int(batch.columns[codes.SIZE, row])
            write_number(buffer[at : at + size], PHY_OFFSET_AT, batch.base + at)
        self.copied.corrected += len(wrong)
        return buffer


def renumber(fs: FileSystem, directory: Path, file_size: int, records: Sequence[Renumbered]) -> None:
    """Write the true queue offsets into records of a copy, which come in the order of the log. Durable on return."""
    for base, some in groupby(records, lambda record: record.phy_offset - record.phy_offset % file_size):
        file = fs.open(directory / offset_name(base), writable=True)
        try:
            for change in some:
                record = np.frombuffer(bytearray(file.read_at(change.phy_offset - base, change.size_bytes)), np.uint8)
                write_number(record, QUEUE_OFFSET_AT, change.queue_offset)
                file.write_at(change.phy_offset - base, record.data)
            file.sync()
        finally:
            file.close()


def overwrite(fs: FileSystem, directory: Path, file_size: int, records: Iterable[Quarantined]) -> None:
    """Write filler over records of a copy. Durable on return."""
    ordered = sorted(records, key=lambda record: record.phy_offset)
    for base, some in groupby(ordered, lambda record: record.phy_offset - record.phy_offset % file_size):
        file = fs.open(directory / offset_name(base), writable=True)
        try:
            for quarantined in some:
                at = quarantined.phy_offset - base
                record = np.frombuffer(bytearray(file.read_at(at, quarantined.size_bytes)), np.uint8)
                if (filler := _filled(quarantined.phy_offset, record)) is not None:
                    file.write_at(at, filler.data)
            file.sync()
        finally:
            file.close()


def _filled(phy_offset: int, record: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    layout = read_layout(record.data, 0, len(record))
    if not isinstance(layout, Layout):
        return None
    stored_ms = decode_record(record.data, 0, layout).store_timestamp_ms
    crc_size = CRC_PROPERTY_SIZE if record[-CRC_PROPERTY_SIZE:].tobytes().startswith(_CRC_PROPERTY) else 0
    return np.frombuffer(encode_filler(phy_offset, len(record), stored_ms, crc_size), np.uint8)


def write_number(record: NDArray[np.uint8], at: int, number: int) -> None:
    """Write a number into a record, and the new record CRC if the record has one."""
    record[at : at + 8] = np.frombuffer(number.to_bytes(8, "big"), np.uint8)
    body, closing = record[:-CRC_PROPERTY_SIZE], record[-CRC_PROPERTY_SIZE:]
    if closing.tobytes().startswith(_CRC_PROPERTY):
        closing[:] = np.frombuffer(encode_crc(body.tobytes()), np.uint8)
