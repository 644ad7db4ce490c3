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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.names import offset_name
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.fs.api import FileSystem
from gantrymq.kernels.arrays import Int64s
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import is_light
from gantrymq.tools.loss.loss import FilledSlots, LossAccount, LostMessages, LostRange, NotCompared, ShortQueue
from gantrymq.tools.read.bad_disk import joined
from gantrymq.tools.read.queue_files import QueueFiles, as_units, queue_directories
from gantrymq.tools.read.record_lookup import RecordsElsewhere

_EMPTY = "are empty or impossible"
_ELSEWHERE = "point to other records than those of their offsets"


class DoubtfulUnits:
    """Collects which files of one old queue could not be compared with the result."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self._units: dict[tuple[int, str], tuple[int, int]] = {}  # (file, fault): (number of slots, first slot)

    def add(self, first: int, is_false: NDArray[np.bool_], is_contradicted: NDArray[np.bool_]) -> None:
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

    def found(self, first: int, end: int, *, is_closed: bool) -> Iterator[NotCompared]:
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


_UNITS_AT_ONCE = 1 << 18
_LARGEST_RECORD = 128 << 20
_FURTHEST = 1 << 53
_MAX_SUSPECTS = 100_000
_NOWHERE = "its entry points at no record"
_TOO_YOUNG = "before the begin of the log, and younger than fileReservedTime: removed for a full disk, or lost"
_NO_RECORD = "the log has no record of it, by those around it"


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The part of the log that a result was made of: whole records up to ``end``, except the ranges in ``lost``.

    Retention has deleted the log before ``begin``. ``begins_too_late`` says that the messages there were too young for
    that, so they count as lost. ``behind`` is the reason for messages after ``end``. Nothing at or after ``limit`` was
    read.
    """

    begin: int
    end: int
    lost: Sequence[LostRange]
    limit: int = _FURTHEST
    behind: str = "it was after the end of the log"
    begins_too_late: bool = False

    @property
    def is_from_start(self) -> bool:
        """Whether the log has its first file, so that a missing message is lost and not expired."""
        return self.begin == 0


class Suspect(NamedTuple):
    """A unit of an old queue that points to a whole record, while the new queue has no message at this offset."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int


class QueueSlots(Protocol):
    """The slots [first, end) of a queue. QueueFiles implements it."""

    @property
    def first(self) -> int:
        """The first slot."""
        ...

    @property
    def end(self) -> int:
        """One after the last slot."""
        ...

    def units(self, begin: int, end: int) -> NDArray[np.uint8]:
        """The bytes of the units of the slots [begin, end)."""
        ...


class LostPlaces:
    """Ranges of the log, which may overlap, in arrays: their starts, and the furthest end up to each."""

    def __init__(self, ranges: Sequence[LostRange]) -> None:
        self._ranges = sorted(ranges, key=lambda one: one.start)
        self._starts = np.array([one.start for one in self._ranges], np.int64)
        self._ends = np.maximum.accumulate(np.array([one.end for one in self._ranges], np.int64))

    def numbers(self, offsets: Int64s) -> Int64s:
        """For each physical offset the number of the last range that starts at or before it; -1 outside of all."""
        if not len(self._starts):
            return np.full(len(offsets), -1, np.int64)
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        return np.where((at >= 0) & (offsets < self._ends[at]), at, -1)

    def has(self, offsets: Int64s) -> NDArray[np.bool_]:
        """Which of the physical offsets lie in a range."""
        return self.numbers(offsets) >= 0

    def has_between(self, low: int, high: int) -> bool:
        """Whether a range overlaps [low, high)."""
        return bool(((self._starts < high) & (self._ends > low)).any())

    def reason(self, offset: int) -> str | None:
        """The reason for which the log has no whole record at a physical offset; None outside of all ranges."""
        number = int(self.numbers(np.array([offset], np.int64))[0])
        return next((one.reason for one in self._ranges[number::-1] if offset < one.end), None) if number >= 0 else None


class QueueAccount:
    """Compares the queues of the store at ``old`` with those of a result. Call one of its compare methods once.

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
        self._account = LossAccount()
        self._is_closed, self._says_places = not fs.exists(old.abort), True
        self.suspects: list[Suspect] = []

    def compare(self, roots: Sequence[StorePaths]) -> LossAccount:
        """What the queues below ``roots`` lack. Each queue is below one root at most."""
        new = {
            (topic, queue_id): path
            for root in roots
            for topic, queue_id, path in queue_directories(self._fs, root.consume_queue)[0]
        }
        for name in sorted(new.keys() | self._old_names()):
            if not is_light(name[0]):
                self._compare(*name, self._files(new[name], *name) if name in new else None)
        return self._account

    def compare_slots(
        self, found: Mapping[tuple[str, int], QueueSlots], takes_queue: Callable[[str, int], bool]
    ) -> LossAccount:
        """What ``found`` lacks, of the queues that ``takes_queue`` accepts.

        All units of ``found`` point to one place, so places are not compared.
        """
        self._says_places = False
        for name in sorted(found.keys() | self._old_names()):
            if takes_queue(*name) and not is_light(name[0]):
                self._compare(*name, found.get(name))
        return self._account

    def _old_names(self) -> set[tuple[str, int]]:
        return {(topic, queue_id) for topic, queue_id, _ in queue_directories(self._fs, self._old.consume_queue)[0]}

    def _files(self, directory: Path, topic: str, queue_id: int) -> QueueFiles:
        files = QueueFiles(self._fs, directory, topic, queue_id, self._file_size)
        files.load()
        return files

    def _compare(self, topic: str, queue_id: int, new: QueueSlots | None) -> None:
        old = self._files(self._old.consume_queue / topic / str(queue_id), topic, queue_id)
        account, first_lost = self._account, len(self._account.messages)
        lows = [slots.first for slots in (old, new) if slots is not None and slots.end > slots.first]
        low, high = min(lows, default=0), max(old.end, new.end if new is not None else 0)
        state = _QueueState(topic, queue_id, new.end if new is not None else 0, DoubtfulUnits(old))
        for begin in range(low, high, _UNITS_AT_ONCE):
            end = min(begin + _UNITS_AT_ONCE, high)
            raw_old = old.units(begin, end)
            raw_new = new.units(begin, end) if new is not None else np.zeros_like(raw_old)
            self._compare_units(state, begin, _Units(raw_old), _Units(raw_new))
        if self._extent.begins_too_late and old.end <= old.first and state.first > 0:
            run = LostMessages(topic, queue_id, 0, state.first, -1, -1, _TOO_YOUNG)
            account.messages.insert(first_lost, run)
        lost_behind = [one.end for one in account.messages[first_lost:] if one.end > state.last]
        # A queue without any message keeps its old files if retention could have left it so.
        is_kept = new is None and all(0 <= one.phy_offset < self._extent.begin for one in account.messages[first_lost:])
        if lost_behind and not is_kept:
            account.short_queues.append(ShortQueue(topic, queue_id, max(lost_behind), state.last))
        account.not_compared += state.doubtful.found(state.first, state.last, is_closed=self._is_closed)

    def _compare_units(self, state: _QueueState, first: int, old: _Units, new: _Units) -> None:
        """Compare some slots of the old queue and the new one."""
        stays = new.is_real & (new.phy_offsets < self._extent.end)
        if stays.any():
            state.last = first + int(np.flatnonzero(stays)[-1]) + 1
            state.first = first + int(np.flatnonzero(stays)[0]) if state.first < 0 else state.first
        has = stays & ~self._lost.has(new.phy_offsets)
        is_other = has & old.is_real & (old.phy_offsets != new.phy_offsets) & self._says_places
        state.doubtful.add(first, ~old.is_real & ~old.is_blank, is_other)
        if has.all():
            state.has_message = True
            return
        seen = np.logical_or.accumulate(has) | state.has_message
        state.has_message = bool(seen[-1])
        slots = np.arange(first, first + len(has))
        witness = np.where(old.is_real, old.phy_offsets, -1)
        in_log = ~has & old.is_real & (witness >= self._extent.begin) & (witness < self._extent.end)
        rows = np.flatnonzero(in_log & ~self._lost.has(witness))
        if self._elsewhere is not None and len(rows):
            rows = rows[self._elsewhere.which((state.topic, state.queue_id), slots[rows], witness[rows])]
            old.is_real[rows], witness[rows] = False, -1
        is_unasked = ~has & old.is_real & (witness >= self._extent.limit)
        is_expired = ~has & old.is_real & (witness < self._extent.begin) & (not self._extent.begins_too_late)
        named = ~has & old.is_real & ~is_expired & ~is_unasked
        # Without an old unit, the messages around the slot prove that it had one.
        is_old_blank = old.is_blank | is_expired | is_unasked
        unnamed = ~has & ~old.is_real & ~is_old_blank & (slots < state.end) & (seen | self._extent.is_from_start)
        unnamed |= ~has & ~named & new.is_real & ~is_old_blank
        in_log = named & (witness >= self._extent.begin) & (witness < self._extent.end) & ~self._lost.has(witness)
        for row in np.flatnonzero(in_log)[: _MAX_SUSPECTS - len(self.suspects)].tolist():
            unit = int(old.phy_offsets[row]), int(old.sizes[row]), int(old.tags_codes[row])
            self.suspects.append(Suspect(state.topic, state.queue_id, first + row, *unit))
        for begin, end in _runs(named | unnamed):
            self._lose(state, first, old, new, begin, end)
        for begin, end in _runs(is_expired):
            self._account.expired.append(FilledSlots(state.topic, state.queue_id, first + begin, first + end))
        for begin, end in _runs(new.is_blank & ~old.is_blank & (seen | self._extent.is_from_start)):
            self._account.filled.append(FilledSlots(state.topic, state.queue_id, first + begin, first + end))

    def _lose(self, state: _QueueState, first: int, old: _Units, new: _Units, begin: int, end: int) -> None:
        """Report the messages of consecutive slots, joined while the reason is the same."""
        places = np.where(old.is_real, old.phy_offsets, np.where(new.is_real, new.phy_offsets, -1))[begin:end]
        ends = places + np.where(old.is_real, old.sizes, new.sizes)[begin:end]
        ranges = self._lost.numbers(places)
        is_cut = (np.diff(ranges) != 0) | (np.diff(places >= 0)) | (np.diff(places >= self._extent.end))
        is_cut |= np.diff(places) < 0
        for start, stop in pairwise([0, *(np.flatnonzero(is_cut) + 1).tolist(), end - begin]):
            place, phy_end = int(places[start]), int(ends[stop - 1])
            run = LostMessages(
                state.topic,
                state.queue_id,
                first + begin + start,
                first + begin + stop,
                place,
                phy_end if place >= 0 else -1,
                self._reason(place),
            )
            self._account.messages.append(run)

    def _reason(self, place: int) -> str:
        if place < 0:
            return _NO_RECORD
        if place < self._extent.begin:
            return _TOO_YOUNG
        return self._lost.reason(place) or (self._extent.behind if place >= self._extent.end else _NOWHERE)


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


class _Units:
    """Some units as columns, with masks of the blank units and of those that may point to a record."""

    def __init__(self, raw: NDArray[np.uint8]) -> None:
        units = as_units(raw)
        self.phy_offsets = units["phy_offset"].astype(np.int64)
        self.sizes = units["size"].astype(np.int64)
        self.tags_codes = units["tags_code"]
        self.is_blank = self.sizes == BLANK_UNIT_SIZE
        is_size = (self.sizes >= MIN_RECORD_SIZE) & (self.sizes <= _LARGEST_RECORD)
        self.is_real = is_size & (self.phy_offsets >= 0) & (self.phy_offsets < _FURTHEST)
        # Physical offset 0 belongs to a queue's first unit only. Elsewhere it is an empty slot with a flipped bit.
        rows = np.flatnonzero(self.is_real)[1:]
        self.is_real[rows] = self.phy_offsets[rows] > 0


def _runs(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """[begin, end) of each run of True."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
