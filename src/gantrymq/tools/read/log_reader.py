"""Reading one commit log file to its end, whatever is in it: records, and what stands between them.

The file is read in chunks. The disk has given back each chunk before it is looked at, mapped or not, so a bad sector is
an error to report and not the end of the process. Behind damage, reading goes on at the next whole record with a right
CRC that says that it lies there.

Records with enabledAppendPropCRC carry a CRC of all their bytes at their end. Each record decides, not the setting,
because the setting may have been another when the record was written.

Thread rule: one reader belongs to one thread. A batch lives while two more are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import DiskError, StoreError
from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    PHY_OFFSET_AT,
    SECTOR,
    encode_crc,
)
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes, File, FileSystem
from gantrymq.fs.holes import data_end
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record, scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.message import PROPERTY_CRC32
from gantrymq.store.log.log_scanner import ScanAhead, of_data
from gantrymq.store.log.record_batch import LARGE_BATCH_RECORDS, RecordBatch, RecordScan, Scan, stop_reason
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.recovery.missing_log import one_of_each
from gantrymq.tools.read.bad_disk import ask_twice, read_by_pages


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file: ``base`` is the physical offset of its first byte, as its name says.

    ``left_out`` is why none of its records counts, ``doubt`` why they may be of another store; empty else.
    """

    path: Path
    base: int
    size_bytes: int
    left_out: str = ""
    doubt: str = ""

    @property
    def end(self) -> int:
        """The physical offset behind its last byte."""
        return self.base + self.size_bytes


def log_files(fs: FileSystem, paths: StorePaths) -> tuple[list[LogFile], list[Path]]:
    """The files of the log in order, and what else lies in its directories.

    Of two files with one offset, in two directories, the one that does not say that it lies there is among the others.
    """
    kept, _ = one_of_each(fs, offset_files(fs, paths.commit_logs))
    taken = {file.path for file in kept}
    present = (directory / entry.name for directory in paths.commit_logs for entry in fs.scan(directory))
    return [LogFile(*file) for file in kept], [path for path in present if path not in taken]


_BEGIN = np.frombuffer(PROPERTY_CRC32.encode() + b"\x01", np.uint8)


def closes_with_crc(batch: RecordBatch) -> NDArray[np.bool_]:
    """Which records end in the bytes of such a CRC, be it their own or somebody's body."""
    columns = batch.columns[:, : batch.count]
    starts = columns[codes.POS] + columns[codes.SIZE] - CRC_PROPERTY_SIZE
    closes: NDArray[np.bool_] = batch.buffer[starts] == _BEGIN[0]  # mostly none does, and this is quick
    likely = np.flatnonzero(closes)
    if len(likely):
        closes[likely] = (batch.buffer[starts[likely, None] + np.arange(len(_BEGIN))] == _BEGIN).all(axis=1)
    return closes


def mark_by_closing_crc(batch: RecordBatch) -> None:
    """Mark in CRC_OK what is not what its closing CRC says; the records follow each other.

    One that says that it lies elsewhere is right where its CRC is that of either place: a bit of the place has flipped,
    or all of it was written for another one.
    """
    closes = closes_with_crc(batch)
    if not closes.any():
        return
    whole, begin, end = new_columns(batch.count), int(batch.columns[codes.POS, 0]), batch.end_offset - batch.base
    scan(batch.buffer, begin, end, end, codes.CHECK_MARK_WHOLE_RECORD, whole)
    whole = whole[:, : batch.count]
    wrong = closes & (whole[codes.PROPERTIES_LENGTH] >= CRC_PROPERTY_SIZE) & (whole[codes.CRC_OK] == 0)
    for row in np.flatnonzero(wrong).tolist():
        wrong[row] = not _is_right_here(batch, row)
    batch.columns[codes.CRC_OK, : batch.count][wrong] = 0


def _is_right_here(batch: RecordBatch, row: int) -> bool:
    """Whether the record is what its CRC says, but for where it says that it lies."""
    at, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
    raw = bytearray(batch.buffer[at : at + size])
    raw[PHY_OFFSET_AT : PHY_OFFSET_AT + 8] = (batch.base + at).to_bytes(8, "big")
    return encode_crc(bytes(raw[:-CRC_PROPERTY_SIZE])) == raw[-CRC_PROPERTY_SIZE:]


CHUNK_BYTES = 32 << 20
_HEAD_BYTES = PHY_OFFSET_AT + 8
_LENGTH_BYTES = 4
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes between two records that are none: [start, end), physical offsets; ``stop`` is what stands at the start."""

    path: Path
    start: int
    end: int
    stop: StopReason


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes that the disk does not give back: [start, end), physical offsets. They count as zeros."""

    path: Path
    start: int
    end: int
    error: str


@dataclass(frozen=True, slots=True)
class FileEnd:
    """Where the records of a file end, and what stands there.

    ``written_end`` is behind the last byte that is not zero (with a blank: behind the blank); ``blank_size`` is what
    the blank says.
    """

    file: LogFile
    offset: int
    stop: StopReason
    written_end: int
    blank_size: int = 0


LogEvent = RecordBatch | Broken | Unreadable | FileEnd


class LogFileReader:
    """Reads ``file``; iterate once. A FileEnd comes last, and always.

    Batches have wrong CRCs marked in ``CRC_OK``: that of the body, and that of the whole record where it has one.

    ``scan`` reads the records, one that marks; None: into memory of the reader's own, and nothing else. ``ahead`` scans
    parts of the file before their turn comes, and marks too.
    """

    def __init__(self, fs: FileSystem, file: LogFile, scan: Scan | None = None, ahead: ScanAhead | None = None) -> None:
        self._fs = fs
        self._ahead = ahead
        self._entry = file
        self._scan = scan or RecordScan(codes.CHECK_MARK, LARGE_BATCH_RECORDS)
        self._unreadable: list[Unreadable] = []
        self._told: set[int] = set()  # where the unreadable pages begin that were noted

    def __iter__(self) -> Iterator[LogEvent]:
        """Everything in the file. Raises FileNotFoundError, StorePermissionError."""
        try:
            file = ask_twice(lambda: self._fs.open(self._entry.path))
        except DiskError as error:
            entry = self._entry
            yield Unreadable(entry.path, entry.base, entry.end, error.cause)
            yield FileEnd(entry, entry.base, StopReason.HALF, entry.end)
            return
        try:
            for event in self._events(file):
                if self._unreadable:
                    yield from self._unreadable
                    self._unreadable = []
                yield event
        finally:
            file.close()

    def _events(self, file: File) -> Iterator[LogEvent]:
        base, size, position, wanted = self._entry.base, self._entry.size_bytes, 0, 0
        if self._ahead is not None:
            self._ahead.begin(of_data(file, file.view), base, 0, size)
        while size - position >= BLANK_SIZE:
            if self._ahead is not None and (ready := self._ahead.take(position)) is not None:
                mark_by_closing_crc(ready)
                yield ready
                position = ready.end_offset - base
                continue
            lead = position % SECTOR  # a batch begins with a sector, as what a power cut tears does
            length = min(wanted or _first_look_bytes(file, position), size - position)
            chunk = self._read(file, position - lead, length + lead, read_ahead=length > _PAGE_BYTES)
            end = len(chunk)
            if self._ahead is not None:
                end = self._ahead.bound(position, position - lead + end) - (position - lead)
            batch, code, reached = self._scan(chunk, base + position - lead, lead, end, len(chunk))
            if batch.count:
                mark_by_closing_crc(batch)
                self._mark_unreadable(batch)
                yield batch
                # What is left of the chunk is looked at again.
                position, wanted = position - lead + reached, 0
                continue
            chunk = chunk[lead:]
            wanted = _bytes_needed(chunk, size - position)
            if wanted > len(chunk):
                continue
            blank_size = int.from_bytes(chunk[:4].tobytes(), "big", signed=True) if code == codes.STOP_BLANK else 0
            is_end = blank_size > 0 and blank_size == size - position
            following, written = (None, position) if is_end else self._next_record(file, position)
            if following is None:
                written = position + BLANK_SIZE if code == codes.STOP_BLANK else written
                yield self._end(position, stop_reason(code), written, blank_size)
                return
            # A blank that says another size than the rest of its file is damage as any other where records follow.
            stop = StopReason.SIZE if code == codes.STOP_BLANK else stop_reason(code)
            yield Broken(self._entry.path, base + position, base + following, stop)
            position, wanted = following, 0
        yield self._end(position, StopReason.NO_BLANK, position)

    def _end(self, position: int, stop: StopReason, written: int, blank_size: int = 0) -> FileEnd:
        base = self._entry.base
        return FileEnd(self._entry, base + position, stop, base + max(written, position), blank_size)

    def _next_record(self, file: File, position: int) -> tuple[int | None, int]:
        """Where the next whole record behind ``position`` begins, and the end of what is not zero up to there."""
        size, written = self._entry.size_bytes, position
        searched = position + 1
        # The first bytes of a record may be zeros, those of its length, and so the end of a hole.
        while (searched := max(file.data_from(searched) - _LENGTH_BYTES, searched)) < size:
            # Up to a page's end, and no further: pages that were read are no hole, not even those of zeros.
            stop = min(searched - searched % _PAGE_BYTES + CHUNK_BYTES, size)
            end = data_end(file, searched, stop)
            chunk = self._read(file, searched, end - searched, read_ahead=False)
            if end < stop:  # the zeros that a head reaches into
                chunk = read_only(chunk.tobytes() + bytes(_HEAD_BYTES))
            if not chunk.any():
                searched += len(chunk)
                continue
            stop = len(chunk)
            found = find_record(chunk, 0, stop, self._entry.base + searched)
            written = max(written, searched + int(np.flatnonzero(chunk[:found])[-1]) + 1 if chunk[:found].any() else 0)
            if found < stop:
                if self._is_record(file, searched + found):
                    return searched + found, written
                searched += found + 1
            else:
                last = searched + len(chunk) >= size
                searched += len(chunk) - (0 if last else _HEAD_BYTES - 1)
        return None, max(written, position + 1 if self._read(file, position, 1).any() else 0)

    def _is_record(self, file: File, position: int) -> bool:
        head = self._read(file, position, BLANK_SIZE)
        length = _bytes_needed(head, self._entry.size_bytes - position)
        if length <= len(head):
            return False
        raw = self._read(file, position, length)
        return bool(scan(raw, 0, len(raw), len(raw), codes.CHECK_BODY, new_columns(1))[0])

    def _read(self, file: File, position: int, length: int, *, read_ahead: bool = True) -> Bytes:
        try:
            chunk = file.view(position, length, read_ahead=read_ahead)
        except (OSError, StoreError):
            chunk = read_only(read_by_pages(file, position, length, self._note_unreadable))
        if len(chunk) < length:  # it was cut short a moment ago
            chunk = read_only(chunk.tobytes().ljust(length, b"\0"))
        return chunk

    def _mark_unreadable(self, batch: RecordBatch) -> None:
        """Let no record count as right that lies in an unreadable page, whatever zeros in its place would say."""
        columns = batch.columns[:, : batch.count]
        begins = columns[codes.POS] + batch.base
        for page in self._told:
            columns[codes.CRC_OK, (begins < page + _PAGE_BYTES) & (page < begins + columns[codes.SIZE])] = 0

    def _note_unreadable(self, position: int, stop: int, error: str) -> None:
        start, end = self._entry.base + position, self._entry.base + stop
        page = start - start % _PAGE_BYTES
        if page in self._told:  # it is read more than once: by a scan, and by the search for the next record
            return
        self._told.add(page)
        start, end = page, min(page + _PAGE_BYTES, self._entry.end)
        if self._unreadable and self._unreadable[-1].end == start:
            start = self._unreadable.pop().start
        self._unreadable.append(Unreadable(self._entry.path, start, end, error))


def _first_look_bytes(file: File, position: int) -> int:
    """How much to read where nobody knows what comes: no hole, in which most logs end, but the page in front of it."""
    page_end = position - position % _PAGE_BYTES + _PAGE_BYTES
    return CHUNK_BYTES if file.data_from(page_end) == page_end else max(page_end - position, BLANK_SIZE)


def _bytes_needed(chunk: Bytes, rest: int) -> int:
    """How many bytes what stands at the start of ``chunk`` needs to be judged; ``rest`` are left in the file."""
    if len(chunk) < BLANK_SIZE:
        return BLANK_SIZE
    size, magic = (int.from_bytes(chunk[at : at + 4].tobytes(), "big") for at in (0, 4))
    is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= MIN_RECORD_SIZE
    return size if (is_record or magic == MAGIC_BLANK) and size <= rest else len(chunk)
