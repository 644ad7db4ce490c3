"""Records that lie elsewhere in the log than they say: a flipped bit, or a file or a part of one that was copied.

Where the same bytes lie at the place that they say, they are a copy, and what the log had here is overwritten. A copy
must not be taken for messages: they would stand twice in their queues, or push out others.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.tools.bad_pages import read_part
from gantrymq.tools.log_files import LogFile


class MisplacedRun(NamedTuple):
    """Records ``first`` to ``last`` of a batch, at [start, end) of the log, which say that they begin at ``said``."""

    first: int
    last: int
    start: int
    end: int
    said: int
    reason: str
    is_kept: bool


class MisplacedRecords:
    """Finds them, batch by batch; ``files`` are all files of the log in order."""

    def __init__(self, fs: FileSystem, files: Sequence[LogFile], *, moves_records: bool) -> None:
        self._fs = fs
        self._files = files
        self._bases = [file.base for file in files]
        self._moves_records = moves_records

    def runs(self, batch: RecordBatch) -> Iterator[MisplacedRun]:
        """The runs of records of a batch that say that they lie elsewhere, all of a run equally far away."""
        if not batch.count or (batch.digest is not None and batch.digest.placed == batch.count):
            return
        starts = batch.columns[codes.POS, : batch.count] + batch.base
        distances = batch.said_places() - starts
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
            said = start + distance
            yield MisplacedRun(first, stop - 1, start, end, said, f"a copy of the records at {said}", False)
        elif stop - first > 1 and self._is_partly_copied(batch, first, stop, distance):
            for row in range(first, stop):  # of a run some records may be lost where they belong
                at = int(batch.columns[codes.POS, row])
                size = int(batch.columns[codes.SIZE, row])
                yield from self._judge(batch, row, row + 1, batch.base + at, batch.base + at + size, distance)
        else:
            count = stop - first
            is_foreign = count > 1 and start + distance < (self._bases[0] if self._bases else 0)
            is_kept = count == 1 or (self._moves_records and not is_foreign)
            text = f"says that it lies at {start + distance}" if count == 1 else f"{count} records say that they lie "
            text += "" if count == 1 else f"{abs(distance)} bytes further {'on' if distance > 0 else 'in front'}"
            yield MisplacedRun(first, stop - 1, start, end, start + distance, text, is_kept)

    def _is_partly_copied(self, batch: RecordBatch, first: int, stop: int, distance: int) -> bool:
        """Whether any record of a run lies where it says, too."""
        for row in range(first, stop):
            at, size = batch.columns[[codes.POS, codes.SIZE], row].tolist()
            if np.array_equal(self._bytes_at(batch.base + at + distance, size), batch.buffer[at : at + size]):
                return True
        return False

    def _bytes_at(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Bytes of the log; fewer where no file has them, or the disk does not give them back."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0 or offset + length > self._files[number].end:
            return np.empty(0, np.uint8)
        entry = self._files[number]
        try:
            return np.frombuffer(read_part(self._fs, entry.path, offset - entry.base, length), np.uint8)
        except (OSError, StoreError):
            return np.empty(0, np.uint8)
