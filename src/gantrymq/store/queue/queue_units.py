"""The units of a batch of records, grouped by queue.

Kernels group records by queue number; :class:`QueueNumbers` assigns the numbers.

Thread rule: the numbers belong to one dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues, encode_units, tags_codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.record_batch import BATCH_RECORDS, QueueInterner, RecordBatch

_NONE = np.array([-1], np.int64)
_FIELDS = 4


class QueueNumbers:
    """Assigns each (topic, queue id) a number when it is first seen, over all scans."""

    def __init__(self) -> None:
        self._own = QueueInterner()
        self._ordinals = np.empty(BATCH_RECORDS, np.int64)
        # keyed by decoded topic: two damaged topics may decode to the same queue
        self._numbers: dict[tuple[str, int], int] = {}
        # Per scan: the number for each ordinal. The last element is -1, which the ordinal -1 selects.
        self._numbers_of: WeakKeyDictionary[QueueInterner, Int64s] = WeakKeyDictionary()

    def assign(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> Int64s:
        """Return the queue number of each record (int64, ``batch.count`` long), -1 for a record that enters no queue.

        ``add_queue(topic, queue_id)`` is called for each new number, in their order.
        """
        ordinals, numbers = self.find(batch, add_queue)
        return numbers[ordinals]

    def number_of(self, topic: bytes, queue_id: int, add_queue: Callable[[bytes, int], None]) -> int:
        """Return the number of one queue. A queue that no record has named gets the next number."""
        name = decode_utf8(topic), queue_id
        if name not in self._numbers:
            add_queue(topic, queue_id)
            self._numbers[name] = len(self._numbers)
        return self._numbers[name]

    def find(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> tuple[Int64s, Int64s]:
        """Return the records' ordinals (int64, ``batch.count`` long), and the queue number for each ordinal.

        A record with ordinal -1 enters no queue. The next call overwrites the ordinals.
        """
        if batch.digest is None:
            queues, ordinals = self._own, self._own_ordinals(batch)
        else:
            queues, ordinals = batch.digest.queues, batch.digest.ordinals
        numbers = self._numbers_of.get(queues, _NONE)
        if len(numbers) <= len(queues.names):
            seen = int(ordinals.max(initial=-1)) + 1  # records that enter no queue create none
            numbers = self._number(queues, numbers, seen, add_queue)
        return ordinals, numbers

    def _own_ordinals(self, batch: RecordBatch) -> Int64s:
        if batch.count > len(self._ordinals):
            self._ordinals = np.empty(batch.count, np.int64)
        own, ordinals = self._own, self._ordinals
        done, code = 0, codes.STOP_TABLE_FULL
        while code == codes.STOP_TABLE_FULL:
            done, code, _ = assign_queues(batch.buffer, batch.columns, done, batch.count, own.table, ordinals)
            if code == codes.STOP_TABLE_FULL:
                own.grow()
        own.note()
        return ordinals[: batch.count]

    def _number(
        self, queues: QueueInterner, known: Int64s, seen: int, add_queue: Callable[[bytes, int], None]
    ) -> Int64s:
        fresh = queues.names[len(known) - 1 : seen]
        added = np.empty(len(fresh), np.int64)
        for at, (topic, queue_id) in enumerate(fresh):
            name = decode_utf8(topic), queue_id
            if name not in self._numbers:
                # called first: a number without a queue would lead the kernels out of their arrays
                add_queue(topic, queue_id)
                self._numbers[name] = len(self._numbers)
            added[at] = self._numbers[name]
        numbers = np.concatenate((known[:-1], added, _NONE))
        self._numbers_of[queues] = numbers
        return numbers


class QueueUnits(NamedTuple):
    """``units`` (uint8, 20 bytes each) with their fields (int64). Within each queue they are in the order of the log.

    The units of queue number q are ``starts[q]`` to ``starts[q + 1]``.
    """

    units: NDArray[np.uint8]
    queue_offsets: NDArray[np.int64]
    phy_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    store_times_ms: NDArray[np.int64]
    starts: NDArray[np.int64]


class Renumbered(NamedTuple):
    """A record whose queue offset differs from that of its unit.

    An offset of 0 does not count, since it may be true.
    """

    phy_offset: int
    size_bytes: int
    queue_offset: int


class PassedOver(NamedTuple):
    """A record that got no unit, because the queue was already past its offset."""

    phy_offset: int
    size_bytes: int
    tags_code: int
    queue_offset: int


class QueueUnitsEncoder:
    """Encodes the units of batches into its own memory. Thread rule: belongs to one dispatcher."""

    def __init__(self) -> None:
        self._starts = np.empty(0, np.int64)
        self._take_room(0)

    def _take_room(self, records: int) -> None:
        self._tags, self._fields = np.empty(records, np.int64), np.empty((_FIELDS, records), np.int64)
        self._units = np.empty(records * UNIT_SIZE, np.uint8)

    def encode(
        self, batch: RecordBatch, numbers: NDArray[np.int64], n_queues: int, delay_levels_ms: NDArray[np.int64]
    ) -> QueueUnits:
        """Return the units of ``batch``. ``numbers`` has the queue number of each record (-1: none).

        The next call overwrites the result.
        """
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
    """Return the units of one batch in arrays of their own."""
    return QueueUnitsEncoder().encode(batch, numbers, n_queues, delay_levels_ms)
