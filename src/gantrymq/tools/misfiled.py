"""Records whose topic, queue id or queue offset was damaged, so that they would enter a queue they are not of.

No CRC covers these fields. Two things tell where such a record belongs: the unit of the old queue that leads to it, and
the queues that are made of the log. There the queue of the record lacks exactly this offset, between the places of the
messages around it, while the queue that the record names was at another offset.

A record that is in the way in a queue, and of which nothing tells where it belongs, is superseded: it gets no unit, as
the messages that it would push out have more records on their side.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE
from gantrymq.store.queue.owner import is_one_damage
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.tools.queue_account import LostPlaces, Suspect
from gantrymq.tools.queue_files import QueueFiles, as_units
from gantrymq.tools.record_claims import claims_at
from gantrymq.tools.record_lookup import RecordLookup

_MOST_HOLES = 100_000
_NEIGHBOURS = 64
_END_OF_LOG = 1 << 62


@dataclass(frozen=True, slots=True)
class Misfiled:
    """A record that belongs at ``queue_offset`` of its queue and says otherwise: ``said`` is its own word."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    said: QueueName
    said_offset: int

    @property
    def slot(self) -> tuple[str, int, int]:
        """Where the record belongs."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def text(self) -> str:
        """What the record says, for people."""
        return f"that it is of {self.said[0]}/{self.said[1]}, offset {self.said_offset}"


def by_old_units(
    suspects: Sequence[Suspect], lookup: RecordLookup, old_place: Callable[[str, int, int], int]
) -> list[Misfiled]:
    """The records that an old unit leads to and that differ from it in one thing. ``old_place`` is where a unit leads.

    One that has the old unit that it names, too, is not meant: it is the other unit that is wrong.
    """
    claims = claims_at(lookup, (one.phy_offset for one in suspects))
    found = []
    for one in suspects:
        claim = claims.get(one.phy_offset)
        if claim is None or claim.size_bytes != one.size_bytes:
            continue
        differs = sum(ours != its for ours, its in zip(one[:3], claim[:3], strict=True))
        if differs == 1 and old_place(*claim[:3]) != one.phy_offset:
            said = claim.topic, claim.queue_id
            found.append(Misfiled(*one, said, claim.queue_offset))
    return found


class Candidate(NamedTuple):
    """A record that has no good place in the queue that it names, by its own word.

    ``is_explained`` says that the log has lost records in front of it, which may be those that its queue lacks.
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
    """The units of new queues that stand behind filled slots, and in front of nothing that goes on from them.

    ``is_passed(queue, begin, end)`` says whether a record that was passed over has one of these slots.
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
    """The candidates that exactly one hole of another queue, whose name is nearly the same, fits."""
    wanted = {one.queue_offset for one in candidates}
    holes: dict[int, list[tuple[QueueName, int, int]]] = {}
    for name, files in queues.items():
        for slot, low, high in _holes(files):
            if slot in wanted:
                holes.setdefault(slot, []).append((name, low, high))
    found = []
    for one in candidates:
        said = one.topic, one.queue_id
        fits = [
            name
            for name, low, high in holes.get(one.queue_offset, ())
            if low < one.phy_offset < high
            and is_one_damage(said, name)
            and not (one.is_explained and high == _END_OF_LOG)  # a queue that just ends there proves little
        ]
        if len(fits) == 1:
            place = one.phy_offset, one.size_bytes, one.tags_code
            found.append(Misfiled(*fits[0], one.queue_offset, *place, said, one.queue_offset))
    return found


def _holes(files: QueueFiles) -> list[tuple[int, int, int]]:
    """(slot, place in front, place behind) of each filled slot between two units, and of the one behind the last."""
    units = as_units(files.units(files.first, files.end))
    real, places = units["size"] != BLANK_UNIT_SIZE, units["phy_offset"].astype(np.int64)
    if not len(units):
        return []
    before, after = np.concatenate(([files.first == 0], real[:-1])), np.concatenate((real[1:], [False]))
    single = np.flatnonzero(~real & before & after)[:_MOST_HOLES].tolist()
    holes = [(files.first + row, int(places[row - 1]) if row else -1, int(places[row + 1])) for row in single]
    return [*holes, (files.end, int(places[-1]) if real[-1] else _END_OF_LOG, _END_OF_LOG)]


def lies_at(files: QueueFiles, queue_offset: int, place: int) -> bool:
    """Whether a record at ``place`` would stand in its turn at a queue offset: between the places around it."""
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
