"""Counting messages of many queues in the order of the log.

A rate limit that went queue by queue would leave each micro-batch with a few messages from everywhere in the log. Cut
in the order of the log a batch is one stretch of it, which is read at full speed, and all queues advance together in
time, which is what watermarks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gantrymq.spark.store_view import QueueView

_READ_UNITS = 1 << 16


@dataclass(slots=True)
class QueueRange:
    """The messages of ``queue`` from ``low`` on, those before ``high``."""

    queue: QueueView
    low: int
    high: int

    def __len__(self) -> int:
        """How many, empty slots among them."""
        return max(self.high - self.low, 0)


def after_rows(ranges: Sequence[QueueRange], begin: int, end: int, rows: int) -> tuple[int, list[int]]:
    """Where the log [begin, end) is cut so that ``rows`` messages of ``ranges`` lie in front of the cut.

    With any rows at all the cut passes the first message, or the slots that stayed empty there, however many. Returns
    the physical offset of the first message behind the cut, ``end`` where there is none, and for each range the queue
    offset that the cut comes to.
    """
    lows, highs = [one.low for one in ranges], [max(one.high, one.low) for one in ranges]
    first, left, right = lows.copy(), begin, end
    # By halves over the log, each queue searched only where the cut can still be, until the rest is quickly read.
    while sum(highs) - sum(lows) > _READ_UNITS and right - left > 1:
        middle = (left + right) // 2
        tried = [one.queue.first_at(middle, low, high) for one, low, high in zip(ranges, lows, highs, strict=True)]
        if sum(tried) - sum(first) <= rows:
            lows, left = tried, middle
        else:
            highs, right = tried, middle
    places = [one.queue.phy_offsets(low, high) for one, low, high in zip(ranges, lows, highs, strict=True)]
    rest = np.sort(np.concatenate(places)) if places else np.empty(0, np.int64)
    wanted = rows - (sum(lows) - sum(first))
    if rows and lows == first and len(rest):
        # Empty slots lie all in one place, that of the message in front of them: a cut there would not pass them ever.
        wanted = max(wanted, int(np.searchsorted(rest, rest[0], side="right")))
    if wanted >= len(rest):
        left_over = [one.queue.phy_offset(at) for one, at in zip(ranges, highs, strict=True) if at < one.high]
        return min(left_over, default=end), highs
    cut = int(rest[wanted])
    return cut, [low + int(np.searchsorted(some, cut)) for low, some in zip(lows, places, strict=True)]
