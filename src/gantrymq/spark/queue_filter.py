"""Selects the records of a log by the queues that they belong to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import is_topic_storable
from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.queue_table import grow, new_table, queue_count, queue_of
from gantrymq.model.java import decode_utf8
from gantrymq.spark.runs import ENDLESS, Bounds, QueueBounds
from gantrymq.spark.selection import Selection
from gantrymq.tools.arrow import texts_array
from gantrymq.tools.queue_key import QueueKey

_EVERYTHING = Bounds(-(1 << 63), ENDLESS, 0)
_NOTHING = Bounds(0, 0, 0)


class QueueFilter:
    """Decides once for each queue, however many records it has.

    Selected are the records of the queues in ``bounds``, within them. Without bounds ``selection`` decides. Records
    that enter no queue are never selected: prepared and rolled-back ones, and those with an impossible topic or queue
    id.
    """

    def __init__(
        self, selection: Selection | None = None, bounds: QueueBounds | None = None, broker: str | None = None
    ) -> None:
        self._selection = selection or Selection()
        self._bounds = bounds
        self._broker = broker or ""
        self._table = new_table()
        self._low, self._high, self._begin, self._end, self._last = np.array([_NOTHING], np.int64).T
        given = (bounds or {}).values()
        self._are_whole = all(bounds.high == ENDLESS for bounds in given)
        self._last_begin = max((bounds.begin for bounds in given), default=0)
        self.keys: list[tuple[str | None, int]] = []
        """By queue number: (topic, queue id). The topic is None if the queue is not selected."""
        self.without_queue: list[tuple[str, int]] = []
        """Queues of selected topics that occur in records and that the store does not have."""
        self.behind_end: dict[int, int] = {}
        """Queue numbers whose queue ends although the log has later messages of it, with the last of their offsets."""
        self.topics = texts_array([])
        """By queue number: the topic as rows show it."""

    def numbers(self, buffer: Bytes, columns: Int64s, count: int) -> Int64s:
        """The number of each record's queue (int64, ``count`` long); -1 for a record that enters none."""
        numbers = np.empty(count, np.int64)
        done, code = 0, codes.STOP_TABLE_FULL
        while code == codes.STOP_TABLE_FULL:
            done, code, _ = assign_queues(buffer, columns, done, count, self._table, numbers)
            if code == codes.STOP_TABLE_FULL:
                self._table = grow(self._table)
        if len(self.keys) < queue_count(self._table):
            self._learn()
        return numbers

    def wanted(self, numbers: Int64s, columns: Int64s, base: int) -> NDArray[np.bool_]:
        """A mask of the selected records. ``numbers`` are their queues; their chunk begins at ``base`` of the log."""
        count = len(numbers)
        wanted: NDArray[np.bool_] = self._high[numbers] > 0
        if not self._are_whole:
            offsets = columns[codes.QUEUE_OFFSET, :count]
            wanted = (self._low[numbers] <= offsets) & (offsets < self._high[numbers])
            if (behind := self._end[numbers] <= offsets).any():
                self._note_end(numbers, offsets, behind & (self._last[numbers] < columns[codes.POS, :count] + base))
        if base < self._last_begin:  # for most of a log this is False
            wanted &= self._begin[numbers] <= columns[codes.POS, :count] + base
        return wanted

    def _note_end(self, numbers: Int64s, offsets: Int64s, behind: NDArray[np.bool_]) -> None:
        """Note records after the end of their queue. Older records are of a deleted topic and do not count."""
        for number in np.unique(numbers[behind]).tolist():
            last = int(offsets[behind & (numbers == number)].max())
            self.behind_end[number] = max(last, self.behind_end.get(number, last))

    def _learn(self) -> None:
        """Learn the queues that are new in the table."""
        known = (self._low, self._high, self._begin, self._end, self._last)
        bounds = np.stack([side[:-1] for side in known], axis=1).tolist()
        for number in range(len(self.keys), queue_count(self._table)):
            raw, queue_id = queue_of(self._table, number)
            topic = decode_utf8(raw)
            can_be = queue_id >= 0 and is_topic_storable(topic)
            shown = self._selection.shown_topic(topic) if can_be else None
            self.keys.append((shown, queue_id))
            bounds.append(_NOTHING if shown is None else self._bounds_of(shown, queue_id))
        bounds.append(_NOTHING)  # the last element serves number -1
        self._low, self._high, self._begin, self._end, self._last = np.array(bounds, np.int64).T
        self.topics = texts_array([topic or "" for topic, _ in self.keys])

    def _bounds_of(self, topic: str, queue_id: int) -> Bounds:
        if self._bounds is not None:
            bounds = self._bounds.get((topic, queue_id))
            if bounds is None and self._takes(topic, queue_id):
                self.without_queue.append((topic, queue_id))
            return bounds or _NOTHING
        return _EVERYTHING if self._takes(topic, queue_id) else _NOTHING

    def _takes(self, topic: str, queue_id: int) -> bool:
        return self._selection.takes(QueueKey(self._broker, topic, queue_id))
