"""Finds records that would enter a wrong queue because their topic, queue id or an offset was damaged.

No CRC covers these fields. Two things show where a *misfiled* record belongs: the unit of the old queue that points to
it, and the queues that are made from the log. Its true queue lacks exactly this offset, between the places of the
messages around it, while the queue that the record names was at another offset. A misfiled record of unknown origin is
superseded: it gets no unit, because more records support the messages that it would displace.

A *stray* is a whole record that carries another physical offset than its own and is no copy. If only one of its numbers
is wrong, a bit has flipped, and its place and its neighbours decide. If two numbers agree, the record was written over
another one and is not the message of the place where it lies.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE
from gantrymq.store.queue.owner import is_one_damage
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.tools.loss.loss import LostRange
from gantrymq.tools.loss.queue_account import LostPlaces, Suspect
from gantrymq.tools.read.queue_files import QueueFiles, as_units
from gantrymq.tools.read.record_lookup import RecordClaim, RecordLookup, claims_at

_MAX_HOLES = 100_000
_NEIGHBOURS = 64
_END_OF_LOG = 1 << 62


@dataclass(frozen=True, slots=True)
class Misfiled:
    """A record that belongs at ``queue_offset`` of its queue, but names ``stated_queue`` and ``stated_offset``."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    stated_queue: QueueName
    stated_offset: int

    @property
    def slot(self) -> tuple[str, int, int]:
        """The topic, queue id and queue offset at which the record belongs."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def text(self) -> str:
        """What the record wrongly names, as text."""
        return f"{self.stated_queue[0]}/{self.stated_queue[1]}, offset {self.stated_offset}"


def by_old_units(
    suspects: Sequence[Suspect], lookup: RecordLookup, old_place: Callable[[str, int, int], int]
) -> list[Misfiled]:
    """The records that an old unit points to and that differ from it in exactly one field.

    ``old_place`` returns the physical offset in an old unit. A record is skipped if the old unit of the slot that it
    names points to it too: then the other unit is wrong.
    """
    claims = claims_at(lookup, (one.phy_offset for one in suspects))
    found = []
    for one in suspects:
        claim = claims.get(one.phy_offset)
        if claim is None or claim.size_bytes != one.size_bytes:
            continue
        differs = sum(ours != its for ours, its in zip(one[:3], claim[:3], strict=True))
        if differs == 1 and old_place(*claim[:3]) != one.phy_offset:
            stated_queue = claim.topic, claim.queue_id
            found.append(Misfiled(*one, stated_queue, claim.queue_offset))
    return found


class Candidate(NamedTuple):
    """A record without a plausible place in the queue that it names.

    ``is_explained``: the log has lost records before it, which may be the ones that its queue lacks.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    is_explained: bool


def candidates_in(
    queues: Mapping[QueueName, QueueFiles], is_passed: Callable[[QueueName, int, int], bool], lost: LostPlaces
) -> list[Candidate]:
    """The units of new queues that follow filled slots and are not continued by a next unit.

    ``is_passed(queue, begin, end)`` says whether a skipped record has one of these slots.
    """
    found = []
    for name, files in queues.items():
        units = as_units(files.units(files.first, files.end))
        if not len(units):
            continue
        real, places = units["size"] != BLANK_UNIT_SIZE, units["phy_offset"].astype(np.int64)
        before, after = np.concatenate(([files.first == 0], real[:-1])), np.concatenate((real[1:], [False]))
        for row in np.flatnonzero(real & ~before).tolist():
            earlier = np.flatnonzero(real[:row])
            low = int(earlier[-1]) if len(earlier) else -1
            if after[row] and not is_passed(name, files.first + low + 1, files.first + row):
                continue
            place, size, tags_code = units[row].item()
            is_explained = lost.has_between(int(places[low]) if low >= 0 else -1, place)
            found.append(Candidate(*name, files.first + row, place, size, tags_code, is_explained))
    return found


def by_holes(candidates: Sequence[Candidate], queues: Mapping[QueueName, QueueFiles]) -> list[Misfiled]:
    """The candidates that fit exactly one hole of another queue.

    The names of both queues differ in one bit of the queue id or in one character of the topic.
    """
    wanted = {one.queue_offset for one in candidates}
    holes: dict[int, list[tuple[QueueName, int, int]]] = {}
    for name, files in queues.items():
        for slot, low, high in _holes(files):
            if slot in wanted:
                holes.setdefault(slot, []).append((name, low, high))
    found = []
    for one in candidates:
        stated_queue = one.topic, one.queue_id
        fits = [
            name
            for name, low, high in holes.get(one.queue_offset, ())
            if low < one.phy_offset < high
            and is_one_damage(stated_queue, name)
            and not (one.is_explained and high == _END_OF_LOG)  # that a queue ends there proves little
        ]
        if len(fits) == 1:
            place = one.phy_offset, one.size_bytes, one.tags_code
            found.append(Misfiled(*fits[0], one.queue_offset, *place, stated_queue, one.queue_offset))
    return found


def _holes(files: QueueFiles) -> list[tuple[int, int, int]]:
    """(slot, place before, place after) of each hole of a queue.

    Holes are filled slots between two units, and the slot after the last unit.
    """
    units = as_units(files.units(files.first, files.end))
    real, places = units["size"] != BLANK_UNIT_SIZE, units["phy_offset"].astype(np.int64)
    if not len(units):
        return []
    before, after = np.concatenate(([files.first == 0], real[:-1])), np.concatenate((real[1:], [False]))
    single = np.flatnonzero(~real & before & after)[:_MAX_HOLES].tolist()
    holes = [(files.first + row, int(places[row - 1]) if row else -1, int(places[row + 1])) for row in single]
    return [*holes, (files.end, int(places[-1]) if real[-1] else _END_OF_LOG, _END_OF_LOG)]


def lies_at(files: QueueFiles, queue_offset: int, place: int) -> bool:
    """Whether a record at ``place`` at this queue offset would lie between the places of its neighbours."""
    begin = max(queue_offset - _NEIGHBOURS, files.first)
    end = min(queue_offset + _NEIGHBOURS + 1, files.end)
    if not begin <= queue_offset <= end:
        return False
    units = as_units(files.units(begin, end))
    places = np.where(units["size"] != BLANK_UNIT_SIZE, units["phy_offset"].astype(np.int64), -1)
    before, after = places[: queue_offset - begin], places[queue_offset - begin + 1 :]
    before, after = before[before >= 0], after[after >= 0]
    is_in_turn = (not len(before) or before[-1] < place) and (not len(after) or place < after[0])
    return bool(is_in_turn and (len(before) or len(after)))


class Superseded(NamedTuple):
    """A record that gets no unit, with the reason."""

    phy_offset: int
    size_bytes: int
    reason: str


class Stray(NamedTuple):
    """A record, with the fields that it carries, whose physical offset field ``stated_offset`` is not its own."""

    claim: RecordClaim
    stated_offset: int

    @property
    def queue(self) -> QueueName:
        """The queue that the record names."""
        return self.claim.topic, self.claim.queue_id

    def superseded(self, reason: str) -> Superseded:
        """The record as one that gets no unit."""
        text = f"its physical offset was {self.stated_offset}, {reason}"
        return Superseded(self.claim.phy_offset, self.claim.size_bytes, text)


def strays_among(misplaced: Iterable[LostRange], lookup: RecordLookup) -> dict[int, Stray]:
    """The ``misplaced`` ranges that are a single record, by physical offset."""
    stated = {one.start: one.stated_offset for one in misplaced if one.stated_offset >= 0}
    return {place: Stray(claim, stated[place]) for place, claim in claims_at(lookup, stated).items()}


def overwriting_strays(
    strays: Mapping[int, Stray],
    renumbered: Iterable[tuple[str, int, Renumbered]],
    queues: Mapping[QueueName, QueueFiles],
    old_place: Callable[[str, int, int], int],
) -> list[Superseded]:
    """Strays whose own queue offset does not fit where they lie, but fits the physical offset that they carry.

    ``old_place`` returns the physical offset in a unit of the old queue.
    """
    found = []
    for topic, queue_id, one in renumbered:
        stray = strays.get(one.phy_offset)
        if stray is None or stray.claim.queue_offset < 0:
            continue
        offset = stray.claim.queue_offset
        is_known = old_place(topic, queue_id, offset) == stray.stated_offset
        if is_known or lies_at(queues[topic, queue_id], offset, stray.stated_offset):
            found.append(stray.superseded(f"as offset {offset} of {topic}/{queue_id}"))
    return found


def conflicting_strays(strays: Iterable[Stray], passed_over: Sequence[tuple[str, int, PassedOver]]) -> list[Superseded]:
    """Strays that keep other records out of their queue, or are kept out.

    One of the records is wrong, and the others lie in the right place.
    """
    found = []
    for stray in strays:
        place, offset = stray.claim.phy_offset, stray.claim.queue_offset
        others = [one for topic, queue_id, one in passed_over if (topic, queue_id) == stray.queue]
        if any(one.phy_offset == place or (one.queue_offset < offset and one.phy_offset > place) for one in others):
            found.append(stray.superseded(f"and is in the way of others of {stray.queue[0]}/{stray.queue[1]}"))
    return found
