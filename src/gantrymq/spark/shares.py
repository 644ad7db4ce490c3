"""A number of messages shared out among those who have some waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K", bound=tuple[object, ...] | str)


def shares(waiting: Mapping[K, int], rows: int) -> dict[K, int]:
    """How many of ``rows`` each gives: as its share of what waits is, rounded so that they add up."""
    found: dict[K, int] = {}
    left_rows, left_waiting = rows, sum(waiting.values())
    for key, count in sorted(waiting.items()):
        found[key] = min(-(-left_rows * count // left_waiting) if left_waiting else 0, count)
        left_rows, left_waiting = left_rows - found[key], left_waiting - count
    return found
