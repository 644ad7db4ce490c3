"""Counts messages of many queues in the order of the log.

The obvious way, a rate limit for each queue, makes each micro-batch a few messages from everywhere in the log. A batch
that is cut in the order of the log is one stretch of it, which is read at full speed. All queues advance together in
time, as watermarks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantrymq.spark.plan.queue_view import QueueView

_READ_UNITS = 1 << 16
_SORTED_UNITS = 1 << 22
TailSizes = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(slots=True)
class QueueRange:
    """The messages of ``queue`` with offsets from ``low`` to before ``high``."""

    queue: QueueView
    low: int
    high: int

    def __len__(self) -> int:
        """The number of messages, fillers included."""
        return max(self.high - self.low, 0)


def after_rows(ranges: Sequence[QueueRange], begin: int, end: int, rows: int) -> tuple[int, list[int]]:
    """Cut the log [begin, end) so that ``rows`` messages of ``ranges`` lie before the cut.

    If ``rows`` is above 0, the cut passes at least the first message, or all fillers at that place. Returns the
    physical offset of the first message after the cut (``end`` if there is none), and for each range the queue offset
    at the cut.
    """
    lows, highs = [range_.low for range_ in ranges], [max(range_.high, range_.low) for range_ in ranges]
    if rows >= sum(highs) - sum(lows):
        return end, highs
    first, left, right = lows.copy(), begin, end
    # Bisect the log, searching each queue only where the cut can still be, until few units remain.
    while sum(highs) - sum(lows) > _READ_UNITS and right - left > 1:
        middle = (left + right) // 2
        tried = [
            range_.queue.first_at(middle, low, high) for range_, low, high in zip(ranges, lows, highs, strict=True)
        ]
        if sum(tried) - sum(first) <= rows:
            lows, left = tried, middle
        else:
            highs, right = tried, middle
    phy_offsets = [range_.queue.phy_offsets(low, high) for range_, low, high in zip(ranges, lows, highs, strict=True)]
    rest = np.sort(np.concatenate(phy_offsets)) if phy_offsets else np.empty(0, np.int64)
    wanted = rows - (sum(lows) - sum(first))
    if rows and lows == first and len(rest):
        # Fillers all count at the place of the message before them.
        wanted = max(wanted, _behind_first(rest))
    if wanted >= len(rest):
        left_over = [range_.queue.phy_offset(at) for range_, at in zip(ranges, highs, strict=True) if at < range_.high]
        return min(left_over, default=end), highs
    cut = int(rest[wanted])
    return cut, [low + int(np.searchsorted(some, cut)) for low, some in zip(lows, phy_offsets, strict=True)]


def after_bytes(
    ranges: Sequence[QueueRange], begin: int, end: int, size_bytes: int, tail_sizes: TailSizes
) -> list[int]:
    """As :func:`after_rows` for ``size_bytes`` of records. Returns the queue offset at the cut for each range.

    The cut passes the first message, however large it is.
    """
    lows, highs = [range_.low for range_ in ranges], [max(range_.high, range_.low) for range_ in ranges]
    left, right, rest, step = begin, end, size_bytes, max(size_bytes, 1)
    while sum(highs) - sum(lows) > _READ_UNITS and right - left > 1:
        # Steps that double, because computing the sizes of everything that waits may be expensive.
        middle, step = min(left + step, (left + right) // 2), 2 * step
        tried = [
            range_.queue.first_at(middle, low, high) for range_, low, high in zip(ranges, lows, highs, strict=True)
        ]
        passed = sum(
            int(range_.queue.sizes(low, high, tail_sizes).sum())
            for range_, low, high in zip(ranges, lows, tried, strict=True)
        )
        if passed <= rest:
            lows, left, rest = tried, middle, rest - passed
        else:
            highs, right = tried, middle
    phy_offsets = [range_.queue.phy_offsets(low, high) for range_, low, high in zip(ranges, lows, highs, strict=True)]
    sizes = [range_.queue.sizes(low, high, tail_sizes) for range_, low, high in zip(ranges, lows, highs, strict=True)]
    if not sum(map(len, phy_offsets)):
        return lows
    flat, counted = np.concatenate(phy_offsets), np.concatenate(sizes)
    order = np.argsort(flat, kind="stable")
    wanted = int(np.searchsorted(np.cumsum(counted[order]), rest, side="right"))
    if not wanted and lows == [range_.low for range_ in ranges]:
        wanted = _behind_first(flat[order])
    if wanted >= len(flat):
        return highs
    cut = int(flat[order][wanted])
    return [low + int(np.searchsorted(array, cut)) for low, array in zip(lows, phy_offsets, strict=True)]


def cut_places(ranges: Sequence[QueueRange], begin: int, end: int, rows: int, *, is_remote: bool) -> Iterator[int]:
    """Yield cuts of the log [begin, end) between which ``rows`` messages of ``ranges`` lie, as by after_rows.

    Each call of after_rows reads many units. For close cuts the units are therefore read once and sorted; but not from
    a remote file system, where a few single reads are faster than reading all units.
    """
    by_halves = is_remote or rows >= _READ_UNITS
    at_once = rows * (1 if by_halves else max(_SORTED_UNITS // rows, 1))
    left = list(ranges)
    while sum(map(len, left)) > rows:
        cut, offsets = after_rows(left, begin, end, at_once)
        if at_once > rows:
            part = [QueueRange(range_.queue, range_.low, offset) for range_, offset in zip(left, offsets, strict=True)]
            yield from _sorted_cuts(part, rows)
        yield cut
        begin = max(begin, cut)
        left = [QueueRange(range_.queue, offset, range_.high) for range_, offset in zip(left, offsets, strict=True)]


def _sorted_cuts(ranges: Sequence[QueueRange], rows: int) -> Iterator[int]:
    rest = np.sort(np.concatenate([range_.queue.phy_offsets(range_.low, range_.high) for range_ in ranges]))
    while len(rest) > rows:
        wanted = max(rows, _behind_first(rest))
        if wanted >= len(rest):
            break
        yield int(rest[wanted])
        rest = rest[np.searchsorted(rest, rest[wanted]) :]


def _behind_first(phy_offsets: NDArray[np.int64]) -> int:
    """The number of elements equal to the first one. A cut there would never make progress."""
    return int(np.searchsorted(phy_offsets, phy_offsets[0], side="right"))
