"""The partitions of a batch: from where to where each queue is read, and what filters leave out of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gantrymq.spark.boundaries import ending, is_whole, starting
from gantrymq.spark.open_origin import open_origin
from gantrymq.spark.options import ReadOptions
from gantrymq.spark.pushdown import Pushed, pushed
from gantrymq.spark.pyspark_api import Filter
from gantrymq.spark.row_filter import tag_filter


def plan_batch(options: ReadOptions, filters: Sequence[Filter] = ()) -> list[Any]:
    """The partitions of a read; empty where there is nothing to read. Raises ConfigError, StoreError."""
    origin = open_origin(options)
    try:
        extents = origin.extents()
        start = starting(options, origin, extents, streaming=False)
        end = ending(options, origin, extents)
        found = pushed(filters) if filters else Pushed()
        start, end = found.narrowed(start, end)
        rows = found.rows & tag_filter(options.tags, options.keys)
        whole = is_whole(options) and not found.narrows
        return list(origin.partitions(start, end, rows or None, whole=whole))
    finally:
        origin.close()
