"""How delayed and timer messages get from their waiting place into their topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gantrymq.model.message import Message
from gantrymq.store.former_deliveries import FormerDeliveries
from gantrymq.store.log.appendable import Appendable
from gantrymq.store.meter import NO_METER, StoreMeter
from gantrymq.store.put_result import PutMessageResult


def _nothing() -> None:
    """Ask for no flush: the log is flushed at its own pace."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a service needs of the store to deliver messages.

    ``put(message)`` stores one in its real topic; failures are retried, refusals are not. ``append`` stores several
    without a wait. ``is_durable(offset)`` says whether the log is on the disk up to there. ``ask_for_flush()`` makes
    the log flush soon. ``meter`` measures deliveries. ``former`` has what a former master has delivered, in the log of
    a store that was a slave's.
    """

    put: Callable[[Message], PutMessageResult]
    append: Callable[[Sequence[Appendable]], list[PutMessageResult]]
    is_durable: Callable[[int], bool]
    ask_for_flush: Callable[[], None] = _nothing
    meter: StoreMeter = NO_METER
    former: FormerDeliveries | None = None
