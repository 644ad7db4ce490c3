"""The index entries of a batch of records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.kernels.api import index_hashes
from gantrymq.store.log_scanner import RecordBatch

Longs = NDArray[np.int64]
_WITH_TAGS = 1
_HASHES_A_RECORD = 4


def index_entries(batch: RecordBatch) -> tuple[Longs, Longs, Longs]:
    """(key hashes, physical offsets, store timestamps) of what ``batch`` is indexed under, in RocketMQ's order."""
    hashes: list[Longs] = []
    records: list[Longs] = []
    done, room = 0, _HASHES_A_RECORD * batch.count
    while done < batch.count:
        some, of = (
            np.empty(max(room, codes.MAX_HASHES_OF_RECORD), np.int64),
            np.empty(max(room, codes.MAX_HASHES_OF_RECORD), np.int64),
        )
        count, done = index_hashes(batch.buffer, batch.columns, done, batch.count, _WITH_TAGS, some, of)
        hashes.append(some[:count])
        records.append(of[:count])
    record_of = np.concatenate(records)
    offsets, stored = batch.columns[codes.PHY_OFFSET], batch.columns[codes.STORE_TIMESTAMP]
    return np.concatenate(hashes), offsets[record_of], stored[record_of]
