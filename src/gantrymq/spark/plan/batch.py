"""Plans a batch read: the origin that the options name, and the partitions of its queues.

Spark passes filters: comparisons of a column with literals, joined by AND. They become limits on queues, offsets and
records. topic, queue_id and queue_offset exclude queues and offsets. phy_offset excludes parts of the log. phy_offset,
store_timestamp, tags and keys exclude records before columns are made. So filters drop or shorten partitions, and Spark
applies them again itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gantrymq.spark.options import ReadOptions
from gantrymq.spark.plan.boundaries import ending, is_whole, starting
from gantrymq.spark.plan.origin import Offsets, Origin
from gantrymq.spark.pyspark_api import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from gantrymq.spark.selection import RowFilter, tag_filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANGED = {"queue_offset": "queue_offset", "phy_offset": "phy_offset", "store_timestamp": "store_timestamp_ms"}


@dataclass(slots=True)
class Pushed:
    """What the filters leave of queues, of their offsets (least, greatest), and of records."""

    topics: frozenset[Any] | None = None
    queue_ids: frozenset[Any] | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    rows: RowFilter = field(default_factory=RowFilter)

    @property
    def narrows(self) -> bool:
        """Whether queues or their offsets are excluded."""
        limits = (self.topics, self.queue_ids, self.min_offset, self.max_offset)
        return any(limit is not None for limit in limits)

    def narrowed(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets of the remaining queues, within the remaining offsets."""
        keys = [
            key
            for key in start
            if (self.topics is None or key.topic in self.topics)
            and (self.queue_ids is None or key.queue_id in self.queue_ids)
        ]
        low = {key: max(start[key], self.min_offset or 0) for key in keys}
        max_offset = self.max_offset
        high = {key: end[key] if max_offset is None else min(end[key], max_offset + 1) for key in keys}
        return low, high


def pushdown_of(filters: Sequence[Filter]) -> Pushed:
    """Translate ``filters``. Those that are not understood are ignored."""
    pushdown = Pushed()
    for condition in filters:
        column: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(column) == 1:
            _take(pushdown, column[0], condition)
    return pushdown


def _take(pushdown: Pushed, column: str, condition: Filter) -> None:
    values = None if column == "keys" else _values(condition)
    if column == "topic" and values is not None:
        pushdown.topics = values if pushdown.topics is None else pushdown.topics & values
    elif column == "queue_id" and values is not None:
        pushdown.queue_ids = values if pushdown.queue_ids is None else pushdown.queue_ids & values
    elif column == "tags" and values is not None:
        pushdown.rows = pushdown.rows & RowFilter(tags=(values,))
    elif column == "keys":
        pushdown.rows = pushdown.rows & RowFilter(keys=_keys(condition))
    elif column in _RANGED and (limits := _limits(condition)) is not None:
        _limit(pushdown, column, *limits)


def _limit(pushdown: Pushed, column: str, low: int | None, high: int | None) -> None:
    if column == "queue_offset":
        if low is not None:
            pushdown.min_offset = max(low, pushdown.min_offset or 0)
        if high is not None:
            pushdown.max_offset = high if pushdown.max_offset is None else min(high, pushdown.max_offset)
    else:
        pushdown.rows = pushdown.rows & RowFilter(ranges=((_RANGED[column], low, high),))


def _values(condition: Filter) -> frozenset[Any] | None:
    """The values that a filter allows; None if it does not name values."""
    if isinstance(condition, EqualTo | EqualNullSafe) and condition.value is not None:
        return frozenset([condition.value])
    return frozenset(value for value in condition.value if value is not None) if isinstance(condition, In) else None


def _keys(condition: Filter) -> tuple[frozenset[str], ...]:
    """The keys that a record must have, as for RowFilter.

    Spark compares whole lists; an empty list gives no condition.
    """
    if isinstance(condition, EqualTo | EqualNullSafe) and condition.value:
        return tuple(frozenset([key]) for key in condition.value if key is not None)
    if isinstance(condition, In) and condition.value and all(condition.value):
        return (frozenset(keys[0] for keys in condition.value if keys[0] is not None),)
    return ()


def _limits(condition: Filter) -> tuple[int | None, int | None] | None:
    """(least, greatest) allowed value, rounded outwards; None if the filter gives no limit."""
    if isinstance(condition, In):
        values = [_floor(value) for value in condition.value if value is not None]
        known = [value for value in values if value is not None]
        return (min(known), max(known)) if known and len(known) == len(values) else None
    value = _floor(getattr(condition, "value", None))
    if value is None:
        return None
    if isinstance(condition, EqualTo | EqualNullSafe):
        return value, value
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return value, None
    return (None, value) if isinstance(condition, LessThan | LessThanOrEqual) else None


def _floor(value: Any) -> int | None:
    """A number, or a time in milliseconds, rounded down; None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    return value if isinstance(value, int) else None


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
        pushdown = pushdown_of(filters) if filters else Pushed()
        start, end = pushdown.narrowed(start, end)
        rows = pushdown.rows & tag_filter(options.tags, options.keys)
        whole = is_whole(options) and not pushdown.narrows
        return list(origin.partitions(start, end, rows or None, whole=whole))
    finally:
        origin.close()
