"""Which half messages are decided, or about to be.

While a final message is on its way into the log, its half message is neither open nor decided: a check stops in front
of it. A half message that was put back has a new queue offset, which the producer learns with the check alone. A
decision that names an older one decides the newest record, too, and one that comes when the newest is decided is
refused. (RocketMQ checks such a message once more and delivers a commit twice, and delivers after a rollback.)

Thread rule: the event loop's thread.
"""

from __future__ import annotations

from typing import NamedTuple

from gantrymq.broker.transactions.op_batches import OpBatches

MOST_FRESH = 20_000  # half messages that may be decided before they are in their queue
MOST_PUT_BACK = 100_000  # records whose newer one is known; the oldest are forgotten first

HalfOffset = tuple[int, int]  # queue id, queue offset


class Decision(NamedTuple):
    """A decision on its way: the half message that it names, and the newest record of it."""

    named: HalfOffset
    newest: HalfOffset


class Decisions:
    """Half messages from the begin of their decision to its op message."""

    def __init__(self, ops: OpBatches) -> None:
        self._ops = ops
        self._fresh: dict[int, None] = {}  # physical offsets, in the order in which they were stored
        self._under_way: dict[HalfOffset, int] = {}  # how many decisions: a producer may send one twice
        # By a record that was put back, or was put back as: its newer one, itself if it is the newest, None if decided.
        self._newer: dict[HalfOffset, HalfOffset | None] = {}

    @property
    def has_room(self) -> bool:
        """Whether another one may be made."""
        return self._ops.has_room

    def stored(self, phy_offset: int) -> None:
        """A half message was just stored: its end need not wait until its queue points to it."""
        while len(self._fresh) >= MOST_FRESH:
            del self._fresh[next(iter(self._fresh))]
        self._fresh[phy_offset] = None

    def is_fresh(self, phy_offset: int) -> bool:
        """Whether a half message was just stored at an offset of the log."""
        return phy_offset in self._fresh

    def begin(self, queue_id: int, offset: int) -> Decision | None:
        """A half message is about to be decided: no check may take it for an open one. None if it is decided."""
        named = (queue_id, offset)
        newest = self._newest(named)
        if newest is None:
            return None
        decision = Decision(named, newest)
        for one in set(decision):
            self._under_way[one] = self._under_way.get(one, 0) + 1
        return decision

    def cancel(self, decision: Decision) -> None:
        """It could not be decided: it is open again."""
        for one in set(decision):
            self._under_way[one] -= 1
            if not self._under_way[one]:
                del self._under_way[one]

    def finish(self, decision: Decision) -> None:
        """It is decided, and what had to be in the log for that is there."""
        self.cancel(decision)
        newest = self._newest(decision.named)
        for one in {*decision, newest or decision.newest}:
            self._ops.add(*one)
        if newest in self._newer:
            self._newer[newest] = None

    def is_under_way(self, queue_id: int, offset: int) -> bool:
        """Whether a half message is neither open nor decided."""
        return (queue_id, offset) in self._under_way

    def put_back(self, queue_id: int, offset: int, newer: int) -> bool:
        """The half message at ``offset`` has a newer record, so the old one is decided.

        False where its producer has decided it meanwhile, or is about to: then the newer record need not be checked.
        """
        was_decided = self._ops.is_decided(queue_id, offset)
        self._ops.add(queue_id, offset)
        if was_decided:
            self._ops.add(queue_id, newer)
            return False
        while len(self._newer) >= MOST_PUT_BACK:
            del self._newer[next(iter(self._newer))]
        self._newer[queue_id, offset] = self._newer[queue_id, newer] = (queue_id, newer)
        return not self.is_under_way(queue_id, offset)

    def _newest(self, one: HalfOffset) -> HalfOffset | None:
        while (newer := self._newer.get(one, one)) not in (one, None):
            one = newer
        return newer
