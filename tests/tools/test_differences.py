"""The kinds of slots: what a unit says, against what the log has."""

from __future__ import annotations

import numpy as np
import pytest

from gantrymq.format.queue_entry import PRE_BLANK, QueueEntry, encode_entry
from gantrymq.format.queue_units import Units
from gantrymq.store.queue.owner import Slot
from gantrymq.store.queue.unit_source import UnitSource
from gantrymq.tools.audit.differences import (
    ANY_PLACE,
    NO_PLACE,
    ClaimKind,
    Difference,
    KnownLog,
    SlotKind,
    audit,
    is_evidence,
    judge_claim,
    leads_somewhere,
    matches_as_stretch,
    matching,
)

LOG = KnownLog(1_000, 9_000, lambda places: (places >= 4_000) & (places < 5_000), limit=20_000)
CASES = [
    # unit, place of the log's message, kind
    (QueueEntry(2_000, 100, 0), 2_000, SlotKind.SAME),
    (QueueEntry(2_000, 100, 0), ANY_PLACE, SlotKind.SAME),
    (QueueEntry(2_000, 100, 0), 2_100, SlotKind.MOVED),
    (PRE_BLANK, 2_000, SlotKind.SKIPPED),
    (QueueEntry(0, 0, 0), 2_000, SlotKind.MISSING),
    (QueueEntry(-5, 100, 0), 2_000, SlotKind.MISSING),
    (PRE_BLANK, NO_PLACE, SlotKind.FILLED),
    (QueueEntry(900, 100, 0), NO_PLACE, SlotKind.EXPIRED),
    (QueueEntry(9_000, 100, 0), NO_PLACE, SlotKind.AHEAD),
    (QueueEntry(4_500, 100, 0), NO_PLACE, SlotKind.UNREADABLE),
    (QueueEntry(5_000, 100, 0), NO_PLACE, SlotKind.EXTRA),
    (QueueEntry(20_000, 100, 0), NO_PLACE, SlotKind.UNREAD),
    (QueueEntry(0, 0, 0), NO_PLACE, SlotKind.UNWRITTEN),
    (QueueEntry(2_000, -1, 0), NO_PLACE, SlotKind.IMPOSSIBLE),
    (QueueEntry(2_000, 5, 0), NO_PLACE, SlotKind.IMPOSSIBLE),
]


def units_of(*entries: QueueEntry) -> Units:
    return Units(b"".join(map(encode_entry, entries)))


def test_slots_of_each_kind_are_told_apart() -> None:
    units = units_of(*(unit for unit, _, _ in CASES))
    slots = audit(7, units, is_evidence(units), LOG, np.array([place for _, place, _ in CASES], np.int64))
    assert [SlotKind(kind).name for kind in slots.kinds] == [kind.name for _, _, kind in CASES]
    assert {kind for _, _, kind in CASES} == set(SlotKind)
    assert list(slots.differences(slots.is_of(SlotKind.SAME, SlotKind.UNWRITTEN))) == [
        Difference(7, 9),
        Difference(19, 20),
    ]


def test_unit_of_impossible_size_is_no_evidence_of_record() -> None:
    units = units_of(QueueEntry(2_000, 5, 0), QueueEntry(3, PRE_BLANK.size_bytes, 0), PRE_BLANK, QueueEntry(0, 0, 0))
    assert leads_somewhere(units).tolist() == [True, True, False, False]
    assert is_evidence(units).tolist() == [False] * 4


@pytest.mark.parametrize(
    ("claimed", "kind"),
    [
        (("orders", 1, 5), ClaimKind.OWN),
        (("orders", 2, 5), ClaimKind.OTHER_QUEUE),
        (("orders", 1, 6), ClaimKind.OUT_OF_ORDER),
        (("orders", 1, 0), ClaimKind.RESTART),
        (None, ClaimKind.NOWHERE),
    ],
)
def test_record_at_phy_offset_of_unit_is_judged_by_slot_it_names(claimed: Slot | None, kind: ClaimKind) -> None:
    assert judge_claim(("orders", 1, 5), claimed, is_later=True) is kind


class Queue(UnitSource):
    """The units of a queue from slot 10 on."""

    first, end = 10, 13

    def units(self, begin: int, end: int) -> Units:
        known = [QueueEntry(1_000 * slot, 100, 0) for slot in range(self.first, self.end)]
        return units_of(*(known[slot - 10] if 10 <= slot < 13 else QueueEntry(0, 0, 0) for slot in range(begin, end)))


@pytest.mark.parametrize(
    ("slots", "places", "same"),
    [
        ([10, 11, 12], [10_000, 11_000, 12_000], [True, True, True]),
        ([10, 11, 12], [10_000, 11_100, 12_000], [True, False, True]),
        ([12, 10], [12_000, 10_000], [True, True]),
        ([9, 10, 13, 1 << 40], [9_000, 10_000, 13_000, 1], [False, True, False, False]),
    ],
)
def test_records_match_if_their_slots_have_their_units(slots: list[int], places: list[int], same: list[bool]) -> None:
    expected = units_of(*(QueueEntry(place, 100, 0) for place in places)).raw
    assert matching(Queue(), np.array(slots, np.int64), expected).tolist() == same
    assert matches_as_stretch(Queue(), np.array(slots, np.int64), expected) is (slots == [10, 11, 12] and all(same))
