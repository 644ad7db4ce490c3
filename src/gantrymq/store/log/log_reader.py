"""Reads one commit log file to its end as events: records, damage, and the blank or end after the last record.

Each part of the file is loaded before it is used, also in a mapping, so a bad sector is reported as an error and does
not end the process. After damage, reading continues at the next valid record.

Records with enabledAppendPropCRC end with a CRC of all their bytes. Whether a record has one is read from the record,
not from the setting, because the setting may have been different when the record was written.

Thread rule: one reader belongs to one thread. A batch is valid until two more were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gantrymq.errors import DiskError, StoreError
from gantrymq.format.record import SECTOR
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import Bytes, File, FileSystem
from gantrymq.fs.reads import ask_twice, read_by_pages
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import read_only
from gantrymq.store.log.record_batch import (
    LARGE_BATCH_RECORDS,
    RecordBatch,
    RecordScan,
    Scan,
    mark_by_closing_crc,
)
from gantrymq.store.log.record_chain import RecordChain, Window, next_record
from gantrymq.store.log.scan_ahead import ScanAhead, of_data

CHUNK_BYTES = 32 << 20
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file. ``base`` is the physical offset of its first byte, which is its name.

    ``left_out`` is the reason why its records are not used, ``doubt`` the reason why they may belong to another store.
    Both are "" if there is no such reason. A reading skips the first ``skip_bytes``, which end at a record.
    """

    path: Path
    base: int
    size_bytes: int
    left_out: str = ""
    doubt: str = ""
    skip_bytes: int = 0

    @property
    def begin(self) -> int:
        """The physical offset from which the file is read."""
        return self.base + self.skip_bytes

    @property
    def end(self) -> int:
        """The physical offset after the last byte."""
        return self.base + self.size_bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [start, end) without a record, as physical offsets. Records may follow.

    ``stop`` is what was found at the start. For whole pages that the disk cannot read it is UNREADABLE, with the disk's
    ``error``. Such pages read as zeros, so they are also part of other damage or of a record.
    """

    path: Path
    start: int
    end: int
    stop: StopReason
    error: str = ""


@dataclass(frozen=True, slots=True)
class Blank:
    """The blank at ``offset`` that ends a file. ``size_bytes`` is the size in the blank, which may be wrong."""

    file: LogFile
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of the records of a file without a blank, and what was found there.

    ``written_end`` is the position after the last byte that is not zero.
    """

    file: LogFile
    offset: int
    stop: StopReason
    written_end: int


LogEvent = RecordBatch | Damage | Blank | End


class LogFileReader:
    """Reads ``file``; iterate once. The last event is always a Blank or an End.

    Batches have 0 in the row ``CRC_OK`` of each record with a wrong CRC, of the body or of the whole record.

    ``scan`` reads the records and marks wrong CRCs. None: the reader makes a scan without a digest. ``ahead`` scans
    parts of the file in advance, and marks wrong CRCs as well.
    """

    def __init__(self, fs: FileSystem, file: LogFile, scan: Scan | None = None, ahead: ScanAhead | None = None) -> None:
        self._fs = fs
        self._ahead = ahead
        self._entry = file
        self._scan = scan or RecordScan(codes.CHECK_MARK, LARGE_BATCH_RECORDS)

    def __iter__(self) -> Iterator[LogEvent]:
        """Yield the events of the file. Raises FileNotFoundError, StorePermissionError."""
        entry = self._entry
        try:
            file = ask_twice(lambda: self._fs.open(entry.path))
        except DiskError as error:
            yield Damage(entry.path, entry.base, entry.end, StopReason.UNREADABLE, error.cause)
            yield End(entry, entry.base, StopReason.HALF, entry.end)
            return
        try:
            source = FileSource(file, entry)
            for event in self._events(file, source):
                yield from source.new_damage()
                yield event
        finally:
            file.close()

    def _events(self, file: File, source: FileSource) -> Iterator[LogEvent]:
        base, start, size = source.base, self._entry.skip_bytes, source.size
        if self._ahead is not None:
            self._ahead.begin(of_data(file, file.view), base, start, size)
        chain = RecordChain(source, self._scan, start, size, self._ahead)
        while True:
            for batch in chain:
                mark_by_closing_crc(batch)
                source.mark_unreadable(batch)
                yield batch
            stop, position, blank_bytes = chain.stop or StopReason.NO_BLANK, chain.position, chain.head[0]
            is_blank = stop is StopReason.BLANK
            if stop is StopReason.NO_BLANK or (is_blank and blank_bytes == size - position):
                following, written_end = None, position
            else:
                following, written_end = next_record(source, position + 1)
            if following is None:
                yield self._end(source, position, stop, written_end, blank_bytes)
                return
            # A blank with another size than the rest of its file counts as damage if records follow.
            stop = StopReason.SIZE if is_blank else stop
            yield Damage(self._entry.path, base + position, base + following, stop)
            chain.continue_at(following)

    def _end(
        self, source: FileSource, position: int, stop: StopReason, written_end: int, blank_bytes: int
    ) -> Blank | End:
        entry, offset = self._entry, source.base + position
        if stop is StopReason.BLANK:
            return Blank(entry, offset, blank_bytes)
        if stop is not StopReason.NO_BLANK and written_end == position + 1:  # the search began after the first byte
            window = source.read(position, position + 1, is_search=True)
            written_end = position + int(window.buffer[position - window.origin] != 0)
        return End(entry, offset, stop, source.base + written_end)


class FileSource:
    """The bytes of ``file``, the open file of ``entry``; a :class:`~gantrymq.store.log.record_chain.LogSource`.

    An unreadable page reads as zeros.
    """

    def __init__(self, file: File, entry: LogFile) -> None:
        self.base, self.size = entry.base, entry.size_bytes
        self.window_bytes = CHUNK_BYTES
        self._file = file
        self._entry = entry
        self._told: set[int] = set()  # by the begin of an unreadable page
        self._new: list[Damage] = []

    def data_from(self, position: int) -> int:
        """As :meth:`gantrymq.fs.api.File.data_from`."""
        return self._file.data_from(position)

    def read(self, position: int, end: int, *, is_search: bool = False) -> Window:
        """Return a part of a mapping if possible, else a copy."""
        origin = position - position % SECTOR
        length = end - origin
        try:
            read_ahead = not is_search and end - position > _PAGE_BYTES
            chunk: Bytes = self._file.view(origin, length, read_ahead=read_ahead)
        except (OSError, StoreError):
            chunk = read_only(read_by_pages(self._file, origin, length, self._note))
        if len(chunk) < length:  # it was truncated a moment ago
            chunk = read_only(chunk.tobytes().ljust(length, b"\0"))
        return Window(chunk, origin, end)

    def new_damage(self) -> list[Damage]:
        """The unreadable pages that were read since the last call. Adjacent ones are joined."""
        damage, self._new = self._new, []
        return damage

    def mark_unreadable(self, batch: RecordBatch) -> None:
        """Mark records in unreadable pages as wrong: with zeros in place of the page their CRC may match by chance."""
        columns = batch.columns[:, : batch.count]
        begins = columns[codes.POS] + batch.base
        for page in self._told:
            columns[codes.CRC_OK, (begins < page + _PAGE_BYTES) & (page < begins + columns[codes.SIZE])] = 0

    def _note(self, position: int, stop: int, error: str) -> None:
        start, end = self.base + position, self.base + stop
        page = start - start % _PAGE_BYTES
        if page in self._told:  # a scan reads it, and the search for the next record reads it again
            return
        self._told.add(page)
        start, end = page, min(page + _PAGE_BYTES, self._entry.end)
        if self._new and self._new[-1].end == start:
            start = self._new.pop().start
        self._new.append(Damage(self._entry.path, start, end, StopReason.UNREADABLE, error))
