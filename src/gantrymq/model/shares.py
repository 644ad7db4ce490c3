"""How queues are divided among those who share them, without knowing what a queue is.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def neighbours(things: Sequence[T], index: int, count: int) -> list[T]:
    """A run for the one at ``index`` of ``count``; the first get one more where they do not come out even."""
    size, more = divmod(len(things), count)
    begin = index * size + min(index, more)
    return list(things[begin : begin + size + (index < more)])


def every_nth(things: Sequence[T], index: int, count: int) -> list[T]:
    """Dealt out one by one: every ``count``-th, from ``index`` on."""
    return list(things[index::count])
