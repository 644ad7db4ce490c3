"""The index entries of a batch of records."""

from __future__ import annotations

import numpy as np

from gantrymq.kernels import codes
from gantrymq.kernels.api import index_hashes
from gantrymq.kernels.arrays import Int32s, Int64s
from gantrymq.store.record_batch import IndexEntries, RecordBatch, most_entries

_WITH_TAGS = 1


class IndexEntriesFinder:
    """Finds the entries of batches, with memory of its own. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._hashes = self._records = np.empty(0, np.int32)

    def find(self, batch: RecordBatch) -> IndexEntries:
        """What ``batch``, whose places are believed, is indexed under; lives as the batch, and until the next call."""
        hashes, records = self._find(batch) if batch.digest is None else (batch.digest.hashes, batch.digest.hashed)
        return IndexEntries(hashes, records, batch.columns[codes.PHY_OFFSET], batch.columns[codes.STORE_TIMESTAMP])

    def _find(self, batch: RecordBatch) -> tuple[Int32s, Int32s]:
        self._take_room(most_entries(batch.count))
        count, done = self._find_from(batch, 0)
        hashes, records = self._hashes[:count], self._records[:count]
        while done < batch.count:
            hashes, records = hashes.copy(), records.copy()
            count, done = self._find_from(batch, done)
            hashes = np.concatenate((hashes, self._hashes[:count]))
            records = np.concatenate((records, self._records[:count]))
        return hashes, records

    def _find_from(self, batch: RecordBatch, start: int) -> tuple[int, int]:
        found: tuple[int, int] = index_hashes(
            batch.buffer, batch.columns, start, batch.count, _WITH_TAGS, self._hashes, self._records
        )
        return found

    def _take_room(self, room: int) -> None:
        if room > len(self._hashes):
            self._hashes, self._records = np.empty(room, np.int32), np.empty(room, np.int32)


def index_entries(batch: RecordBatch) -> tuple[Int64s, Int64s, Int64s]:
    """Hash, physical offset and store time (ms) of each entry of one batch, as arrays that nobody writes over."""
    return IndexEntriesFinder().find(batch).each()
