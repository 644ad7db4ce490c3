"""Reads every valid record of a log, in order, and lists the gaps between them.

The physical offset in a record may differ from its position: a bit was flipped, or a file or a part of it was copied.
If the same bytes are at the offset that the record names, the record is a copy, and the records that the log had at
this position were overwritten. A copy must not be used as messages: they would be in their queues twice, or replace
others.

Thread rule: iterate in one thread; read the attributes after the iteration.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.record import CheckCRC
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.kernels import codes
from gantrymq.kernels.api import scan
from gantrymq.kernels.arrays import new_columns
from gantrymq.store.log.log_reader import Damage, End, LogFile, LogFileReader
from gantrymq.store.log.record_batch import RecordBatch, RecordScan, Scan, check_code, first_torn
from gantrymq.store.log.scan_ahead import ScanAhead
from gantrymq.tools.read.record_lookup import claim_of
from gantrymq.tools.reports import LostRange


class MisplacedRun(NamedTuple):
    """Misplaced records ``first`` to ``last`` of a batch, at [start, end) of the log.

    The first one names ``stated_offset`` as its physical offset.
    """

    first: int
    last: int
    start: int
    end: int
    stated_offset: int
    reason: str
    is_kept: bool


class MisplacedRecords:
    """Finds misplaced records, batch by batch. ``files`` are all files of the log in order."""

    def __init__(self, fs: FileSystem, files: Sequence[LogFile], *, moves_records: bool) -> None:
        self._fs = fs
        self._files = files
        self._bases = [file.base for file in files]
        self._moves_records = moves_records

    def runs(self, batch: RecordBatch) -> Iterator[MisplacedRun]:
        """The runs of misplaced records of a batch. All records of a run are misplaced by the same distance."""
        if not batch.count or (batch.digest is not None and batch.digest.placed == batch.count):
            return
        starts = batch.columns[codes.POS, : batch.count] + batch.base
        distances = batch.claimed_positions() - starts
        if not distances.any():
            return
        ends = starts + batch.columns[codes.SIZE, : batch.count]
        cuts = np.flatnonzero((np.diff(distances) != 0) | (starts[1:] != ends[:-1])) + 1
        for first, stop in pairwise([0, *cuts.tolist(), batch.count]):
            if distance := int(distances[first]):
                yield from self._judge(batch, first, stop, int(starts[first]), int(ends[stop - 1]), distance)

    def _judge(
        self, batch: RecordBatch, first: int, stop: int, start: int, end: int, distance: int
    ) -> Iterator[MisplacedRun]:
        raw = batch.buffer[start - batch.base : end - batch.base]
        if np.array_equal(self._bytes_at(start + distance, end - start), raw):
            stated_offset = start + distance
            yield MisplacedRun(
                first, stop - 1, start, end, stated_offset, f"a copy of the records at {stated_offset}", False
            )
        elif stop - first > 1 and self._is_partly_copied(batch, first, stop, distance):
            for row in range(first, stop):  # some records of a run may be missing at their own offsets
                at = int(batch.columns[codes.POS, row])
                size = int(batch.columns[codes.SIZE, row])
                yield from self._judge(batch, row, row + 1, batch.base + at, batch.base + at + size, distance)
        else:
            count = stop - first
            is_foreign = count > 1 and start + distance < (self._bases[0] if self._bases else 0)
            is_kept = count == 1 or (self._moves_records and not is_foreign)
            text = f"the physical offset in the record is {start + distance}"
            if count > 1:
                side = "too large" if distance > 0 else "too small"
                text = f"the physical offsets in {count} records are {abs(distance)} bytes {side}"
            yield MisplacedRun(first, stop - 1, start, end, start + distance, text, is_kept)

    def _is_partly_copied(self, batch: RecordBatch, first: int, stop: int, distance: int) -> bool:
        """Whether any record of a run also exists at the offset that it names."""
        for row in range(first, stop):
            at, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
            if np.array_equal(self._bytes_at(batch.base + at + distance, size), batch.buffer[at : at + size]):
                return True
        return False

    def _bytes_at(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Bytes of the log; none if no file has them all, or the disk cannot read them."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0 or offset + length > self._files[number].end:
            return np.empty(0, np.uint8)
        entry = self._files[number]
        try:
            return np.frombuffer(read_part(self._fs, entry.path, offset - entry.base, length), np.uint8)
        except (OSError, StoreError):
            return np.empty(0, np.uint8)


@dataclass(slots=True)
class FoundRecords:
    """The contents of a part of the log: the number of valid records, and the gaps between them.

    ``min_offset`` is the beginning of the part, ``end_offset`` the end of its last valid record. ``misplaced`` are
    valid records that name another offset: no reader finds them where they are. ``accepted`` are records that count as
    valid although a part of them is damaged.
    """

    min_offset: int
    end_offset: int
    records: int = 0
    record_bytes: int = 0
    gaps: list[LostRange] = field(default_factory=list)
    misplaced: list[LostRange] = field(default_factory=list)
    accepted: list[LostRange] = field(default_factory=list)

    def lost(self) -> list[LostRange]:
        """The gaps before ``end_offset``. Those after it are the tail of the log."""
        return [gap for gap in self.gaps if gap.start < self.end_offset]

    def tail(self) -> list[LostRange]:
        """The ranges after ``end_offset``, including zeros."""
        return [gap for gap in self.gaps if gap.start >= self.end_offset]


def joined(files: Sequence[LogFile], parts: Sequence[FoundRecords]) -> FoundRecords:
    """The contents of all ``files``, joined from those of each file."""
    whole = FoundRecords(files[0].base if files else 0, files[0].base if files else 0)
    end = whole.min_offset
    for file, part in zip(files, parts, strict=True):
        whole.gaps += [*missing_before(file, end), *part.gaps]
        whole.misplaced += part.misplaced
        whole.accepted += part.accepted
        whole.end_offset = part.end_offset if part.records else whole.end_offset
        whole.records += part.records
        whole.record_bytes += part.record_bytes
        end = file.end
    return whole


def missing_before(file: LogFile, end: int) -> Iterable[LostRange]:
    """The range of missing files between ``end``, where the file before ends, and ``file``; named by the first."""
    if end < file.base:
        yield LostRange(file.path.with_name(offset_name(end)), end, file.base, StopReason.MISSING_FILES)


class IntactRecords:
    """The valid records of ``files`` (sorted), in batches: their sizes add up and their CRC is right. Iterate once.

    A misplaced record that is a copy counts as a gap. One that is not a copy is returned, and is listed in
    ``found.misplaced``. Without ``moves_records``, for callers that cannot correct the log, only a single misplaced
    record is returned, because then a bit of its offset was flipped; a run counts as a gap.

    A batch is valid until the one after the next. ``contents`` is complete after the iteration. ``scan`` and ``ahead``
    are those of ``LogFileReader``. ``log`` are all files of the log, if ``files`` are only a part of it. The damaged
    records at the physical offsets in ``accepted`` are returned too. ``check`` is the CRC with which a start compares a
    record.
    """

    def __init__(
        self,
        fs: FileSystem,
        files: list[LogFile],
        scan: Scan | None = None,
        ahead: ScanAhead | None = None,
        *,
        log: Sequence[LogFile] | None = None,
        moves_records: bool = True,
        accepted: Collection[int] = (),
        check: CheckCRC = CheckCRC.BODY,
    ) -> None:
        self._fs = fs
        self._accepted, self._check = np.array(sorted(accepted), np.int64), check_code(check)
        self._misplaced = MisplacedRecords(fs, files if log is None else log, moves_records=moves_records)
        self._scan, self._ahead = scan, ahead
        self._files = files
        self.min_offset = files[0].begin if files else 0
        self._unreadable: list[tuple[int, int]] = []  # unreadable ranges of the current file that are in no gap yet
        self.total_bytes = sum(file.size_bytes for file in files)
        self.contents = FoundRecords(self.min_offset, self.min_offset)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Yield the batches. No batch is empty."""
        end = self.min_offset
        for file in self._files:
            self.contents.gaps += missing_before(file, end)
            try:
                yield from self._whole(file)
            except FileNotFoundError:  # before the first record, retention has deleted it: nothing is lost
                if self.contents.records:
                    self._lose(file.path, file.base, file.end, StopReason.MISSING_FILES)
            end = file.end

    def _whole(self, file: LogFile) -> Iterator[RecordBatch]:
        if file.left_out:
            self.contents.gaps.append(LostRange(file.path, file.base, file.end, file.left_out, has_records=True))
            return
        for event in LogFileReader(self._fs, file, self._scan, self._ahead):
            if isinstance(event, RecordBatch):
                batch = self._right(file, event)
                if event.digest is not None:  # the columns of a digest have the true positions
                    batch.trust_positions()
                if batch.count:
                    self.contents.end_offset = batch.end_offset
                    self.contents.records += batch.count
                    self.contents.record_bytes += int(batch.columns[codes.SIZE, : batch.count].sum())
                    yield batch
            elif isinstance(event, Damage) and event.stop is StopReason.UNREADABLE:
                self._unreadable.append((event.start, event.end))
            elif isinstance(event, Damage):
                self._lose(file.path, event.start, event.end, event.stop)
            elif isinstance(event, End):
                self._lose(file.path, event.offset, file.end, event.stop)
        for start, end in self._unreadable:
            self.contents.gaps.append(LostRange(file.path, start, end, StopReason.UNREADABLE))
        self._unreadable = []

    def _right(self, file: LogFile, batch: RecordBatch) -> RecordBatch:
        right = batch.columns[codes.CRC_OK, : batch.count] == 1
        if batch.digest is None:  # a digest has marked torn records already
            for row in torn_rows(batch):
                right[row] = False
        if not right.all():
            batch = self._with_accepted(file, batch, right)
        for row in np.flatnonzero(~right).tolist():
            start = batch.base + int(batch.columns[codes.POS, row])
            end = start + int(batch.columns[codes.SIZE, row])
            self._lose(file.path, start, end, StopReason.CRC, has_right_body=self._passes_start(batch, row))
        batch = batch if right.all() else batch.take(right)
        return self._placed(file, batch)

    def _with_accepted(self, file: LogFile, batch: RecordBatch, right: NDArray[np.bool_]) -> RecordBatch:
        """Mark the accepted records of the batch in ``right``. A digest leaves them out, so the batch loses it."""
        starts = batch.columns[codes.POS, : batch.count] + batch.base
        accepted = ~right & np.isin(starts, self._accepted)
        if not accepted.any():
            return batch
        if batch.digest is not None:
            begin, end = int(batch.columns[codes.POS, 0]), batch.end_offset - batch.base
            batch = RecordScan(codes.CHECK_MARK, batch.count, 1)(batch.buffer, batch.base, begin, end, end).batch
        for row in np.flatnonzero(accepted).tolist():
            claim = claim_of(batch, row, int(starts[row]))
            text = (
                f"a part of the topic or the properties of {claim.topic}/{claim.queue_id} offset {claim.queue_offset} "
            )
            text += "is damaged, and a start takes the message as it is"
            end = claim.phy_offset + claim.size_bytes
            self.contents.accepted.append(LostRange(file.path, claim.phy_offset, end, text, has_records=True))
        right |= accepted
        return batch

    def _passes_start(self, batch: RecordBatch, row: int) -> bool:
        """Whether a start of a closed store takes a damaged record."""
        begin, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
        count, _, _ = scan(batch.buffer, begin, begin + size, begin + size, self._check, new_columns(1))
        return bool(count)

    def _placed(self, file: LogFile, batch: RecordBatch) -> RecordBatch:
        """The batch without copies and other records that are not kept."""
        keep = np.ones(batch.count, np.bool_)
        for run in self._misplaced.runs(batch):
            if run.is_kept:
                self.contents.misplaced.append(
                    LostRange(file.path, run.start, run.end, run.reason, stated_offset=run.stated_offset)
                )
            else:
                self.contents.gaps.append(LostRange(file.path, run.start, run.end, run.reason, has_records=True))
                keep[run.first : run.last + 1] = False
        return batch if keep.all() else batch.take(keep)

    def _lose(self, path: Path, start: int, end: int, reason: StopReason, *, has_right_body: bool = False) -> None:
        if start >= end:
            return
        causes = [unreadable for unreadable in self._unreadable if unreadable[0] < end and start < unreadable[1]]
        if causes:  # the record only looks broken, because the disk cannot read it
            reason, has_right_body = StopReason.UNREADABLE, False
            others = [unreadable for unreadable in self._unreadable if unreadable not in causes]
            self._unreadable = [*others, *((end, stop) for _, stop in causes if end < stop)]
        self.contents.gaps.append(LostRange(path, start, end, reason, has_right_body=has_right_body))


def torn_rows(batch: RecordBatch) -> Iterable[int]:
    """The rows of the batch that a power cut has torn in bytes that no CRC covers."""
    begin, rest = 0, batch
    while rest.count and (row := first_torn(rest)) < rest.count:
        yield begin + row
        begin += row + 1
        rest = rest.take(np.arange(rest.count) > row)
