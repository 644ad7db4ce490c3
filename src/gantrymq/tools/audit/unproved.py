"""Finds whole records whose queue nothing proves, because their topic, queue id or an offset was damaged.

No CRC covers these fields. The obvious repair is to try which flipped bit would make such a record fit, and to file it
there. It fails: queues of one topic are alike, so that a record often fits several of them, and a wrong guess is
delivered as another message. Such a record is quarantined instead, whole, and named with its likely home.

A unit of the old queue that points to a record proves the record's queue. Without one a record is believed, unless

1. an old unit of another slot points to it,
2. it stands alone in the queue that it names, and another queue lacks exactly this offset between the same neighbours,
   although the log has lost nothing there,
3. it carries the physical offset of another place, and its own queue offset belongs there, or it keeps other records
   out of their queue,
4. another record has its queue offset.

Thread rule: one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.queue_units import Bools, Units
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.owner import Slot, is_near
from gantrymq.store.queue.queue_listing import QueueName
from gantrymq.store.queue.queue_units import PassedOver, Renumbered
from gantrymq.tools.read.log_extent import LostPlaces, Suspect
from gantrymq.tools.read.queue_files import QueueFiles, ResultQueues, place_of_unit
from gantrymq.tools.read.record_lookup import RecordClaim, RecordLookup, claims_at
from gantrymq.tools.reports import LostRange, Quarantined

_MAX_HOLES = 100_000
_NEIGHBOURS = 64
_END_OF_LOG = 1 << 62

Renumberings = Iterable[tuple[str, int, Renumbered]]
Skipped = Sequence[tuple[str, int, PassedOver]]


class Stray(NamedTuple):
    """A record whose physical offset field ``stated_offset`` is not its own place."""

    claim: RecordClaim
    stated_offset: int


class Doubted(NamedTuple):
    """A record without a plausible place in the queue that it names.

    ``is_explained``: the log has lost records before it, which may be the ones that its queue lacks.
    """

    slot: Slot
    phy_offset: int
    size_bytes: int
    is_explained: bool


class UnprovedRecords:
    """Finds them in queues that were made from the log in ``files``. The queues of the store ``old`` are evidence."""

    def __init__(self, fs: FileSystem, old: StorePaths, config: MessageStoreConfig, files: Sequence[LogFile]) -> None:
        self._fs = fs
        self._old = old
        self._file_size = config.mapped_file_size_consume_queue
        self._files = files

    def find(
        self,
        roots: Sequence[StorePaths],
        suspects: Sequence[Suspect],
        skipped: Skipped,
        renumbered: Renumberings,
        lost: Sequence[LostRange],
        misplaced: Sequence[LostRange],
    ) -> list[Quarantined]:
        """The records to quarantine, by what the queues below ``roots`` look like.

        ``skipped`` records got no unit. ``lost`` and ``misplaced`` are ranges of the log; a misplaced record was
        written for another place, so what its own fields say is no evidence.
        """
        queues = ResultQueues(self._fs, roots, self._file_size).by_name
        elsewhere, losses = LostPlaces(misplaced), LostPlaces(lost)
        passed = [
            Doubted((topic, queue_id, record.queue_offset), record.phy_offset, record.size_bytes, is_explained=False)
            for topic, queue_id, record in skipped
        ]
        doubted = [record for record in (*_alone(queues, passed, losses), *passed) if self._is_unproved(record)]
        with closing(RecordLookup.of(self._fs, self._files)) as lookup:
            own_doubted = [record for record in doubted if elsewhere.reason(record.phy_offset) is None]
            own_suspects = [suspect for suspect in suspects if elsewhere.reason(suspect.phy_offset) is None]
            missed = _missed_elsewhere(own_doubted, passed, queues, losses)
            unproved = _by_place((*missed, *self._contradicted(lookup, own_suspects)))
            by_place = _strays_among(misplaced, lookup)
            strays = [stray for phy_offset, stray in by_place.items() if phy_offset not in unproved]
        unproved |= _by_place(self._overwriting(strays, renumbered, queues))
        # The records above may be all that was in the way of the others of their queues.
        settled = {
            name
            for record in unproved.values()
            for name in (record.slot[:2], record.likely[:2] if record.likely else None)
        }
        left = [record for record in passed if record.phy_offset not in unproved and record.slot[:2] not in settled]
        unproved |= _by_place(_conflicting_strays(strays, left)) or _by_place(_conflicting(left, doubted, queues))
        return list(unproved.values())

    def _old_place(self, slot: Slot) -> int:
        """The physical offset in a unit of the old queue; -1 if there is none."""
        return place_of_unit(self._fs, self._old.consume_queue, self._file_size, *slot)

    def _is_unproved(self, record: Doubted) -> bool:
        return self._old_place(record.slot) != record.phy_offset

    def _contradicted(self, lookup: RecordLookup, suspects: Sequence[Suspect]) -> Iterator[Quarantined]:
        """The records to which an old unit points that differ from it in exactly one field.

        A record is skipped if the old unit of the slot that it names points to it too: then the other unit is wrong.
        """
        claims = claims_at(lookup, (suspect.phy_offset for suspect in suspects))
        for suspect in suspects:
            claim = claims.get(suspect.phy_offset)
            if claim is None or claim.size_bytes != suspect.size_bytes:
                continue
            home = suspect.topic, suspect.queue_id, suspect.queue_offset
            differs = sum(ours != its for ours, its in zip(home, claim[:3], strict=True))
            if differs == 1 and self._old_place(claim[:3]) != suspect.phy_offset:
                reason = "an entry of another queue or offset points to it"
                yield Quarantined(*claim[:3], claim.phy_offset, claim.size_bytes, reason, home)

    def _overwriting(
        self, strays: Iterable[Stray], renumbered: Renumberings, queues: Mapping[QueueName, QueueFiles]
    ) -> Iterator[Quarantined]:
        """Strays whose own queue offset does not fit where they lie, but fits the physical offset that they carry."""
        repaired = {record.phy_offset for _, _, record in renumbered}
        for claim, stated in strays:
            if claim.phy_offset not in repaired or claim.queue_offset < 0:
                continue
            if self._old_place(claim[:3]) == stated or _lies_at(queues[claim[:2]], claim.queue_offset, stated):
                reason = f"its physical offset was {stated}, where this queue offset belongs"
                yield Quarantined(*claim[:3], claim.phy_offset, claim.size_bytes, reason)


def skipped_records(skipped: Skipped) -> list[Quarantined]:
    """The records that got no unit because another one has their queue offset."""
    return [_displaced((topic, queue_id, record.queue_offset), record) for topic, queue_id, record in skipped]


def _displaced(slot: Slot, record: PassedOver | Doubted) -> Quarantined:
    return Quarantined(*slot, record.phy_offset, record.size_bytes, "another record has this queue offset")


def _by_place(records: Iterable[Quarantined]) -> dict[int, Quarantined]:
    return {record.phy_offset: record for record in records}


class _Shape(NamedTuple):
    """The units of a queue, which of them are no fillers, and whether the slot before and after each has one.

    Slot 0 has one before it.
    """

    units: Units
    is_real: Bools
    has_before: Bools
    has_after: Bools

    @classmethod
    def of(cls, files: QueueFiles) -> _Shape:
        units = files.units(files.first, files.end)
        is_real = ~units.is_filler
        is_framed = np.concatenate(([files.first == 0], is_real, [False]))
        return cls(units, is_real, is_framed[:-2], is_framed[2:])


def _alone(queues: Mapping[QueueName, QueueFiles], passed: Sequence[Doubted], lost: LostPlaces) -> Iterator[Doubted]:
    """The records whose units follow filled slots and are not continued by a next unit.

    A continued one counts too if a record was skipped that has one of the filled slots.
    """
    skipped: dict[QueueName, list[int]] = {}
    for record in passed:
        skipped.setdefault(record.slot[:2], []).append(record.slot[2])
    for name, files in queues.items():
        shape = _Shape.of(files)
        phy_offsets = shape.units.phy_offsets
        for row in np.flatnonzero(shape.is_real & ~shape.has_before).tolist():
            earlier = np.flatnonzero(shape.is_real[:row])
            low = int(earlier[-1]) if len(earlier) else -1
            slots = range(files.first + low + 1, files.first + row)
            if shape.has_after[row] and not any(slot in slots for slot in skipped.get(name, ())):
                continue
            is_explained = lost.has_between(int(phy_offsets[low]) if low >= 0 else -1, int(phy_offsets[row]))
            unit = shape.units[row]
            yield Doubted((*name, files.first + row), unit.phy_offset, unit.size_bytes, is_explained)


def _missed_elsewhere(
    doubted: Sequence[Doubted],
    passed: Sequence[Doubted],
    queues: Mapping[QueueName, QueueFiles],
    lost: LostPlaces,
) -> Iterator[Quarantined]:
    """The ``doubted`` records that another queue lacks.

    Of two records that claim one slot either may be the one that another queue lacks. If both fit, neither is taken.
    """
    rivals = []
    for record in passed:
        files, offset = queues[record.slot[:2]], record.slot[2]
        if offset < files.end and files.unit(offset).is_message:
            following, unit = files.phy_offset_of(offset + 1), files.unit(offset)
            # A record after the next message of the queue is out of order there.
            if following < 0 or record.phy_offset < following:
                rivals.append(record._replace(phy_offset=unit.phy_offset, size_bytes=unit.size_bytes))
    candidates = [*doubted, *rivals]
    holes = _holes(queues, {record.slot[2] for record in candidates}, lost)
    fitting = {record: [home for home in holes.get(record.slot[2], ()) if _fits(record, home)] for record in candidates}
    sole_homes = Counter((homes[0].name, record.slot[2]) for record, homes in fitting.items() if len(homes) == 1)
    for record, homes in fitting.items():
        likely = (*homes[0].name, record.slot[2]) if len(homes) == 1 else None
        if homes and (likely is None or sole_homes[likely[:2], likely[2]] == 1):
            reason = "it is alone there, and another queue lacks a message of this offset"
            yield Quarantined(*record.slot, record.phy_offset, record.size_bytes, reason, likely)


class _Hole(NamedTuple):
    """A slot without a message in queue ``name``, between the places ``low`` and ``high`` of its neighbours."""

    name: QueueName
    low: int
    high: int


def _fits(record: Doubted, hole: _Hole) -> bool:
    is_between = hole.low < record.phy_offset < hole.high and is_near(record.slot[:2], hole.name)
    # That a queue ends there proves little.
    return is_between and not (record.is_explained and hole.high == _END_OF_LOG)


def _holes(queues: Mapping[QueueName, QueueFiles], wanted: set[int], lost: LostPlaces) -> dict[int, list[_Hole]]:
    """The holes of all queues that are one of the ``wanted`` slots: single fillers, and the slot after the last unit.

    A filler is none if the log has lost something between its neighbours, which explains it.
    """
    holes: dict[int, list[_Hole]] = {}
    for name, files in queues.items():
        shape = _Shape.of(files)
        phy_offsets = shape.units.phy_offsets
        for row in np.flatnonzero(~shape.is_real & shape.has_before & shape.has_after)[:_MAX_HOLES].tolist():
            low, high = int(phy_offsets[row - 1]) if row else -1, int(phy_offsets[row + 1])
            if files.first + row in wanted and not lost.has_between(low, high):
                holes.setdefault(files.first + row, []).append(_Hole(name, low, high))
        if files.end in wanted and shape.is_real[-1:].any():
            holes.setdefault(files.end, []).append(_Hole(name, int(phy_offsets[-1]), _END_OF_LOG))
    return holes


def _lies_at(files: QueueFiles, queue_offset: int, phy_offset: int) -> bool:
    """Whether a record at ``phy_offset`` at this queue offset would lie between the places of its neighbours."""
    begin = max(queue_offset - _NEIGHBOURS, files.first)
    end = min(queue_offset + _NEIGHBOURS + 1, files.end)
    if not begin <= queue_offset <= end:
        return False
    units = files.units(begin, end)
    phy_offsets = np.where(units.is_filler, -1, units.phy_offsets)
    before, after = phy_offsets[: queue_offset - begin], phy_offsets[queue_offset - begin + 1 :]
    before, after = before[before >= 0], after[after >= 0]
    is_in_turn = (not len(before) or before[-1] < phy_offset) and (not len(after) or phy_offset < after[0])
    return bool(is_in_turn and (len(before) or len(after)))


def _strays_among(misplaced: Iterable[LostRange], lookup: RecordLookup) -> dict[int, Stray]:
    """The ``misplaced`` ranges that are a single record, by physical offset."""
    stated = {gap.start: gap.stated_offset for gap in misplaced if gap.stated_offset >= 0}
    return {phy_offset: Stray(claim, stated[phy_offset]) for phy_offset, claim in claims_at(lookup, stated).items()}


def _conflicting_strays(strays: Iterable[Stray], passed: Sequence[Doubted]) -> Iterator[Quarantined]:
    """Strays that keep other records out of their queue, or are kept out.

    One of the records is wrong, and the others lie in the right place.
    """
    for claim, stated in strays:
        others = [record for record in passed if record.slot[:2] == claim[:2]]
        if any(
            record.phy_offset == claim.phy_offset
            or (record.slot[2] < claim.queue_offset and record.phy_offset > claim.phy_offset)
            for record in others
        ):
            reason = f"its physical offset was {stated}, and it is in the way of others of its queue"
            yield Quarantined(*claim[:3], claim.phy_offset, claim.size_bytes, reason)


def _conflicting(
    passed: Sequence[Doubted], doubted: Sequence[Doubted], queues: Mapping[QueueName, QueueFiles]
) -> Iterator[Quarantined]:
    """The records that displace others: skipped ones, or the first one after a slot filled for them."""
    for following in passed:
        name, offset = following.slot[:2], following.slot[2]
        behind = [other for other in doubted if other.slot[:2] == name and other.slot[2] > offset]
        if queues[name].unit(offset).is_filler and behind:
            following = min(behind, key=lambda other: other.slot[2])
        yield _displaced(following.slot, following)
