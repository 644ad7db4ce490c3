"""Checks units that no record of the log asked for, and records whose unit was missing.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format.names import offset_name
from gantrymq.format.properties import decode_properties
from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE, decode_entry
from gantrymq.format.queue_ext import MAX_UNIT_SIZE, QueueExtUnit, decode_unit, is_address, to_offset
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.kernels import codes
from gantrymq.kernels.api import tags_codes
from gantrymq.model.flags import is_consumable
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.queue.consume_queues import is_light, light_offset
from gantrymq.tools.check.findings import Finding, Kind, Level
from gantrymq.tools.check.log_check import LogCheck
from gantrymq.tools.check.queue_check import CheckedQueue, QueueCheck
from gantrymq.tools.read.queue_files import QueueFiles, as_units
from gantrymq.tools.read.record_lookup import RecordLookup

_UNITS_AT_ONCE = 16_384
_NEAR = 8  # the greatest distance of a slot's neighbours
_WITHOUT_ENTRY = "no entry of the queue points at the record"
_TAKEN = f"{_WITHOUT_ENTRY}, and another record has its queue offset, so a rebuild gives it no entry; {SALVAGE}"
_RECOVERED_FILES = 3  # ConsumeQueue.recover reads the last three
_TEXTS = {
    Kind.RECORD_QUEUE: "the record names another queue or queue offset than the entry that points to it",
    Kind.QUEUE_HOLE: "the slot was never written, and entries follow it",
    Kind.QUEUE_FILLED: "the slot has a filler, as for a lost message: consumers skip it",
    Kind.QUEUE_AHEAD: "points after the end of the log; `gantrymq store recover` removes it",
    Kind.QUEUE_ENTRY_NOWHERE: "points at no record",
    Kind.QUEUE_ENTRY_OTHER_QUEUE: "points at a record of another queue",
    Kind.QUEUE_ENTRY_ORDER: "points at a record of another offset of the queue",
    Kind.QUEUE_ENTRY_RESTART: "points at a record of offset 0: its topic may have been deleted and recreated there",
    Kind.QUEUE_ENTRY_SIZE: "has another size than its record",
    Kind.QUEUE_ENTRY_TAGS_CODE: "has another tags code than its record",
    Kind.QUEUE_EXT_ENTRY: "points to no extended unit of its record",
}
Verdicts = NDArray[np.object_]  # a Kind, or None if nothing is wrong


class QueueUnitsCheck:
    """Checks what :class:`QueueCheck` left over.

    ``unreadable`` counts units that point into a part of the log that is known to be broken: the units are right, their
    messages are gone. ``ext_directory`` has the extended units.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        log: LogCheck,
        queues: QueueCheck,
        lookup: RecordLookup,
        delay_levels_ms: Sequence[int],
        ext_directory: Path,
        *,
        is_closed: bool,
    ) -> None:
        self._fs = fs
        self._root = root
        self._log = log
        self._queues = queues
        self._lookup = lookup
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._ext_directory = ext_directory
        self._is_closed = is_closed
        self._pointed: set[int] = set()
        self.unreadable = 0

    def check_units(self, queue: CheckedQueue) -> Iterator[Finding]:
        """Report what is wrong with the units that are left. Consecutive slots with the same fault are one finding."""
        held: Finding | None = None
        for finding in self._each(queue):
            if held is not None and _joins(held, finding):
                held = replace(held, count=held.count + finding.count)
                continue
            if held is not None:
                yield held
            held = finding
        if held is not None:
            yield held

    def _each(self, queue: CheckedQueue) -> Iterator[Finding]:
        files = queue.files
        for low, high in queue.coverage.gaps(files.end):
            low = max(low, files.first)
            is_head = is_before_log = low == files.first
            for begin in range(low, high, _UNITS_AT_ONCE):
                end = min(begin + _UNITS_AT_ONCE, high)
                verdicts, is_before_log = self._judge(queue, begin, end, is_head, is_before_log)
                for row in np.flatnonzero(verdicts != None).tolist():  # noqa: E711  elementwise
                    yield self._finding(queue, begin + row, verdicts[row])

    def _finding(self, queue: CheckedQueue, slot: int, kind: Kind) -> Finding:
        files = queue.files
        if kind is Kind.RECORD_QUEUE:
            unit = decode_entry(files.units(slot, slot + 1).tobytes())
            record = self._without(files, kind, (slot, unit.phy_offset), 1, _TEXTS[kind], Level.DAMAGE)
            return replace(record, length_bytes=unit.size_bytes)
        text = _TEXTS[kind]
        if kind is Kind.QUEUE_ENTRY_NOWHERE and self._is_kept(queue, slot):
            text += f", and no record has its queue offset, which a rebuild keeps reserved; {SALVAGE}"
        return Finding(
            kind,
            files.path_of(slot).relative_to(self._root),
            text,
            self._level(files, slot, kind),
            topic=files.topic,
            queue_id=files.queue_id,
            queue_offset=slot,
        )

    def _is_kept(self, queue: CheckedQueue, slot: int) -> bool:
        """Whether a rebuild keeps the unit of a slot: no message follows it, and no record has its offset."""
        place = decode_entry(queue.files.units(slot, slot + 1).tobytes()).phy_offset
        is_last = slot >= queue.coverage.upto and not queue.may_be_claimed(slot)
        return is_last and self._log.min_offset <= place < self._log.end_offset

    def _level(self, files: QueueFiles, slot: int, kind: Kind) -> Level:
        if kind in (Kind.QUEUE_FILLED, Kind.QUEUE_AHEAD, Kind.QUEUE_ENTRY_RESTART):
            return Level.NOTE
        # If a queue was not closed, a recovery cuts the empty slots of its last files and writes them again.
        recovered = max(files.sizes) // UNIT_SIZE - (_RECOVERED_FILES - 1) * files.file_size // UNIT_SIZE
        is_rewritten = not self._is_closed and kind is Kind.QUEUE_HOLE and slot >= recovered
        return Level.NOTE if is_rewritten else Level.DAMAGE

    def _judge(
        self, queue: CheckedQueue, begin: int, end: int, is_head: bool, is_before_log: bool
    ) -> tuple[Verdicts, bool]:
        """The verdicts of some slots, and whether all of them lie before the log's begin.

        ``is_before_log`` says the same of the slots before these. Filled slots there are below the queue's minimum
        offset.
        """
        units = as_units(queue.files.units(begin, end))
        phy_offsets, sizes, tags = (units[name].astype(np.int64) for name in ("phy_offset", "size", "tags_code"))
        verdicts = np.full(len(units), None, object)
        blank = (phy_offsets == 0) & (sizes == BLANK_UNIT_SIZE) & (tags == 0)
        empty = (phy_offsets == 0) & (sizes == 0) & (tags == 0)
        verdicts[empty] = Kind.QUEUE_HOLE
        invalid = ~empty & ((phy_offsets < 0) | (sizes <= 0))
        verdicts[invalid] = Kind.QUEUE_ENTRY_NOWHERE
        left = ~(blank | empty | invalid)
        expired = left & (phy_offsets < self._log.min_offset)
        if not is_head:
            verdicts[expired & (phy_offsets < self._log.first_offset)] = Kind.QUEUE_ENTRY_ORDER
        before = np.logical_and.accumulate(blank | expired) & is_before_log
        verdicts[blank & ~before] = Kind.QUEUE_FILLED
        ahead = left & (phy_offsets >= self._log.end_offset)
        verdicts[ahead] = Kind.QUEUE_ENTRY_NOWHERE if self._is_closed else Kind.QUEUE_AHEAD
        rows = np.flatnonzero(left & ~expired & ~ahead)
        lost = np.array([self._log.is_bad(offset) for offset in phy_offsets[rows].tolist()], np.bool_)
        self.unreadable += int(lost.sum())
        self._look_up(queue, rows[~lost], begin, (phy_offsets, sizes, tags), verdicts)
        return verdicts, bool(before.all())

    def _look_up(
        self,
        queue: CheckedQueue,
        rows: NDArray[np.int64],
        begin: int,
        fields: tuple[NDArray[np.int64], ...],
        verdicts: Verdicts,
    ) -> None:
        phy_offsets, sizes, tags = fields
        for some, batch in self._lookup.read(phy_offsets[rows]):
            whole = batch.columns[codes.SIZE, : batch.count] > 0
            verdicts[rows[some[~whole]]] = Kind.QUEUE_ENTRY_NOWHERE
            batch, which = batch.take(whole), rows[some[whole]]
            expected = np.empty(batch.count, np.int64)
            tags_codes(batch.buffer, batch.columns, batch.count, self._delay_levels_ms, expected)
            for i, row in enumerate(which.tolist()):
                unit = (begin + row, int(phy_offsets[row]), int(sizes[row]), int(tags[row]))
                verdicts[row] = self._compare(queue, unit, batch, i, int(expected[i]))
                if not is_light(queue.files.topic):  # the record's own queue must have a unit as well
                    self._pointed.add(int(phy_offsets[row]))

    def _compare(
        self, queue: CheckedQueue, unit: tuple[int, int, int, int], batch: RecordBatch, i: int, expected_tags: int
    ) -> Kind | None:
        files, (slot, place, size, tags) = queue.files, unit
        record = batch.columns[:, i]
        if not is_consumable(int(record[codes.SYS_FLAG])):
            return Kind.QUEUE_ENTRY_NOWHERE
        queue_offset = _offset_in(files, batch, i)
        if queue_offset is None:
            is_wrong_record = self._is_wrong_record(queue, slot, place, batch, i)
            return Kind.RECORD_QUEUE if is_wrong_record else Kind.QUEUE_ENTRY_OTHER_QUEUE
        if queue_offset != slot:
            # A lone record of offset 0 after the others: its topic may have been recreated, but no second record
            # confirms it.
            is_possible_restart = queue_offset == 0 and place > queue.begin
            if is_possible_restart:
                return Kind.QUEUE_ENTRY_RESTART
            is_wrong_record = self._is_wrong_record(queue, slot, place, batch, i)
            return Kind.RECORD_QUEUE if is_wrong_record else Kind.QUEUE_ENTRY_ORDER
        if record[codes.SIZE] != size:
            return Kind.QUEUE_ENTRY_SIZE
        if is_address(tags):
            ext = self._ext_unit(files, to_offset(tags))
            is_right = ext is not None and (ext.tags_code, ext.store_time_ms) == (
                expected_tags,
                record[codes.STORE_TIMESTAMP],
            )
            return None if is_right else Kind.QUEUE_EXT_ENTRY
        return None if tags == expected_tags else Kind.QUEUE_ENTRY_TAGS_CODE

    def _is_wrong_record(self, queue: CheckedQueue, slot: int, place: int, batch: RecordBatch, i: int) -> bool:
        """Whether the record, and not its entry, has the wrong slot, so that rebuilding the queue changes nothing.

        That is so if its place lies between those of the neighbouring entries, no other record has the slot, and the
        entry of the slot that the record names points to another record.
        """
        record = batch.columns[:, i]
        if is_light(queue.files.topic) or not self._fits(queue, slot, place) or queue.may_be_claimed(slot):
            return False
        topic = decode_utf8(_raw(batch, i, codes.TOPIC_AT, codes.TOPIC_LENGTH))
        named = (int(record[codes.QUEUE_ID]), int(record[codes.QUEUE_OFFSET]))
        return not self._queues.leads_to(topic, *named, place)

    @staticmethod
    def _fits(queue: CheckedQueue, slot: int, place: int) -> bool:
        """Whether the nearest right entries before and after the slot point to places before and after ``place``."""
        first, end = queue.files.first, queue.files.end

        def nearest(slots: range) -> int | None:
            at = next((one for one in slots if queue.coverage.is_covered(one)), None)
            return None if at is None else decode_entry(queue.files.units(at, at + 1).tobytes()).phy_offset

        before = nearest(range(slot - 1, max(first, slot - _NEAR) - 1, -1))
        behind = nearest(range(slot + 1, min(end, slot + _NEAR + 1)))
        is_begun = slot - _NEAR <= first if before is None else before < place
        is_ended = slot + _NEAR >= end if behind is None else place < behind
        return is_begun and is_ended and (before, behind) != (None, None)

    def _ext_unit(self, files: QueueFiles, offset: int) -> QueueExtUnit | None:
        directory = self._ext_directory / files.topic / str(files.queue_id)
        sizes = [entry.size_bytes for entry in self._fs.scan(directory) if not entry.is_directory]
        if not sizes or not max(sizes):
            return None
        size = max(sizes)  # a file that was cut is shorter
        base = offset - offset % size
        try:
            return decode_unit(read_part(self._fs, directory / offset_name(base), offset - base, MAX_UNIT_SIZE))
        except (OSError, StoreError):
            return None

    # Records without their unit

    def check_records(self, queue: CheckedQueue) -> Iterator[Finding]:
        """Report the records that no unit points to."""
        files = queue.files
        missing = [range(begin, end) for begin, end in files.missing()]

        def is_explained(slot: int, phy_offset: int) -> bool:
            # By a unit that points to it from elsewhere, by a fault of the slot itself, or by the loss of its file.
            is_judged = files.first <= slot < files.end and not queue.coverage.is_covered(slot)
            if is_judged and decode_entry(files.units(slot, slot + 1).tobytes()).size_bytes == BLANK_UNIT_SIZE:
                is_judged = self._log.is_broken_record(phy_offset)  # filled: explained only if the record is broken
            is_gone = phy_offset < self._log.min_offset
            return is_gone or phy_offset in self._pointed or is_judged or any(slot in gap for gap in missing)

        left = [place for records in queue.missed for place in records.kept if not is_explained(*place)]
        more = sum(records.count - len(records.kept) for records in queue.missed)
        behind = [one for one in left if one[0] >= files.end]
        if behind and not self._is_closed:
            text = "the queue lacks its newest entries; `gantrymq store recover` adds them"
            yield self._without(files, Kind.QUEUE_BEHIND, behind[0], len(behind) + more, text, Level.NOTE)
            left, more = [one for one in left if one[0] < files.end], 0
        is_taken = [queue.coverage.is_covered(slot) for slot, _ in left]
        for taken, text in ((True, _TAKEN), (False, _WITHOUT_ENTRY)):
            records = [one for one, has_rival in zip(left, is_taken, strict=True) if has_rival is taken]
            for first, count in _runs(records, 0 if taken else more):
                yield self._without(files, Kind.MESSAGE_WITHOUT_ENTRY, first, count, text, Level.DAMAGE)

    def _without(
        self, files: QueueFiles, kind: Kind, first: tuple[int, int], count: int, text: str, level: Level
    ) -> Finding:
        slot, phy_offset = first
        file = self._log.file_at(phy_offset)
        return Finding(
            kind,
            (file.path if file else files.directory).relative_to(self._root),
            text,
            level,
            topic=files.topic,
            queue_id=files.queue_id,
            queue_offset=slot,
            phy_offset=phy_offset,
            count=count,
        )


def _offset_in(files: QueueFiles, batch: RecordBatch, i: int) -> int | None:
    """The queue offset that a record carries for this queue; None if the record names another queue."""
    record = batch.columns[:, i]
    if is_light(files.topic):
        properties = _raw(batch, i, codes.PROPERTIES_AT, codes.PROPERTIES_LENGTH)
        return light_offset(decode_properties(properties), files.topic)
    topic = decode_utf8(_raw(batch, i, codes.TOPIC_AT, codes.TOPIC_LENGTH))
    is_own = (topic, record[codes.QUEUE_ID]) == (files.topic, files.queue_id)
    return int(record[codes.QUEUE_OFFSET]) if is_own else None


def _raw(batch: RecordBatch, i: int, at: int, length: int) -> bytes:
    record = batch.columns[:, i]
    return batch.buffer[record[at] : record[at] + record[length]].tobytes()


def _joins(held: Finding, finding: Finding) -> bool:
    assert held.queue_offset is not None
    follows = held.queue_offset + held.count == finding.queue_offset
    return follows and (held.kind, held.level) == (finding.kind, finding.level)


def _runs(records: list[tuple[int, int]], more: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (first, count) of each run of consecutive queue offsets; the last count includes ``more``."""
    start = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or records[at][0] != records[at - 1][0] + 1:
            yield records[start], at - start + (more if at == len(records) else 0)
            start = at
