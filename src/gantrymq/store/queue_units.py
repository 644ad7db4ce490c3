"""The units of a batch of records, grouped by queue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.kernels.api import encode_units, tags_codes
from gantrymq.store.record_batch import RecordBatch

_FIELDS = 4


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


class Renumbered(NamedTuple):
    """A record that says another queue offset than the one that its unit has, and not 0, which may be true."""

    phy_offset: int
    size_bytes: int
    queue_offset: int


class PassedOver(NamedTuple):
    """A record that got no unit: the queue was at a later offset already when its turn came in the log."""

    phy_offset: int
    size_bytes: int
    tags_code: int
    queue_offset: int


class QueueUnitsEncoder:
    """Encodes the units of batches into memory of its own. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._starts = np.empty(0, np.int64)
        self._take_room(0)

    def _take_room(self, records: int) -> None:
        self._tags, self._fields = np.empty(records, np.int64), np.empty((_FIELDS, records), np.int64)
        self._units = np.empty(records * UNIT_SIZE, np.uint8)

    def encode(
        self, batch: RecordBatch, numbers: NDArray[np.int64], n_queues: int, delay_levels_ms: NDArray[np.int64]
    ) -> QueueUnits:
        """The units of ``batch``, whose queues ``numbers`` gives (-1: none); the next call writes over them."""
        count = batch.count
        if count > len(self._tags):
            self._take_room(count)
        if len(self._starts) != n_queues + 1:
            self._starts = np.empty(n_queues + 1, np.int64)
        tags, units, fields, starts = self._tags, self._units, self._fields, self._starts
        if batch.digest is not None:
            tags = batch.digest.tags_codes
        else:
            tags_codes(batch.buffer, batch.columns, count, delay_levels_ms, tags)
        count = encode_units(batch.columns, count, numbers, tags, n_queues, units, fields, starts)
        queue_offsets, phy_offsets, sizes, stored = fields[:, :count]
        return QueueUnits(units[: count * UNIT_SIZE], queue_offsets, phy_offsets, sizes, stored, starts)


def queue_units(
    batch: RecordBatch, numbers: NDArray[np.int64], n_queues: int, delay_levels_ms: NDArray[np.int64]
) -> QueueUnits:
    """The units of one batch, as arrays that nobody writes over."""
    return QueueUnitsEncoder().encode(batch, numbers, n_queues, delay_levels_ms)
