"""A number of messages shared out among those who have some waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def shares(waiting: Mapping[K, int], rows: int) -> dict[K, int]:
    """How many of ``rows`` each gives: as its share of what waits is, rounded down, but at least one.

    So whoever has something waiting is read from at every trigger, as with Kafka's connector, and all of them together
    may give more than ``rows`` where they are many.
    """
    total = sum(waiting.values())
    return {key: min(max(rows * count // total, 1), count) if count else 0 for key, count in waiting.items()}
