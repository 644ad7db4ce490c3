"""Which queues the records of the log belong to, and whether these are wanted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.queue_table import grow, new_table, queue_count, queue_of
from gantrymq.model.java import decode_utf8
from gantrymq.store.consume_queues import is_topic_storable


class QueueFilter:
    """Decides once for each queue, however many records it has; ``topics`` None is every topic.

    Records that enter no queue are never wanted: prepared and rolled-back ones, and those whose topic or queue id
    no queue can have.
    """

    def __init__(self, topics: frozenset[str] | None) -> None:
        self._topics = topics
        self._table = new_table()
        self._wanted = np.array([False])
        self._names: list[str] = []
        self.topics = pa.array([], pa.string())
        """The topic of each number given out so far."""

    def numbers(self, buffer: Bytes, columns: Int64s, count: int) -> Int64s:
        """The number of each record's queue; -1 for one that enters none."""
        numbers = np.empty(count, np.int64)
        done, code = 0, codes.STOP_TABLE_FULL
        while code == codes.STOP_TABLE_FULL:
            done, code, _ = assign_queues(buffer, columns, done, count, self._table, numbers)
            if code == codes.STOP_TABLE_FULL:
                self._table = grow(self._table)
        if len(self._names) < queue_count(self._table):
            self._learn()
        return numbers

    def wanted(self, numbers: Int64s) -> NDArray[np.bool_]:
        """For each of ``numbers`` whether that queue is wanted."""
        return self._wanted[numbers]

    def _learn(self) -> None:
        """Take note of the queues that are new in the table."""
        wanted = self._wanted[:-1].tolist()
        for number in range(len(self._names), queue_count(self._table)):
            topic, queue_id = queue_of(self._table, number)
            name = decode_utf8(topic)
            can_be = queue_id >= 0 and is_topic_storable(name)
            wanted.append(can_be and (self._topics is None or name in self._topics))
            self._names.append(name)
        self._wanted = np.array([*wanted, False])  # the last one answers for number -1
        self.topics = pa.array(self._names, pa.string())
