"""A batch of records of the commit log: what scanning gives and dispatch takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.record import PHY_OFFSET_AT
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int32s, Int64s
from gantrymq.store.seen_queues import SeenQueues

_HASHES_A_RECORD = 4
_LONG = np.arange(8)


class IndexEntries(NamedTuple):
    """What records are indexed under, in RocketMQ's order.

    Entry i has the key hash ``hashes[i]`` and is that of record ``records[i]`` (int32, of one length), whose place and
    time stand in ``phy_offsets`` and ``store_timestamps_ms`` (int64). A record has three entries, mostly.
    """

    hashes: Int32s
    records: Int32s
    phy_offsets: Int64s
    store_timestamps_ms: Int64s

    @classmethod
    def of_each(cls, hashes: Int64s, phy_offsets: Int64s, store_timestamps_ms: Int64s) -> IndexEntries:
        """Entries whose hash, place and time (ms) stand in three int64 arrays, as if each had a record of its own."""
        numbers = np.arange(len(hashes), dtype=np.int32)
        offsets, times = np.ascontiguousarray(phy_offsets), np.ascontiguousarray(store_timestamps_ms)
        return cls(hashes.astype(np.int32), numbers, offsets, times)

    def each(self) -> tuple[Int64s, Int64s, Int64s]:
        """Hash, physical offset and store time (ms) of each entry, as new int64 arrays."""
        return self.hashes.astype(np.int64), self.phy_offsets[self.records], self.store_timestamps_ms[self.records]


def most_entries(records: int) -> int:
    """Room for the entries of so many usual records, and always for those of one."""
    return max(_HASHES_A_RECORD * records, codes.MAX_HASHES_OF_RECORD)


class Digest(NamedTuple):
    """What dispatch wants to know of a batch, where the scan has found it out already; its places are believed.

    ``ordinals`` (a record's queue in ``queues``, -1 where it enters none) and ``tags_codes`` are int64, one for each
    record; ``hashes`` and ``hashed`` are the first two of :class:`IndexEntries`. None of the first ``whole`` records is
    torn, none of the first ``placed`` says that it lies elsewhere.
    """

    queues: SeenQueues
    ordinals: Int64s
    tags_codes: Int64s
    hashes: Int32s
    hashed: Int32s
    whole: int
    placed: int

    def take(self, keep: NDArray[np.bool_]) -> Digest:
        """That of the records where ``keep`` says so."""
        kept = keep[self.hashed]
        numbers = np.cumsum(keep, dtype=np.int32) - 1
        whole, placed = int(keep[: self.whole].sum()), int(keep[: self.placed].sum())
        return Digest(
            self.queues, self.ordinals[keep], self.tags_codes[keep],
            self.hashes[kept], numbers[self.hashed[kept]], whole, placed,
        )  # fmt: skip


@dataclass(slots=True)
class RecordBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    ``buffer`` is the file or a part of it, read-only; ``base`` the physical offset of its first byte. With a digest
    there are only the first ``N_DISPATCH_COLUMNS`` rows. Columns and digest are memory of what scanned them, which says
    how long they live.
    """

    base: int
    buffer: Bytes
    columns: Int64s
    count: int
    digest: Digest | None = None

    @property
    def start_offset(self) -> int:
        """Where the first record of the batch lies."""
        return self.base + int(self.columns[codes.POS, 0])

    @property
    def end_offset(self) -> int:
        """Behind the last record of the batch."""
        last = self.count - 1
        return self.base + int(self.columns[codes.POS, last] + self.columns[codes.SIZE, last])

    def said_places(self) -> Int64s:
        """Where each record says that it lies; to be asked before :meth:`believe_places`."""
        if self.digest is None:
            said: Int64s = self.columns[codes.PHY_OFFSET, : self.count]
            return said
        at = self.columns[codes.POS, : self.count, None] + PHY_OFFSET_AT + _LONG  # the column has where they do lie
        places: Int64s = self.buffer[at].view(">i8")[:, 0].astype(np.int64)
        return places

    def without_copied(self) -> RecordBatch:
        """Without records that lie equally far from where they say, two and more: a copy of a part of the log.

        Nobody reads them here. A record that is alone with that has a flipped bit in its place, and stays.
        """
        if not self.count or (self.digest is not None and self.digest.placed == self.count):
            return self
        distances = self.said_places() - self.columns[codes.POS, : self.count] - self.base
        is_run = (distances != 0) & ((distances == np.roll(distances, 1)) | (distances == np.roll(distances, -1)))
        return self.take(~is_run) if is_run.any() and self.count > 1 else self

    def believe_places(self) -> None:
        """Let PHY_OFFSET be where each record lies, whatever it says of itself (one bit of it may have flipped)."""
        if self.digest is None:
            np.add(self.columns[codes.POS, : self.count], self.base, out=self.columns[codes.PHY_OFFSET, : self.count])

    def head(self, count: int) -> RecordBatch:
        """The first ``count`` records, of the same memory; copied where fewer are left of a digested batch."""
        if count == self.count:
            return self
        if self.digest is not None:
            return self.take(np.arange(self.count) < count)
        return RecordBatch(self.base, self.buffer, self.columns, count)

    def take(self, keep: NDArray[np.bool_]) -> RecordBatch:
        """A batch of the records where ``keep`` (bool, ``count`` long) says so."""
        whole = self.columns[:, : self.count]
        columns = np.ascontiguousarray(whole[:, keep])
        digest = self.digest.take(keep) if self.digest is not None else None
        return RecordBatch(self.base, self.buffer, columns, columns.shape[1], digest)
