"""Units of records, grouped by queue (stand-in until the kernel lands)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.properties import decode_properties
from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry, encode_entry, tags_code
from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.store.log_scanner import RecordBatch


def queue_units(
    batch: RecordBatch, numbers: NDArray[np.int64], n_queues: int, delay_levels_ms: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """(units uint8[n, 20] grouped by queue, record index of each, start of each queue's group)."""
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(n_queues + 1))
    out = bytearray()
    buf = batch.buffer.data
    levels = delay_levels_ms.tolist()
    for i in order:
        c = batch.columns[:, i].tolist()
        topic = decode_utf8(bytes(buf[c[codes.TOPIC_AT] : c[codes.TOPIC_AT] + c[codes.TOPIC_LENGTH]]))
        raw = bytes(buf[c[codes.PROPERTIES_AT] : c[codes.PROPERTIES_AT] + c[codes.PROPERTIES_LENGTH]])
        code = tags_code(topic, decode_properties(raw), c[codes.STORE_TIMESTAMP], levels)
        out += encode_entry(QueueEntry(c[codes.PHY_OFFSET], c[codes.SIZE], code))
    return np.frombuffer(out, np.uint8).reshape(-1, UNIT_SIZE), order, starts
