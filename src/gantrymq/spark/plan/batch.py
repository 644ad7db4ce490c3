"""Plans a batch read: the origin that the options name, and the partitions of its queues.

Filters that Spark pushes down drop or shorten partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.boundaries import ending, is_whole, starting
from gantrymq.spark.plan.origin import Origin
from gantrymq.spark.plan.pushdown import Pushed, pushed
from gantrymq.spark.pyspark_api import Filter
from gantrymq.spark.row_filter import tag_filter


def open_origin(options: ReadOptions) -> Origin:
    """A live cluster (``nameserver``) or store directories (``path``). Nothing is opened before its first use."""
    if options.nameserver is not None:
        from gantrymq.spark.plan.cluster_origin import ClusterOrigin

        return ClusterOrigin(options)
    from gantrymq.spark.plan.store_origin import StoreOrigin

    return StoreOrigin(options)


def plan_batch(options: ReadOptions, filters: Sequence[Filter] = ()) -> list[Any]:
    """The partitions of a read; empty if there is nothing to read. Raises ConfigError, DataLossError, StoreError."""
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
