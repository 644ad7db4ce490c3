"""Selects records of selected queues by their contents, before columns are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels import codes

_ROWS = {
    "phy_offset": codes.PHY_OFFSET,
    "store_timestamp_ms": codes.STORE_TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that must all hold; picklable.

    ``ranges`` are (name, least, greatest) for a number of the record (phy_offset or store_timestamp_ms); None means no
    limit. ``tags`` and ``keys``: the record has one of them.
    """

    ranges: tuple[tuple[str, int | None, int | None], ...] = ()
    tags: tuple[frozenset[str], ...] = ()
    keys: tuple[frozenset[str], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return bool(self.ranges or self.tags or self.keys)

    def bounds(self, name: str) -> tuple[int | None, int | None]:
        """The least and the greatest value of a number that satisfy all conditions."""
        least = [low for one, low, _ in self.ranges if one == name and low is not None]
        most = [high for one, _, high in self.ranges if one == name and high is not None]
        return max(least, default=None), min(most, default=None)

    def __and__(self, other: RowFilter) -> RowFilter:
        """The conjunction of two filters."""
        return RowFilter(
            self.ranges + other.ranges,
            self.tags + other.tags,
            self.keys + other.keys,
        )

    def apply(self, batch: Any) -> Any:
        """The records of a LogBatch that pass."""
        for name, low, high in self.ranges:
            batch = batch.take(_within(batch.row(_ROWS[name]), low, high))
        for tags in self.tags:
            batch = batch.take(_has_tag(batch, tags))
        for keys in self.keys:
            batch = batch.take(_has_key(batch, keys))
        return batch


def tag_filter(expression: str | None, keys: tuple[str, ...] | None) -> RowFilter:
    """The filter of the options ``tags`` ("A || B", or * for all) and ``keys``."""
    tags = frozenset(one.strip() for one in (expression or "").split("||") if one.strip())
    by_tag = (tags,) if tags and "*" not in tags else ()
    return RowFilter(tags=by_tag, keys=(frozenset(keys),) if keys else ())


def _within(values: NDArray[np.int64], low: int | None, high: int | None) -> NDArray[np.bool_]:
    inside = np.ones(len(values), np.bool_)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values <= high
    return inside


def _has_tag(batch: Any, tags: frozenset[str]) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    from gantrymq.tools.arrow import tags_column, texts_array, truths_of

    found = pc.is_in(tags_column(batch), value_set=texts_array(sorted(tags)))
    return truths_of(found)


def _has_key(batch: Any, keys: frozenset[str]) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    from gantrymq.tools.arrow import keys_column, texts_array, truths_of

    lists = keys_column(batch)
    found = pc.is_in(lists.values, value_set=texts_array(sorted(keys)))
    offsets = np.frombuffer(lists.offsets.buffers()[1], np.int32, len(lists) + 1)
    wanted = np.zeros(batch.count, np.bool_)
    wanted[np.searchsorted(offsets, np.flatnonzero(truths_of(found)), side="right") - 1] = True
    return wanted
