"""Compares the old consume queues with the queues of a result.

A unit of the old queue is evidence that this queue offset had a message at this physical offset. The result has the
message if its own unit points to a whole record. Otherwise the message is lost, unless retention had already deleted
it. The offsets of a queue have no gaps, so a slot without an old unit is judged by its neighbours.

Units carry no checksum. An impossible unit (a size that no record has, a physical offset above that of a later unit) is
no evidence. If the log has a record for a slot, the record decides, not the unit. The same holds for a whole file that
is missing or short, or whose units are impossible or point to other records than those of their offsets (its bytes have
moved, or are of another file). Such files are reported, but are not a loss: the result has what the log has for these
slots, and a slot without a record is reported because of its neighbours.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import UNIT_SIZE
from gantrymq.format.queue_units import Bools, Units
from gantrymq.fs.api import FileSystem
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import is_light
from gantrymq.store.queue.queue_listing import QueueName
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
)
from gantrymq.tools.read.bad_disk import joined
from gantrymq.tools.read.log_extent import LogExtent, LostPlaces, Suspect
from gantrymq.tools.read.queue_files import QueueFiles, queue_directories
from gantrymq.tools.read.record_lookup import RecordLookup, claims_at
from gantrymq.tools.reports import FilledSlots, LossAccount, LostMessages, NotCompared, ShortQueue

_EMPTY = "are empty or impossible"
_ELSEWHERE = "point to other records than those of their offsets"
_UNITS_AT_ONCE = 1 << 18
_MAX_SUSPECTS = 100_000
_NOWHERE = "its entry points at no record"
_TOO_YOUNG = "before the begin of the log, and younger than fileReservedTime: removed for a full disk, or lost"
_NO_RECORD = "the log has no record of it, by those around it"


class DoubtfulUnits:
    """Collects which files of one old queue could not be compared with the result."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self._units: dict[tuple[int, str], tuple[int, int]] = {}  # (file, fault): (number of slots, first slot)

    def add(self, first: int, is_false: Bools, is_contradicted: NDArray[np.bool_]) -> None:
        """Note the slots, from ``first`` on, whose unit is impossible or contradicts the log."""
        if not (is_false.any() or is_contradicted.any()):
            return
        files = self._files
        slots = np.arange(first, first + len(is_false))
        bases = slots * UNIT_SIZE // files.file_size * files.file_size
        is_there = (slots >= files.first) & (slots < files.end) & np.isin(bases, list(files.sizes))
        for rows, fault in ((is_false & is_there, _EMPTY), (is_contradicted & is_there, _ELSEWHERE)):
            for base in np.unique(bases[rows]).tolist():
                of_file = slots[rows & (bases == base)]
                count, begin = self._units.get((base, fault), (0, int(of_file[0])))
                self._units[base, fault] = count + len(of_file), begin

    def problems(self, first: int, end: int, *, is_closed: bool) -> Iterator[NotCompared]:
        """Everything that was noted, by file.

        The result has messages in the slots [first, end); ``first`` is -1 without any.
        """
        files = self._files
        reported: set[Path] = set()
        for (base, begin, stop), reason in joined(files.unreadable):
            path = files.directory / offset_name(base)
            yield NotCompared(path, f"bytes {begin} to {stop} cannot be read: {reason}")
            reported.add(path)
        for path, reason in (*self._of_files(is_closed=is_closed), *self._of_ends(first, end, is_closed=is_closed)):
            if path not in reported:
                yield NotCompared(path, reason, is_damage=False)
                reported.add(path)

    def _of_files(self, *, is_closed: bool) -> Iterator[tuple[Path, str]]:
        files = self._files
        for begin, end in files.missing():
            yield files.path_of(begin), f"missing: offsets {begin} to {end - 1}"
        for base, size in sorted(files.sizes.items()):
            if size != files.file_size and (size or is_closed):  # a kill leaves an empty file
                yield files.directory / offset_name(base), f"is {size} bytes long, not {files.file_size}"
        for base in sorted({base for base, _ in self._units}):
            faults = [
                (fault, self._units[base, fault]) for fault in (_EMPTY, _ELSEWHERE) if (base, fault) in self._units
            ]
            texts = [f"{count} of its entries {fault}, the first at offset {begin}" for fault, (count, begin) in faults]
            yield files.directory / offset_name(base), "; ".join(texts)

    def _of_ends(self, first: int, end: int, *, is_closed: bool) -> Iterator[tuple[Path, str]]:
        files = self._files
        if first < 0 or not is_closed:  # a kill leaves queues that end early
            return
        if first < files.first:
            yield files.path_of(first), f"missing: offsets {first} to {files.first - 1}"
        if end > files.end:
            begin = max(first, files.end)
            reason = f"missing, or ends early: offsets {begin} to {end - 1}, which the log has"
            yield files.path_of(begin), reason


@dataclass(frozen=True, slots=True)
class RecordsElsewhere:
    """Finds units that point to a record which the result has under another queue.

    Such a unit is no evidence for its own queue: a piece of another queue's file was written over it. That is not so if
    the topic or queue id of the record has a flipped bit. Such a record does not lie between the messages around its
    slot.

    ``points_to(queue, queue offset, place)`` says whether the result has this record there, ``has(queue, queue
    offset)`` whether it has any. ``old_place(topic, queue id, queue offset)`` is the physical offset in the old unit.
    """

    lookup: RecordLookup
    points_to: Callable[[QueueName, int, int], bool]
    has: Callable[[QueueName, int], bool]
    old_place: Callable[[str, int, int], int]

    def which(self, queue: QueueName, slots: Int64s, phy_offsets: Int64s) -> Bools:
        """Which of these units of ``queue`` point to a record that is elsewhere in the result.

        The units are given by their slots and physical offsets.
        """
        claims = claims_at(self.lookup, phy_offsets.tolist())
        is_elsewhere = np.zeros(len(slots), np.bool_)
        for row, (slot, phy_offset) in enumerate(zip(slots.tolist(), phy_offsets.tolist(), strict=True)):
            claim = claims.get(phy_offset)
            if claim is not None and judge_claim((*queue, slot), claim[:3]) is not ClaimKind.OWN:
                is_elsewhere[row] = self._is_in_place(claim[:2], claim.queue_offset, phy_offset)
        return is_elsewhere

    def _is_in_place(self, queue: QueueName, slot: int, phy_offset: int) -> bool:
        if not self.points_to(queue, slot, phy_offset):
            return False
        # Offset 0 has no neighbour before it: a record that wrongly carries it would restart its queue.
        is_between_others = slot > 0 and self.has(queue, slot + 1) and self.has(queue, slot - 1)
        return is_between_others or self.old_place(*queue, slot) == phy_offset


class QueueAccount:
    """Compares the queues of the store at ``old`` with those of a result. Call :meth:`compare` once.

    Units that point to records which are ``elsewhere`` in the result are no evidence.
    """

    def __init__(
        self,
        fs: FileSystem,
        old: StorePaths,
        queue_file_size: int,
        extent: LogExtent,
        elsewhere: RecordsElsewhere | None = None,
    ) -> None:
        self._fs = fs
        self._old = old
        self._file_size = queue_file_size
        self._extent = extent
        self._elsewhere = elsewhere
        self._lost = LostPlaces(extent.lost)
        self._known = KnownLog(extent.begin, extent.end, self._lost.has, extent.limit)
        self._account = LossAccount()
        self._is_closed, self._says_places = not fs.exists(old.abort), True
        self._begins: Mapping[QueueName, int] = {}
        self.suspects: list[Suspect] = []

    def compare(
        self,
        result: Mapping[QueueName, UnitSource],
        takes_queue: Callable[[str, int], bool] = lambda *_: True,
        *,
        says_places: bool = True,
        begins: Mapping[QueueName, int] | None = None,
    ) -> LossAccount:
        """What ``result`` lacks, of the queues that ``takes_queue`` accepts.

        Without ``says_places`` the units of ``result`` only show which slots have a message. ``begins`` has the first
        slot to compare of a queue; there were messages before it.
        """
        self._says_places = says_places
        self._begins = begins or {}
        old = {(topic, queue_id) for topic, queue_id, _ in queue_directories(self._fs, self._old.consume_queue)[0]}
        for name in sorted(result.keys() | old):
            if takes_queue(*name) and not is_light(name[0]):
                self._compare(*name, result.get(name))
        return self._account

    def _compare(self, topic: str, queue_id: int, new: UnitSource | None) -> None:
        directory = self._old.consume_queue / topic / str(queue_id)
        old = QueueFiles.loaded(self._fs, directory, topic, queue_id, self._file_size)
        account, first_lost = self._account, len(self._account.messages)
        lows = [slots.first for slots in (old, new) if slots is not None and slots.end > slots.first]
        low = max(min(lows, default=0), self._begins.get((topic, queue_id), 0))
        high = max(old.end, new.end if new is not None else 0)
        state = _QueueState(topic, queue_id, new.end if new is not None else 0, DoubtfulUnits(old))
        state.has_message = self._begins.get((topic, queue_id), 0) > 0
        for begin in range(low, high, _UNITS_AT_ONCE):
            end = min(begin + _UNITS_AT_ONCE, high)
            units_new = new.units(begin, end) if new is not None else Units(bytes((end - begin) * UNIT_SIZE))
            self._compare_units(state, begin, old.units(begin, end), units_new)
        if self._extent.begins_too_late and old.end <= old.first and state.first > 0:
            run = LostMessages(topic, queue_id, 0, state.first, -1, -1, _TOO_YOUNG)
            account.messages.insert(first_lost, run)
        lost_behind = [run.end for run in account.messages[first_lost:] if run.end > state.last]
        # A queue without any message keeps its old files if retention could have left it so.
        is_kept = new is None and all(0 <= run.phy_offset < self._extent.begin for run in account.messages[first_lost:])
        if lost_behind and not is_kept:
            account.short_queues.append(ShortQueue(topic, queue_id, max(lost_behind), state.last))
        account.not_compared += state.doubtful.problems(state.first, state.last, is_closed=self._is_closed)

    def _compare_units(self, state: _QueueState, first: int, old: Units, new: Units) -> None:
        """Compare some slots of the old queue and the new one."""
        extent, account, queue = self._extent, self._account, (state.topic, state.queue_id)
        is_new = is_evidence(new)
        stays = is_new & (new.phy_offsets < extent.end)
        if stays.any():
            state.last = first + int(np.flatnonzero(stays)[-1]) + 1
            state.first = first + int(np.flatnonzero(stays)[0]) if state.first < 0 else state.first
        has = stays & ~self._lost.has(new.phy_offsets)
        if has.all() and np.array_equal(old.raw, new.raw):
            state.has_message = True
            return
        log_places = np.where(has, new.phy_offsets if self._says_places else ANY_PLACE, NO_PLACE)
        slots = audit(first, old, is_evidence(old), self._known, log_places)
        is_empty = slots.is_of(SlotKind.MISSING, SlotKind.UNWRITTEN, SlotKind.IMPOSSIBLE)
        state.doubtful.add(first, is_empty, slots.is_of(SlotKind.MOVED))
        seen = np.logical_or.accumulate(has) | state.has_message
        state.has_message = bool(seen[-1])
        if has.all():
            return
        rows = np.flatnonzero(slots.is_of(SlotKind.EXTRA))
        if self._elsewhere is not None and len(rows):
            rows = rows[self._elsewhere.which(queue, rows + first, old.phy_offsets[rows])]
            slots.kinds[rows] = SlotKind.IMPOSSIBLE
        named = slots.is_of(SlotKind.AHEAD, SlotKind.UNREADABLE, SlotKind.EXTRA)
        expired = slots.is_of(SlotKind.EXPIRED)
        if extent.begins_too_late:
            named, expired = named | expired, np.zeros_like(expired)
        # Without an old unit, the messages around the slot prove that it had one.
        has_begun = seen | extent.is_from_start
        is_inside = has_begun & (np.arange(first, first + len(has)) < state.end)
        unnamed = slots.is_of(SlotKind.UNWRITTEN, SlotKind.IMPOSSIBLE) & (is_inside | is_new)
        for row in np.flatnonzero(slots.is_of(SlotKind.EXTRA))[: _MAX_SUSPECTS - len(self.suspects)].tolist():
            self.suspects.append(Suspect(*queue, first + row, *old[row]))
        is_witness = named | expired | slots.is_of(SlotKind.UNREAD)
        phy_offsets = np.where(is_witness, old.phy_offsets, np.where(is_new, new.phy_offsets, -1))
        ends = phy_offsets + np.where(is_witness, old.sizes, new.sizes)
        for lost in slots.differences(named | unnamed):
            self._lose(state, lost, phy_offsets[lost.begin - first : lost.end - first], ends[lost.begin - first :])
        account.expired += [FilledSlots(*queue, *some) for some in slots.differences(expired)]
        filled = new.is_filler & ~old.is_filler & has_begun
        account.filled += [FilledSlots(*queue, *some) for some in slots.differences(filled)]

    def _lose(self, state: _QueueState, lost: Difference, phy_offsets: Int64s, ends: Int64s) -> None:
        """Report the messages of consecutive slots, joined while the reason is the same."""
        is_cut = (
            (np.diff(self._lost.numbers(phy_offsets)) != 0) | (np.diff(phy_offsets >= 0)) | (np.diff(phy_offsets) < 0)
        )
        is_cut |= np.diff(phy_offsets >= self._extent.end)
        for start, stop in pairwise([0, *(np.flatnonzero(is_cut) + 1).tolist(), len(phy_offsets)]):
            phy_offset = int(phy_offsets[start])
            span = phy_offset, int(ends[stop - 1]) if phy_offset >= 0 else -1
            slots = lost.begin + start, lost.begin + stop
            run = LostMessages(state.topic, state.queue_id, *slots, *span, self._reason(phy_offset))
            self._account.messages.append(run)

    def _reason(self, phy_offset: int) -> str:
        if phy_offset < 0:
            return _NO_RECORD
        if phy_offset < self._extent.begin:
            return _TOO_YOUNG
        return self._lost.reason(phy_offset) or (self._extent.behind if phy_offset >= self._extent.end else _NOWHERE)


@dataclass(slots=True)
class _QueueState:
    """The state of a comparison of one queue up to some slot.

    The new queue ends at ``end``. Its messages that stay are in the slots from ``first`` (-1: none yet) to before
    ``last``.
    """

    topic: str
    queue_id: int
    end: int
    doubtful: DoubtfulUnits
    has_message: bool = False
    first: int = -1
    last: int = 0
