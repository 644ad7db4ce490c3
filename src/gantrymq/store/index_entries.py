"""Index entries of records (stand-in until the kernel lands)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.index import index_keys, key_hash
from gantrymq.format.properties import decode_properties
from gantrymq.kernels import codes
from gantrymq.model.flags import is_indexable
from gantrymq.model.java import decode_utf8
from gantrymq.store.log_scanner import RecordBatch

Longs = NDArray[np.int64]


def index_entries(batch: RecordBatch) -> tuple[Longs, Longs, Longs]:
    """(key hashes, physical offsets, store timestamps) in RocketMQ's order."""
    hashes, offsets, times = [], [], []
    buf = batch.buffer.data
    for i in range(batch.count):
        c = batch.columns[:, i].tolist()
        if not is_indexable(c[codes.SYS_FLAG]):
            continue
        topic = decode_utf8(bytes(buf[c[codes.TOPIC_AT] : c[codes.TOPIC_AT] + c[codes.TOPIC_LENGTH]]))
        raw = bytes(buf[c[codes.PROPERTIES_AT] : c[codes.PROPERTIES_AT] + c[codes.PROPERTIES_LENGTH]])
        for key in index_keys(decode_properties(raw)):
            hashes.append(key_hash(topic, key))
            offsets.append(c[codes.PHY_OFFSET])
            times.append(c[codes.STORE_TIMESTAMP])
    return np.array(hashes, np.int64), np.array(offsets, np.int64), np.array(times, np.int64)
