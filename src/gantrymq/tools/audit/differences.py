"""Compares the slots of a queue with the log: the one comparison of verify, rebuild, salvage, export and Spark.

The obvious way is to make the queue again from the log, and to call every unit that differs damaged. It fails, because
either side may be the damaged one, and neither says so:

- A unit has no checksum. A flipped bit makes it point to another record, or to the middle of one.
- The topic, queue id and queue offset in a record have no checksum either. A flipped bit there makes the log name
  another slot than the one that the message was given.
- The log may have lost the record. Then only the unit shows that there was a message, and a queue that is made again
  from the log would lose this last trace of it.
- Retention deletes log files before the units that point into them. Such units are right, and their messages are no
  loss.
- A power cut may leave units without records, and records without units.

So a slot is not right or wrong. It has one of a few kinds, by what its unit says and what the log has, and the caller
knows what each kind means for it:

=============  ===================  =======================  ==========================================================
kind           unit                 log                      meaning
=============  ===================  =======================  ==========================================================
SAME           points to a place    a message there          Nothing is wrong.
SKIPPED        is a filler          a message of the slot    The message was found after the queue was filled.
MOVED          points to a place    a message elsewhere      The log decides. The unit, or its whole file, is wrong.
MISSING        unwritten or         a message of the slot    The queue is behind the log, or its file is damaged.
               impossible
-------------  -------------------  -----------------------  ----------------------------------------------------------
FILLED         is a filler          none                     No loss: the message was lost when the filler was written.
EXPIRED        points before the    none                     No loss, unless the message is too young for retention.
               begin of the log
AHEAD          points after its     none                     A lost end of the log, or a queue that a kill left ahead.
               end
UNREADABLE     points into a range  none                     Lost: the unit names the message, and its place.
               without a record
EXTRA          points into the      none                     Lost, or the unit or the record there is wrong. The record
               rest of the log                               there decides (:class:`ClaimKind`).
UNREAD         points to a part     none                     Not judged: an export or a Spark task reads other parts.
               that was not read
UNWRITTEN      20 zeros             none                     Lost if the slots around it have messages.
IMPOSSIBLE     no possible unit     none                     As UNWRITTEN: it is no evidence.
=============  ===================  =======================  ==========================================================

For a slot of kind EXTRA the record at the unit's place is read, and what it says of itself decides:

=============  ================================  =======================================================================
claim          the record there                  meaning
=============  ================================  =======================================================================
NOWHERE        no record begins there            Lost. The unit itself may be damaged, too.
OTHER_QUEUE    names another queue               No evidence for this queue if the record is in order there. Otherwise
                                                 its topic or queue id is damaged, and it is quarantined.
OUT_OF_ORDER   names another slot of the queue   As OTHER_QUEUE, for its queue offset.
RESTART        names slot 0, later in the log    The topic may have been deleted and recreated there.
OWN            names this slot                   The unit is right. Another record has the slot in the result.
=============  ================================  =======================================================================

Which units count as pointing to a place (``points``) depends on the question. For an account of loss a unit is evidence
only if a record could have its size and place (:func:`is_evidence`): a false witness would invent a loss. Verify looks
at every unit that is not zeros or a filler, because each of them leads a consumer somewhere.

Both sides are read once, in blocks, and a record is looked up only for a slot that differs. Rebuild and salvage have a
new queue as the log's side, export and Spark the runs of records that they read. Verify reads the log in its own order
and keeps neither: it compares the records of each batch with their slots (:func:`matching`), and judges at the end the
slots that no record has matched.

Thread rule: plain functions and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.queue_units import Bools, Units
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.queue.owner import Slot
from gantrymq.store.queue.unit_source import UnitSource
from gantrymq.tools.read.log_extent import FURTHEST

_LARGEST_RECORD_SIZE = 128 << 20
_NEAR_SLOTS = 4096
NO_PLACE = -1
ANY_PLACE = -2


class SlotKind(IntEnum):
    """The kinds of slots, as in the table above."""

    SAME = 0
    SKIPPED = 1
    MOVED = 2
    MISSING = 3
    FILLED = 4
    EXPIRED = 5
    AHEAD = 6
    UNREADABLE = 7
    EXTRA = 8
    UNREAD = 9
    UNWRITTEN = 10
    IMPOSSIBLE = 11


class ClaimKind(Enum):
    """What the record at the place of a unit says of itself, as in the table above."""

    OWN = "own"
    OTHER_QUEUE = "other queue"
    OUT_OF_ORDER = "out of order"
    RESTART = "restart"
    NOWHERE = "nowhere"


class Difference(NamedTuple):
    """The slots [begin, end) of a queue, all of one kind or of several that mean the same to the caller."""

    begin: int
    end: int


def nothing_is_lost(phy_offsets: Int64s) -> Bools:
    """A mask for a log without lost ranges."""
    return np.zeros(len(phy_offsets), np.bool_)


class KnownLog(NamedTuple):
    """The part [begin, end) of the log that a comparison knows, of which nothing at or after ``limit`` was read.

    ``is_lost`` says which physical offsets lie in a range without a whole record.
    """

    begin: int
    end: int
    is_lost: Callable[[Int64s], Bools] = nothing_is_lost
    limit: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class AuditedSlots:
    """The slots from ``first`` on with their units and kinds."""

    first: int
    units: Units
    kinds: NDArray[np.int8]

    def is_of(self, *kinds: SlotKind) -> Bools:
        """Which slots are of one of these kinds."""
        result: Bools = np.isin(self.kinds, kinds)
        return result

    def differences(self, mask: Bools) -> Iterator[Difference]:
        """The stretches of slots that ``mask`` selects."""
        edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)) + self.first
        yield from map(Difference, edges[::2].tolist(), edges[1::2].tolist())


def is_evidence(units: Units) -> Bools:
    """Which units are evidence of a message: a record could have their size and place."""
    is_size = (units.sizes >= MIN_RECORD_SIZE) & (units.sizes <= _LARGEST_RECORD_SIZE)
    result: Bools = units.is_message & is_size & (units.phy_offsets < FURTHEST)
    # Physical offset 0 belongs to a queue's first unit only. Elsewhere it is an unwritten slot with a flipped bit.
    rows = np.flatnonzero(result)[1:]
    result[rows] = units.phy_offsets[rows] > 0
    return result


def leads_somewhere(units: Units) -> Bools:
    """Which units lead a consumer to some place: all but zeros and exact fillers."""
    is_exact_filler = units.is_filler & (units.phy_offsets == 0) & (units.tags_codes == 0)
    result: Bools = (units.is_message | units.is_filler) & (units.phy_offsets >= 0) & ~is_exact_filler
    return result


def audit(first: int, units: Units, points: Bools, log: KnownLog, log_places: Int64s | None = None) -> AuditedSlots:
    """Judge the slots from ``first`` on.

    ``points`` says which units count as pointing to a place. ``log_places`` has the physical offset of the log's
    message of each slot (``ANY_PLACE``: somewhere, ``NO_PLACE``: none); without it the log has none of them.
    """
    phy_offsets = units.phy_offsets
    kinds = np.full(len(units), SlotKind.IMPOSSIBLE, np.int8)
    kinds[units.is_unwritten] = SlotKind.UNWRITTEN
    kinds[units.is_filler] = SlotKind.FILLED
    kinds[points] = SlotKind.AHEAD
    rows = np.flatnonzero(points & (phy_offsets >= log.begin) & (phy_offsets < log.end))
    kinds[rows] = np.where(log.is_lost(phy_offsets[rows]), SlotKind.UNREADABLE, SlotKind.EXTRA)
    kinds[points & (phy_offsets < log.begin)] = SlotKind.EXPIRED
    kinds[points & (phy_offsets >= log.limit)] = SlotKind.UNREAD
    if log_places is not None:
        has = log_places != NO_PLACE
        kinds[has] = np.where(kinds[has] == SlotKind.FILLED, SlotKind.SKIPPED, SlotKind.MISSING)
        is_same = (log_places == phy_offsets) | (log_places == ANY_PLACE)
        kinds[has & points] = np.where(is_same[has & points], SlotKind.SAME, SlotKind.MOVED)
    return AuditedSlots(first, units, kinds)


def judge_claim(slot: Slot, claimed: Slot | None, *, is_later: bool = False) -> ClaimKind:
    """Judge a slot of kind EXTRA by the slot that the record at its unit's place names; None without a record.

    ``is_later``: the record lies after the queue's first one, so that its topic may have been recreated there.
    """
    if claimed is None:
        return ClaimKind.NOWHERE
    if claimed[:2] != slot[:2]:
        return ClaimKind.OTHER_QUEUE
    if claimed == slot:
        return ClaimKind.OWN
    return ClaimKind.RESTART if claimed[2] == 0 and is_later else ClaimKind.OUT_OF_ORDER


def matches_as_stretch(queue: UnitSource, slots: Int64s, expected: NDArray[np.uint8]) -> bool:
    """Whether the records follow each other in the queue, as nearly all do, and have their units: the quick way."""
    first, last = int(slots[0]), int(slots[-1]) + 1
    if last - first != len(slots) or first < queue.first or last > queue.end or bool((np.diff(slots) != 1).any()):
        return False
    return np.array_equal(queue.units(first, last).raw, expected)


def matching(queue: UnitSource, slots: Int64s, expected: NDArray[np.uint8]) -> Bools:
    """Which records of the log have their unit: those whose slot in ``queue`` has the ``expected`` 20 bytes."""
    result, expected = np.zeros(len(slots), np.bool_), expected.reshape(-1, UNIT_SIZE)
    rows = np.flatnonzero((slots >= queue.first) & (slots < queue.end))
    rows = rows[np.argsort(slots[rows], kind="stable")]
    for some in np.split(rows, np.flatnonzero(np.diff(slots[rows]) > _NEAR_SLOTS) + 1) if len(rows) else ():
        low, high = int(slots[some[0]]), int(slots[some[-1]]) + 1
        actual = queue.units(low, high).raw.reshape(-1, UNIT_SIZE)
        result[some] = (actual[slots[some] - low] == expected[some]).all(axis=1)
    return result
