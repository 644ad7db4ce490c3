"""Reports messages that should exist and are gone, as ``failOnDataLoss`` says."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gantrymq.errors import GantrymqError
from gantrymq.spark.plan.origin import Extents, Offsets, QueueExtent, Resets

_LOGGER = logging.getLogger(__name__)
_SHOWN = 5
_GO_ON = "retention was quicker, or the store was recreated; failOnDataLoss=false continues after it"
_READ_AGAIN = "onQueueReset=earliest reads such a queue from its first message, latest only new messages"


class DataLossError(GantrymqError):
    """Messages that were to be read are gone, and failOnDataLoss is on."""

    def __init__(self, losses: Iterable[str], hint: str = _GO_ON) -> None:
        descriptions = list(losses)
        more = f"; and {len(descriptions) - _SHOWN} more queues" if len(descriptions) > _SHOWN else ""
        super().__init__(f"{'; '.join(descriptions[:_SHOWN])}{more} ({hint})")


def within(offsets: Offsets, extents: Extents, *, fail: bool) -> Offsets:
    """Move ``offsets`` to where the queues have messages. Skipped messages are lost.

    A loss is logged, or raises DataLossError if ``fail`` is set. A queue that is gone without unread messages is no
    loss.
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
            ends = f"offset {offset} was expected, but the queue ends at {extent.max_offset}"
            losses.append(f"{key}: {ends}; {missing(extent.max_offset, offset)}")
            moved[key] = extent.max_offset
    report(losses, fail=fail)
    return moved


def report(losses: list[str], *, fail: bool, allowed_by: str = "failOnDataLoss=false") -> None:
    """Raise DataLossError if ``fail`` is set, or log each loss with the option that allows it."""
    if losses and fail:
        raise DataLossError(losses)
    for loss in losses:
        _LOGGER.warning("%s, continuing after: %s", allowed_by, loss)


def missing(low: int, high: int) -> str:
    """The text for lost messages with the offsets from ``low`` to before ``high``."""
    return f"the messages at offsets {low} to {high - 1} are missing"


def replaced(end: int) -> str:
    """The text for a queue whose messages before the offset ``end`` are not those that were read."""
    return (
        f"the queue was recreated, or its log was truncated and rewritten: the messages before offset {end} are not "
        "those that were read"
    )


def ends_before(offset: int, extent: QueueExtent) -> str:
    """The text for a queue that ends before ``offset``, up to which it was read."""
    return (
        f"offset {offset} was expected, but the queue ends at {extent.max_offset}: it was recreated, or its log was cut"
    )


def settle_resets(resets: Resets, extents: Extents, policy: str) -> Offsets:
    """The offsets from which queues that were reset are read, by onQueueReset (``policy``).

    Their old messages that were not read yet are lost. Raises DataLossError if the policy is ``fail``.
    """
    if resets and policy == "fail":
        raise DataLossError([f"{key}: {reason}" for key, reason in resets.items()], _READ_AGAIN)
    moved = {}
    for key, reason in resets.items():
        extent = extents.get(key) or QueueExtent(0, 0)
        moved[key] = extent.min_offset if policy == "earliest" else extent.max_offset
        _LOGGER.warning(
            "onQueueReset=%s: %s: %s; old messages that were not read are lost, reading continues at offset %d",
            *(policy, key, reason, moved[key]),
        )
    return moved
