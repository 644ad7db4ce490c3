"""The decisions on half messages that are in progress, and the newest record of each half message.

While a final message is on its way into the log, its half message is neither open nor decided: a check stops before it.
A half message that was put back has a new queue offset, which the producer learns only from the check. A decision with
an older offset decides the newest record as well. A second decision, after the newest record is decided, is refused.
(RocketMQ checks such a message once more: it delivers a commit twice, and delivers after a rollback.)

Thread rule: the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from gantrymq.broker.transactions.op_batches import OpBatches
from gantrymq.broker.transactions.open_halves import OpenHalf

MAX_FRESH = 20_000  # stored half messages to remember until their queue has them
MAX_KEPT_BYTES = 16 << 20
MAX_PUT_BACK = 100_000  # half messages that were put back to remember; the oldest are forgotten first

HalfOffset = tuple[int, int]  # queue id, queue offset


class Decision(NamedTuple):
    """A decision in progress: the half message that it names, and the newest record of that message."""

    named: HalfOffset
    newest: HalfOffset

    @property
    def records(self) -> Collection[HalfOffset]:
        """Both records, or the one that it is mostly."""
        return (self.named,) if self.named == self.newest else self


class Decisions:
    """The half messages whose decision has begun and has no op message yet. ``ops`` has those that wait for one."""

    def __init__(self, ops: OpBatches) -> None:
        self.ops = ops
        # By physical offset, the oldest first. To find the first key of a plain dictionary, Python passes all that were
        # removed before it.
        self._fresh: OrderedDict[int, None] = OrderedDict()
        self._open_halves: OrderedDict[int, tuple[OpenHalf, int]] = OrderedDict()  # with the memory that each takes
        self._kept_bytes = 0
        self._under_way: dict[HalfOffset, int] = {}  # the number of decisions: a producer may send one twice
        # For each old or new record of a message that was put back: the newest record, or None if it is decided.
        self._newer: dict[HalfOffset, HalfOffset | None] = {}

    @property
    def has_room(self) -> bool:
        """Whether another decision may begin."""
        return self.ops.has_room

    def stored(self, phy_offset: int) -> None:
        """Note that a half message was just stored: its decision need not wait for the dispatch to its queue."""
        while len(self._fresh) >= MAX_FRESH:
            self._fresh.popitem(last=False)
        self._fresh[phy_offset] = None

    def keep(self, phy_offset: int, half: OpenHalf, size_bytes: int) -> None:
        """Keep what a decision needs of a half message that was just stored, in up to MAX_KEPT_BYTES of memory."""
        self._open_halves[phy_offset] = half, size_bytes
        self._kept_bytes += size_bytes
        while self._kept_bytes > MAX_KEPT_BYTES:
            self.take_kept(next(iter(self._open_halves)))

    def take_kept(self, phy_offset: int) -> OpenHalf | None:
        """Remove and return what was kept of a half message; None if it has to be read from the log."""
        half, size_bytes = self._open_halves.pop(phy_offset, (None, 0))
        self._kept_bytes -= size_bytes
        return half

    def is_fresh(self, phy_offset: int) -> bool:
        """Whether a half message was just stored at this offset of the log."""
        return phy_offset in self._fresh

    def begin(self, queue_id: int, offset: int) -> Decision | None:
        """Begin a decision, so that no check takes the half message for an open one. None if it is already decided."""
        named = (queue_id, offset)
        newest = self._newest(named)
        if newest is None:
            return None
        decision = Decision(named, newest)
        for half in decision.records:
            self._under_way[half] = self._under_way.get(half, 0) + 1
        return decision

    def cancel(self, decision: Decision) -> None:
        """End a decision that failed. The half message is open again."""
        for half in decision.records:
            self._under_way[half] -= 1
            if not self._under_way[half]:
                del self._under_way[half]

    def finish(self, decision: Decision) -> None:
        """End a decision that succeeded, with all its records in the log."""
        self.cancel(decision)
        newest = self._newest(decision.named)
        if newest == decision.named == decision.newest:
            self.ops.add(*decision.named)
        else:
            for half in {*decision, newest or decision.newest}:
                self.ops.add(*half)
        if newest in self._newer:
            self._newer[newest] = None

    def is_under_way(self, queue_id: int, offset: int) -> bool:
        """Whether a decision on the half message is in progress."""
        return (queue_id, offset) in self._under_way

    def put_back(self, queue_id: int, offset: int, newer: int, *, is_named: bool = True) -> bool:
        """Note that the half message at ``offset`` has a newer record, so that the old one counts as decided.

        ``is_named`` False leaves out the op message about the old one. Returns False if its producer has decided it
        meanwhile, or is about to: then the newer record needs no check.
        """
        was_decided = self.ops.is_decided(queue_id, offset)
        if is_named:
            self.ops.add(queue_id, offset)
        if was_decided:
            self.ops.add(queue_id, newer)
            return False
        while len(self._newer) >= MAX_PUT_BACK:
            del self._newer[next(iter(self._newer))]
        self._newer[queue_id, offset] = self._newer[queue_id, newer] = (queue_id, newer)
        return not self.is_under_way(queue_id, offset)

    def _newest(self, half: HalfOffset) -> HalfOffset | None:
        while (newer := self._newer.get(half, half)) not in (half, None):
            half = newer
        return newer
