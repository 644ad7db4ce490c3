"""Numbers for queues, so that kernels can group records by them (stand-in until the kernel lands)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes
from gantrymq.model.flags import is_consumable
from gantrymq.store.log_scanner import RecordBatch


class QueueNumbers:
    """Gives each (topic, queue id) the next number when it is first seen."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bytes, int], int] = {}

    def assign(self, batch: RecordBatch, add_queue: Callable[[bytes, int], None]) -> NDArray[np.int64]:
        """The number of each record's queue; -1 for a record that enters none."""
        out = np.empty(batch.count, np.int64)
        buf = batch.buffer.data
        for i in range(batch.count):
            column = batch.columns[:, i]
            if not is_consumable(int(column[codes.SYS_FLAG])):
                out[i] = -1
                continue
            at, length = int(column[codes.TOPIC_AT]), int(column[codes.TOPIC_LENGTH])
            key = (bytes(buf[at : at + length]), int(column[codes.QUEUE_ID]))
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._numbers)
                add_queue(*key)
            out[i] = number
        return out
