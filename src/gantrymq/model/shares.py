"""Divides a sequence among the members of a group.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def contiguous(things: Sequence[T], index: int, count: int) -> list[T]:
    """The contiguous share of member ``index`` of ``count``; the first members get one item more if needed."""
    size, more = divmod(len(things), count)
    begin = index * size + min(index, more)
    return list(things[begin : begin + size + (index < more)])


def round_robin(things: Sequence[T], index: int, count: int) -> list[T]:
    """The share of member ``index`` of ``count``: every ``count``-th item, from ``index`` on."""
    return list(things[index::count])
