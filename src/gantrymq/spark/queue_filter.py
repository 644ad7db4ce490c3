"""Which records of the log are messages of a queue, and of a queue that is wanted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.model.java import decode_utf8
from gantrymq.spark.log_batch import LogBatch
from gantrymq.store.consume_queues import is_topic_storable


class QueueFilter:
    """Decides once for each queue, however many records it has; ``topics`` None is every topic.

    Records that enter no queue are never wanted: prepared and rolled-back ones, and those whose topic or queue id
    no queue can have.
    """

    def __init__(self, topics: frozenset[str] | None) -> None:
        from gantrymq.kernels.queues import new_table

        self._topics = topics
        self._table = new_table()
        self._wanted: list[bool] = []

    def wanted(self, batch: LogBatch) -> NDArray[np.bool_]:
        """For each record whether it is wanted."""
        from gantrymq.kernels.queues import assign_queues, grow, queue_count, queue_of

        numbers = np.empty(batch.count, np.int64)
        done, code = 0, codes.STOP_TABLE_FULL
        while code == codes.STOP_TABLE_FULL:
            done, code, _ = assign_queues(batch.buffer, batch.columns, done, batch.count, self._table, numbers)
            if code == codes.STOP_TABLE_FULL:
                self._table = grow(self._table)
        for number in range(len(self._wanted), queue_count(self._table)):
            self._wanted.append(self._is_wanted(*queue_of(self._table, number)))
        # The last one is for number -1, a record that enters no queue.
        return np.array([*self._wanted, False])[numbers]

    def _is_wanted(self, topic: bytes, queue_id: int) -> bool:
        name = decode_utf8(topic)
        return queue_id >= 0 and is_topic_storable(name) and (self._topics is None or name in self._topics)
