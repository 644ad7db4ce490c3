"""Whether the record that an old unit leads to is in the result under another name, its own.

Then the unit says nothing of the queue it stands in: a piece of another queue's file was written over it. A record of
which a bit of its name has flipped is not meant. It does not stand between the messages around its slot.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantrymq.kernels.arrays import Int64s
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.tools.record_claims import claims_at
from gantrymq.tools.record_lookup import RecordLookup


@dataclass(frozen=True, slots=True)
class RecordsElsewhere:
    """Asked by :class:`gantrymq.tools.queue_account.QueueAccount`.

    ``stands(queue, queue offset, place)`` says whether the result has this record there, ``has(queue, queue offset)``
    whether it has any. ``old_place(topic, queue id, queue offset)`` is where the old unit leads.
    """

    lookup: RecordLookup
    stands: Callable[[QueueName, int, int], bool]
    has: Callable[[QueueName, int], bool]
    old_place: Callable[[str, int, int], int]

    def which(self, queue: QueueName, slots: Int64s, places: Int64s) -> NDArray[np.bool_]:
        """Which of these units of ``queue``, by slot and place, lead to a record that is elsewhere in the result."""
        claims = claims_at(self.lookup, places.tolist())
        found = np.zeros(len(slots), np.bool_)
        for row, (slot, place) in enumerate(zip(slots.tolist(), places.tolist(), strict=True)):
            claim = claims.get(place)
            if claim is not None and claim[:3] != (*queue, slot):
                found[row] = self._is_at_home(claim[:2], claim.queue_offset, place)
        return found

    def _is_at_home(self, queue: QueueName, slot: int, place: int) -> bool:
        if not self.stands(queue, slot, place):
            return False
        # Nothing stands in front of offset 0: a record that wrongly says it would begin its queue anew.
        is_between_others = slot > 0 and self.has(queue, slot + 1) and self.has(queue, slot - 1)
        return is_between_others or self.old_place(*queue, slot) == place
