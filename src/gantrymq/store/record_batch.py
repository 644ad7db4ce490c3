"""A batch of records of the commit log: what scanning gives and dispatch takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.store.seen_queues import SeenQueues

Longs = NDArray[np.int64]
_HASHES_A_RECORD = 4


class IndexEntries(NamedTuple):
    """What records are indexed under, in RocketMQ's order: three int64 arrays of one length."""

    hashes: Longs
    phy_offsets: Longs
    store_timestamps_ms: Longs


def most_entries(records: int) -> int:
    """Room for the entries of so many usual records, and always for those of one."""
    return max(_HASHES_A_RECORD * records, codes.MAX_HASHES_OF_RECORD)


class Digest(NamedTuple):
    """What dispatch wants to know of a batch, where the scan has found it out already; its places are believed.

    ``ordinals`` (a record's queue in ``queues``, -1 where it enters none) and ``tags_codes`` are int64, one for each
    record. None of the first ``whole`` records is torn, none of the first ``placed`` says that it lies elsewhere.
    """

    queues: SeenQueues
    ordinals: Longs
    tags_codes: Longs
    entries: IndexEntries
    whole: int
    placed: int

    def take(self, keep: NDArray[np.bool_], phy_offsets: Longs) -> Digest:
        """That of the records where ``keep`` says so; ``phy_offsets`` are those of all."""
        kept = keep[np.searchsorted(phy_offsets, self.entries.phy_offsets)]
        entries = IndexEntries(*(each[kept] for each in self.entries))
        whole, placed = int(keep[: self.whole].sum()), int(keep[: self.placed].sum())
        return Digest(self.queues, self.ordinals[keep], self.tags_codes[keep], entries, whole, placed)


@dataclass(slots=True)
class RecordBatch:
    """Records of one file: ``columns[:, :count]`` as ``gantrymq.kernels.codes`` names the rows.

    ``buffer`` is the file or a part of it, read-only; ``base`` the physical offset of its first byte. With a digest
    there are only the first ``N_DISPATCH_COLUMNS`` rows. Columns and digest are memory of what scanned them, which says
    how long they live.
    """

    base: int
    buffer: Bytes
    columns: Longs
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
        digest = self.digest.take(keep, whole[codes.PHY_OFFSET]) if self.digest is not None else None
        return RecordBatch(self.base, self.buffer, columns, columns.shape[1], digest)
