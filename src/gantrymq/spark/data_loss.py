"""What to do about messages that should be there and are not: ``failOnDataLoss``."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gantrymq.errors import GantrymqError
from gantrymq.spark.origin import Extents, Offsets

_LOGGER = logging.getLogger(__name__)
_SHOWN = 5


class DataLossError(GantrymqError):
    """Messages that were to be read are gone, and failOnDataLoss is on."""

    def __init__(self, losses: Iterable[str]) -> None:
        found = list(losses)
        more = f"; and {len(found) - _SHOWN} more queues" if len(found) > _SHOWN else ""
        hint = "retention was quicker, or the store was made anew; failOnDataLoss=false goes on behind it"
        super().__init__(f"{'; '.join(found[:_SHOWN])}{more} ({hint})")


def within(offsets: Offsets, extents: Extents, *, fail: bool) -> Offsets:
    """``offsets`` moved to where there are messages; what that leaves out is lost.

    Raises DataLossError where ``fail`` says so; else it is logged. A queue that is gone with nothing unread is no loss.
    """
    losses, moved = [], dict(offsets)
    for key, offset in offsets.items():
        extent = extents.get(key)
        if extent is None:
            continue
        if offset < extent.min_offset:
            losses.append(f"{key}: {missing(offset, extent.min_offset)}")
            moved[key] = extent.min_offset
        elif offset > extent.max_offset:
            ends = f"offset {offset} was read up to, but the queue ends at {extent.max_offset}"
            losses.append(f"{key}: {ends}; {missing(extent.max_offset, offset)}")
            moved[key] = extent.max_offset
    report(losses, fail=fail)
    return moved


def report(losses: list[str], *, fail: bool) -> None:
    """Raise DataLossError, or log what is lost."""
    if losses and fail:
        raise DataLossError(losses)
    for loss in losses:
        _LOGGER.warning("failOnDataLoss=false, going on behind: %s", loss)


def missing(low: int, high: int) -> str:
    """How a stretch of offsets that is lost is said."""
    return f"the messages at offsets {low} to {high - 1} are gone"


def replaced(end: int) -> str:
    """How it is said that up to an offset a queue has other messages than it had."""
    return f"it was made anew, or the log was cut: the messages in front of offset {end} are not those that were there"
