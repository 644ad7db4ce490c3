"""Reads records at given physical offsets, many at a time, to check units and index entries once more.

The claim of a record (its topic, queue, queue offset, time) is read without its CRC, so that a record with a damaged
body still shows which message it was.

Thread rule: belongs to one thread; one file is open at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.record import MIN_RECORD_SIZE, Layout, read_layout
from gantrymq.fs.api import File, FileSystem
from gantrymq.fs.reads import ask_twice
from gantrymq.kernels import codes
from gantrymq.kernels.api import read_each
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.log.record_batch import RecordBatch

_MAX_AT_ONCE = 4096
_MAX_BYTES = 32 << 20


class RecordLookup:
    """``file_at(phy_offset)`` returns the log file that holds a physical offset, or None."""

    def __init__(self, fs: FileSystem, file_at: Callable[[int], LogFile | None]) -> None:
        self._fs = fs
        self._file_at = file_at
        self._open: tuple[LogFile, File] | None = None

    @classmethod
    def of(cls, fs: FileSystem, files: Sequence[LogFile]) -> RecordLookup:
        """A lookup in these files of a log, in order."""
        bases = [file.base for file in files]

        def file_at(phy_offset: int) -> LogFile | None:
            number = bisect_right(bases, phy_offset) - 1
            return files[number] if number >= 0 and phy_offset < files[number].end else None

        return cls(fs, file_at)

    def read(self, phy_offsets: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], RecordBatch]]:
        """Yield (indexes into ``phy_offsets``, their records) piece by piece; SIZE is 0 where no whole record begins.

        PHY_OFFSET of a record is the value in the record.
        """
        raws: list[bytes] = []
        held, begin, total = 0, 0, len(phy_offsets)
        for number, phy_offset in enumerate(phy_offsets.tolist(), 1):
            raws.append(self._raw(phy_offset))
            held += len(raws[-1])
            if len(raws) == _MAX_AT_ONCE or held >= _MAX_BYTES or number == total:
                yield np.arange(begin, number), self._batch(raws)
                raws, held, begin = [], 0, number

    def record(self, phy_offset: int) -> tuple[bytes, Layout] | None:
        """The bytes and the layout of the record at ``phy_offset``; None without a whole record. Checks no CRC."""
        raw = self._raw(phy_offset)
        layout = read_layout(memoryview(raw), 0, len(raw))
        return (raw, layout) if isinstance(layout, Layout) else None

    def topic_and_end(self, phy_offset: int) -> tuple[str, int] | None:
        """The topic in the record at ``phy_offset`` and the physical offset of its end; None without a whole record."""
        record = self.record(phy_offset)
        if record is None:
            return None
        raw, layout = record
        topic = raw[layout.topic_at : layout.topic_at + layout.topic_length]
        return decode_utf8(topic), phy_offset + layout.size

    @staticmethod
    def _batch(raws: list[bytes]) -> RecordBatch:
        count, lengths = len(raws), np.array([len(raw) for raw in raws], np.int64)
        buffer, columns = read_only(b"".join(raws)), new_columns(count)
        positions = np.where(lengths > 0, np.cumsum(lengths) - lengths, -1)
        read_each(buffer, positions, count, len(buffer), columns)
        return RecordBatch(0, buffer, columns, count)

    def _raw(self, phy_offset: int) -> bytes:
        """The bytes of the record at ``phy_offset``, as many as its size field says; empty if that is impossible."""
        file = self._file(phy_offset)
        if file is None:
            return b""
        entry, opened = file
        try:
            head = ask_twice(lambda: opened.read_at(phy_offset - entry.base, 4))
            size = int.from_bytes(head, "big", signed=True)
            if not MIN_RECORD_SIZE <= size <= entry.end - phy_offset:
                return b""
            return ask_twice(lambda: opened.read_at(phy_offset - entry.base, size))
        except (OSError, StoreError):
            return b""

    def _file(self, phy_offset: int) -> tuple[LogFile, File] | None:
        entry = self._file_at(phy_offset)
        if entry is None:
            return None
        if self._open is None or self._open[0] != entry:
            self.close()
            try:
                self._open = (entry, ask_twice(lambda: self._fs.open(entry.path)))
            except (FileNotFoundError, StoreError):
                return None
        return self._open

    def close(self) -> None:
        """Close the open file."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


class RecordClaim(NamedTuple):
    """The message that the record at ``phy_offset`` says it is."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    store_timestamp_ms: int


def claims_at(lookup: RecordLookup, phy_offsets: Iterable[int]) -> dict[int, RecordClaim]:
    """The claims of the records at ``phy_offsets``, by physical offset, without those where no record begins."""
    ordered = sorted(set(phy_offsets))
    claims: dict[int, RecordClaim] = {}
    for numbers, batch in lookup.read(np.array(ordered, np.int64)):
        for row, number in enumerate(numbers.tolist()):
            if batch.columns[codes.SIZE, row]:
                claims[ordered[number]] = claim_of(batch, row, ordered[number])
    return claims


def claim_of(batch: RecordBatch, row: int, phy_offset: int) -> RecordClaim:
    """The claim of the record in a row, which lies at ``phy_offset``."""
    column = batch.columns[:, row].tolist()
    topic_at, length = column[codes.TOPIC_AT], column[codes.TOPIC_LENGTH]
    return RecordClaim(
        decode_utf8(batch.buffer[topic_at : topic_at + length].tobytes()),
        column[codes.QUEUE_ID],
        column[codes.QUEUE_OFFSET],
        phy_offset,
        column[codes.SIZE],
        column[codes.STORE_TIMESTAMP],
    )
