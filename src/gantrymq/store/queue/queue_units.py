"""The units of a batch of records, grouped by queue.

Kernels group records by the number of their queue, which :class:`QueueNumbers` assigns.

Thread rule: numbers belong to one dispatcher.
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


class QueueNumbers:
    """Gives each (topic, queue id) the next number when it is first seen, whoever's scan has seen it."""

    def __init__(self) -> None:
        self._own = QueueInterner()
        self._ordinals = np.empty(BATCH_RECORDS, np.int64)
        self._numbers: dict[tuple[str, int], int] = {}  # by the topic as it reads: two damaged ones may be one queue
        # For each scan the numbers of its ordinals, and -1 at the end, where the ordinal -1 finds it.
        self._numbers_of: WeakKeyDictionary[QueueInterner, Int64s] = WeakKeyDictionary()

    def assign(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> Int64s:
        """The number of each record's queue (int64, ``batch.count`` long); -1 for a record that enters none.

        ``add_queue(topic, queue_id)`` is called for each new number, in their order.
        """
        ordinals, numbers = self.find(batch, add_queue)
        return numbers[ordinals]

    def number_of(self, topic: bytes, queue_id: int, add_queue: Callable[[bytes, int], None]) -> int:
        """The number of one queue, which gets the next one where no record has named it."""
        name = decode_utf8(topic), queue_id
        if name not in self._numbers:
            add_queue(topic, queue_id)
            self._numbers[name] = len(self._numbers)
        return self._numbers[name]

    def find(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> tuple[Int64s, Int64s]:
        """The records' ordinals, whoever's scan gave them (``batch.count`` long), and the number for each ordinal.

        The ordinal -1 is that of a record that enters no queue. The next call writes over the ordinals.
        """
        if batch.digest is None:
            queues, ordinals = self._own, self._own_ordinals(batch)
        else:
            queues, ordinals = batch.digest.queues, batch.digest.ordinals
        numbers = self._numbers_of.get(queues, _NONE)
        if len(numbers) <= len(queues.names):
            seen = int(ordinals.max(initial=-1)) + 1  # what records that do not count say of their queues makes none
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
                add_queue(topic, queue_id)  # first: a number without a queue would lead the kernels astray
                self._numbers[name] = len(self._numbers)
            added[at] = self._numbers[name]
        numbers = np.concatenate((known[:-1], added, _NONE))
        self._numbers_of[queues] = numbers
        return numbers


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
