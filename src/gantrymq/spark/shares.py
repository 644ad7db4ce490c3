"""What is shared out: a number of messages among those who have some waiting, work among processors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def usable_cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shares(waiting: Mapping[K, int], rows: int) -> dict[K, int]:
    """How many of ``rows`` each gives: as its share of what waits is, rounded down, but at least one.

    So whoever has something waiting is read from at every trigger, as with Kafka's connector, and all of them together
    may give more than ``rows`` where they are many.
    """
    total = sum(waiting.values())
    return {key: min(max(rows * count // total, 1), count) if count else 0 for key, count in waiting.items()}
