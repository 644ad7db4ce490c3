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
    least_offset: int | None = None
    greatest_offset: int | None = None
    rows: RowFilter = field(default_factory=RowFilter)

    @property
    def narrows(self) -> bool:
        """Whether queues or their offsets are excluded."""
        limits = (self.topics, self.queue_ids, self.least_offset, self.greatest_offset)
        return any(limit is not None for limit in limits)

    def narrowed(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets of the remaining queues, within the remaining offsets."""
        kept = [
            key
            for key in start
            if (self.topics is None or key.topic in self.topics)
            and (self.queue_ids is None or key.queue_id in self.queue_ids)
        ]
        low = {key: max(start[key], self.least_offset or 0) for key in kept}
        most = self.greatest_offset
        high = {key: end[key] if most is None else min(end[key], most + 1) for key in kept}
        return low, high


def pushed(filters: Sequence[Filter]) -> Pushed:
    """Translate ``filters``. Those that are not understood are ignored."""
    found = Pushed()
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) == 1:
            _take(found, column[0], one)
    return found


def _take(found: Pushed, column: str, one: Filter) -> None:
    values = None if column == "keys" else _values(one)
    if column == "topic" and values is not None:
        found.topics = values if found.topics is None else found.topics & values
    elif column == "queue_id" and values is not None:
        found.queue_ids = values if found.queue_ids is None else found.queue_ids & values
    elif column == "tags" and values is not None:
        found.rows = found.rows & RowFilter(tags=(values,))
    elif column == "keys":
        found.rows = found.rows & RowFilter(keys=_keys(one))
    elif column in _RANGED and (limits := _limits(one)) is not None:
        _limit(found, column, *limits)


def _limit(found: Pushed, column: str, low: int | None, high: int | None) -> None:
    if column == "queue_offset":
        if low is not None:
            found.least_offset = max(low, found.least_offset or 0)
        if high is not None:
            found.greatest_offset = high if found.greatest_offset is None else min(high, found.greatest_offset)
    else:
        found.rows = found.rows & RowFilter(ranges=((_RANGED[column], low, high),))


def _values(one: Filter) -> frozenset[Any] | None:
    """The values that a filter allows; None if it does not name values."""
    if isinstance(one, EqualTo | EqualNullSafe) and one.value is not None:
        return frozenset([one.value])
    return frozenset(value for value in one.value if value is not None) if isinstance(one, In) else None


def _keys(one: Filter) -> tuple[frozenset[str], ...]:
    """The keys that a record must have, as for RowFilter.

    Spark compares whole lists; an empty list gives no condition.
    """
    if isinstance(one, EqualTo | EqualNullSafe) and one.value:
        return tuple(frozenset([key]) for key in one.value if key is not None)
    if isinstance(one, In) and one.value and all(one.value):
        return (frozenset(keys[0] for keys in one.value if keys[0] is not None),)
    return ()


def _limits(one: Filter) -> tuple[int | None, int | None] | None:
    """(least, greatest) allowed value, rounded outwards; None if the filter gives no limit."""
    if isinstance(one, In):
        values = [_floor(value) for value in one.value if value is not None]
        known = [value for value in values if value is not None]
        return (min(known), max(known)) if known and len(known) == len(values) else None
    value = _floor(getattr(one, "value", None))
    if value is None:
        return None
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return value, None
    return (None, value) if isinstance(one, LessThan | LessThanOrEqual) else None


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
        found = pushed(filters) if filters else Pushed()
        start, end = found.narrowed(start, end)
        rows = found.rows & tag_filter(options.tags, options.keys)
        whole = is_whole(options) and not found.narrows
        return list(origin.partitions(start, end, rows or None, whole=whole))
    finally:
        origin.close()
