"""The index entries of a batch of records."""

from __future__ import annotations

import numpy as np

from gantrymq.kernels import codes
from gantrymq.kernels.api import index_hashes
from gantrymq.store.record_batch import IndexEntries, RecordBatch, most_entries

_WITH_TAGS = 1


class IndexEntriesFinder:
    """Finds the entries of batches, with memory of its own. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._hashes = self._records = self._offsets = self._stored = np.empty(0, np.int64)

    def find(self, batch: RecordBatch) -> IndexEntries:
        """What ``batch``, whose places are believed, is indexed under. The next call writes over it."""
        if batch.digest is not None:
            return batch.digest.entries
        self._take_room(most_entries(batch.count))
        offsets, stored = batch.columns[codes.PHY_OFFSET], batch.columns[codes.STORE_TIMESTAMP]
        count, done = self._find(batch, 0)
        hashes, records = self._hashes[:count], self._records[:count]
        if done == batch.count:
            # "clip" keeps numpy from making a copy first; every record is one of the batch.
            np.take(offsets, records, out=self._offsets[:count], mode="clip")
            np.take(stored, records, out=self._stored[:count], mode="clip")
            return IndexEntries(hashes, self._offsets[:count], self._stored[:count])
        while done < batch.count:
            hashes, records = hashes.copy(), records.copy()
            count, done = self._find(batch, done)
            hashes = np.concatenate((hashes, self._hashes[:count]))
            records = np.concatenate((records, self._records[:count]))
        return IndexEntries(hashes, offsets[records], stored[records])

    def _find(self, batch: RecordBatch, start: int) -> tuple[int, int]:
        found: tuple[int, int] = index_hashes(
            batch.buffer, batch.columns, start, batch.count, _WITH_TAGS, self._hashes, self._records
        )
        return found

    def _take_room(self, room: int) -> None:
        if room > len(self._hashes):
            self._hashes, self._records = np.empty(room, np.int64), np.empty(room, np.int64)
            self._offsets, self._stored = np.empty(room, np.int64), np.empty(room, np.int64)


def index_entries(batch: RecordBatch) -> IndexEntries:
    """The entries of one batch, as arrays that nobody writes over; those of a digest live as long as it does."""
    return IndexEntriesFinder().find(batch)
