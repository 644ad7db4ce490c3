"""Numbers for queues, so that kernels can group records by queue.

Thread rule: belongs to one dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues
from gantrymq.kernels.queue_table import grow, new_table, queue_count, queue_of
from gantrymq.store.record_batch import RecordBatch
from gantrymq.store.record_scan import BATCH_RECORDS


class QueueNumbers:
    """Gives each (topic, queue id) the next number when it is first seen."""

    def __init__(self) -> None:
        self._table = new_table()
        self._known = 0
        self._numbers = np.empty(BATCH_RECORDS, np.int64)

    def assign(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> NDArray[np.int64]:
        """The number of each record's queue (int64, ``batch.count`` long); -1 for a record that enters none.

        The next call writes over them. ``add_queue(topic, queue_id)`` is called for each new number, in their order.
        """
        if batch.count > len(self._numbers):
            self._numbers = np.empty(batch.count, np.int64)
        numbers = self._numbers
        done, code = 0, codes.STOP_TABLE_FULL
        while code == codes.STOP_TABLE_FULL:
            done, code, _ = assign_queues(batch.buffer, batch.columns, done, batch.count, self._table, numbers)
            if code == codes.STOP_TABLE_FULL:
                self._table = grow(self._table)
        count = queue_count(self._table)
        for number in range(self._known, count):
            add_queue(*queue_of(self._table, number))
        self._known = count
        return numbers[: batch.count]
