"""Numbers for queues, so that kernels can group records by queue.

Thread rule: belongs to one dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.java import decode_utf8
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.record_scan import BATCH_RECORDS
from gantrymq.store.seen_queues import SeenQueues

_NONE = np.array([-1], np.int64)


class QueueNumbers:
    """Gives each (topic, queue id) the next number when it is first seen, whoever's scan has seen it."""

    def __init__(self) -> None:
        self._own = SeenQueues()
        self._ordinals = np.empty(BATCH_RECORDS, np.int64)
        self._numbers: dict[tuple[str, int], int] = {}  # by the topic as it reads: two damaged ones may be one queue
        # For each scan the numbers of its ordinals, and -1 at the end, where the ordinal -1 finds it.
        self._numbers_of: WeakKeyDictionary[SeenQueues, Int64s] = WeakKeyDictionary()

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

    def _number(self, queues: SeenQueues, known: Int64s, seen: int, add_queue: Callable[[bytes, int], None]) -> Int64s:
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
