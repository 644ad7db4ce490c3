"""Cutting what is to be read of a store into partitions, on the driver.

What is wanted of each queue is a stretch of the log: from where the first wanted message lies to behind the last one.
It is cut into runs of about equal bytes, or of so many messages, and executors read runs, which is reading files front
to back, whatever the number of queues. Planning itself reads the consume queues where it must know a place, and never
the log as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from gantrymq.spark.log_order import QueueRange, after_rows
from gantrymq.spark.log_run import LogRun, QueueBounds
from gantrymq.spark.record_places import is_record
from gantrymq.spark.row_filter import RowFilter
from gantrymq.spark.selection import Selection
from gantrymq.spark.store_view import QueueView, StoreView

# A task costs Spark some 75 ms whatever it does, in which a core reads some 100 MB.
LARGEST_RUN_BYTES = 512 << 20
SMALLEST_RUN_BYTES = 16 << 20


def plan_runs(
    view: StoreView,
    ranges: Sequence[QueueRange],
    bounds: QueueBounds | None,
    selection: Selection,
    rows: RowFilter | None,
    *,
    min_partitions: int,
    max_records: int | None,
) -> list[LogRun]:
    """The partitions that hold ``ranges``; empty where there is nothing to read.

    ``bounds`` are what executors keep of what they read; None: all that ``selection`` takes.
    """
    begin, end = _span(view, ranges, everything=bounds is None and selection == Selection(), rows=rows)
    if begin >= end:
        return []
    cuts = (
        _row_cuts(ranges, begin, end, min_partitions, max_records)
        if max_records
        else _byte_cuts(view, begin, end, min_partitions)
    )
    return [
        LogRun(view.pieces(start, stop), view.broker, selection, bounds, rows)
        for start, stop in pairwise([begin, *cuts, end])
        if start < stop
    ]


def _span(
    view: StoreView, ranges: Sequence[QueueRange], *, everything: bool, rows: RowFilter | None
) -> tuple[int, int]:
    """From where to where the log is to be read."""
    wanted = [one for one in ranges if len(one)]
    begin, end = view.begin, view.end
    if not everything:
        first = min((one.queue.phy_offset(one.low) for one in wanted), default=end)
        # A place that a damaged unit names is not believed.
        begin = first if first >= begin and _begins(view, first) else begin
        end = min(end, max((_behind(view, one.queue, one.high - 1) for one in wanted), default=begin))
    low, high = rows.bounds("phy_offset") if rows is not None else (None, None)
    if low is not None and begin < low < end:
        begin = view.record_at_or_after(low)
    if high is not None and begin <= high + 1 < end:
        end = view.record_at_or_after(high + 1)
    return (begin, end) if high is None or high >= begin else (begin, begin)


def _begins(view: StoreView, phy_offset: int) -> bool:
    return phy_offset >= view.tail_begin or is_record(view.reader, phy_offset)


def _behind(view: StoreView, queue: QueueView, queue_offset: int) -> int:
    """Where the message at ``queue_offset`` ends."""
    place = queue.phy_offset(queue_offset)
    if place < view.tail_begin:
        message = view.reader.message_at(place) if place >= view.begin else None
        return view.begin if place < view.begin else view.end if message is None else place + message.size_bytes
    return view.record_at_or_after(place + 1)


def _byte_cuts(view: StoreView, begin: int, end: int, min_partitions: int) -> list[int]:
    total = end - begin
    cores = len(os.sched_getaffinity(0))
    count = max(min_partitions, -(-total // LARGEST_RUN_BYTES), min(cores, -(-total // SMALLEST_RUN_BYTES)), 1)
    cuts = [begin]
    for wanted in (begin + total * part // count for part in range(1, count)):
        cut = view.record_at_or_after(wanted)
        if cuts[-1] < cut < end:
            cuts.append(cut)
    return cuts[1:]


def _row_cuts(ranges: Sequence[QueueRange], begin: int, end: int, min_partitions: int, max_records: int) -> list[int]:
    """Cuts between which there are at most ``max_records`` messages."""
    left = [QueueRange(one.queue, one.low, one.high) for one in ranges if len(one)]
    total = sum(map(len, left))
    at_most = min(max_records, -(-total // max(min_partitions, 1)) or 1)
    cuts = []
    while sum(map(len, left)) > at_most:
        cut, offsets = after_rows(left, begin, end, at_most)
        if cut >= end:
            break
        cuts.append(cut)
        begin = cut
        left = [QueueRange(one.queue, offset, one.high) for one, offset in zip(left, offsets, strict=True)]
    return cuts
