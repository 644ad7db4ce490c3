"""The units of a batch of records, grouped by queue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.api import encode_units, tags_codes
from gantrymq.store.log_scanner import RecordBatch


class QueueUnits(NamedTuple):
    """``units`` (uint8, 20 bytes each) and what belongs to them (int64), in the order of the log within each queue.

    Those of queue number q are ``starts[q]`` to ``starts[q + 1]``.
    """

    units: NDArray[np.uint8]
    queue_offsets: NDArray[np.int64]
    phy_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    store_times_ms: NDArray[np.int64]
    starts: NDArray[np.int64]


def queue_units(
    batch: RecordBatch, numbers: NDArray[np.int64], n_queues: int, delay_levels_ms: NDArray[np.int64]
) -> QueueUnits:
    """Encode the units of ``batch``, whose queues ``numbers`` (none is negative) gives."""
    count = batch.count
    tags = np.empty(count, np.int64)
    tags_codes(batch.buffer, batch.columns, count, delay_levels_ms, tags)
    units = np.empty(count * UNIT_SIZE, np.uint8)
    queue_offsets, starts = np.empty(count, np.int64), np.empty(n_queues + 1, np.int64)
    encode_units(batch.columns, count, numbers, tags, n_queues, units, queue_offsets, starts)
    order = np.argsort(numbers, kind="stable")
    rows = (codes.PHY_OFFSET, codes.SIZE, codes.STORE_TIMESTAMP)
    phy_offsets, sizes, stored = (batch.columns[row, :count][order] for row in rows)
    return QueueUnits(units, queue_offsets, phy_offsets, sizes, stored, starts)
