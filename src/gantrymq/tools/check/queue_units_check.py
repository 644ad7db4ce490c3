"""Checks units that no record of the log asked for, and records whose unit was missing.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gantrymq.errors import StoreError
from gantrymq.format import names
from gantrymq.format.names import offset_name
from gantrymq.format.properties import decode_properties
from gantrymq.format.queue_entry import UNIT_SIZE, QueueEntry
from gantrymq.format.queue_ext import MAX_UNIT_SIZE, QueueExtUnit, decode_unit, is_address, to_offset
from gantrymq.format.queue_units import Units
from gantrymq.fs.api import FileSystem
from gantrymq.fs.reads import read_part
from gantrymq.kernels import codes
from gantrymq.kernels.api import tags_codes
from gantrymq.model.flags import is_consumable
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.store.paths import StorePaths
from gantrymq.store.queue.consume_queues import is_light, light_offset
from gantrymq.store.queue.owner import Slot
from gantrymq.tools.audit.differences import ClaimKind, KnownLog, SlotKind, audit, judge_claim, leads_somewhere
from gantrymq.tools.check.log_check import LogCheck
from gantrymq.tools.check.queue_check import CheckedQueue, QueueCheck
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.quarantine_list import quarantined_in
from gantrymq.tools.read.queue_files import QueueFiles
from gantrymq.tools.read.record_lookup import RecordLookup

_UNITS_AT_ONCE = 16_384
_NEAR = 8  # the greatest distance of a slot's neighbours
_WITHOUT_ENTRY = "no entry of the queue points at the record"
_OFFSET_IN_USE = f"{_WITHOUT_ENTRY}, and another record has its queue offset, so a rebuild gives it no entry; {SALVAGE}"
_RECOVERED_FILES = 3  # ConsumeQueue.recover reads the last three
_TEXTS = {
    FindingKind.RECORD_QUEUE: "the record names another queue or queue offset than the entry that points to it",
    FindingKind.QUEUE_HOLE: "the slot was never written, and entries follow it",
    FindingKind.QUEUE_FILLED: "the slot has a filler, as for a lost message: consumers skip it",
    FindingKind.QUEUE_AHEAD: "points after the end of the log; `gantrymq store recover` removes it",
    FindingKind.QUEUE_ENTRY_NOWHERE: "points at no record",
    FindingKind.QUEUE_ENTRY_OTHER_QUEUE: "points at a record of another queue",
    FindingKind.QUEUE_ENTRY_ORDER: "points at a record of another offset of the queue",
    FindingKind.QUEUE_ENTRY_RESTART: (
        "points at a record of offset 0: its topic may have been deleted and recreated there"
    ),
    FindingKind.QUEUE_ENTRY_SIZE: "has another size than its record",
    FindingKind.QUEUE_ENTRY_TAGS_CODE: "has another tags code than its record",
    FindingKind.QUEUE_EXT_ENTRY: "points to no extended unit of its record",
}
_OF_CLAIM = {
    ClaimKind.NOWHERE: FindingKind.QUEUE_ENTRY_NOWHERE,
    ClaimKind.OTHER_QUEUE: FindingKind.QUEUE_ENTRY_OTHER_QUEUE,
    ClaimKind.OUT_OF_ORDER: FindingKind.QUEUE_ENTRY_ORDER,
    ClaimKind.RESTART: FindingKind.QUEUE_ENTRY_RESTART,
}
Verdicts = NDArray[np.object_]  # a FindingKind, or None if nothing is wrong


class QueueUnitsCheck:
    """Checks what :class:`QueueCheck` left over.

    ``unreadable`` counts units that point into a part of the log that is known to be broken: the units are right, their
    messages are gone. Quarantined records have no unit.
    """

    def __init__(
        self,
        fs: FileSystem,
        paths: StorePaths,
        log: LogCheck,
        queues: QueueCheck,
        lookup: RecordLookup,
        delay_levels_ms: Sequence[int],
        *,
        is_closed: bool,
    ) -> None:
        listed = quarantined_in(fs, paths.root, lookup)
        self._quarantined = {record.phy_offset: record for record in listed}
        self._fs = fs
        self._root = paths.root
        self._log = log
        self._queues = queues
        self._lookup = lookup
        self._delay_levels_ms = np.array(delay_levels_ms, np.int64)
        self._ext_directory = paths.consume_queue_ext
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

    def _finding(self, queue: CheckedQueue, slot: int, kind: FindingKind) -> Finding:
        files = queue.files
        if kind is FindingKind.RECORD_QUEUE:
            unit = files.unit(slot)
            record = self._without(files, kind, (slot, unit.phy_offset), 1, _TEXTS[kind], Severity.DAMAGE)
            return replace(record, length_bytes=unit.size_bytes)
        text = _TEXTS[kind]
        if kind is FindingKind.QUEUE_ENTRY_NOWHERE and self._is_kept(queue, slot):
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
        phy_offset = queue.files.unit(slot).phy_offset
        is_last = slot >= queue.coverage.upto and not queue.may_be_claimed(slot)
        return is_last and self._log.min_offset <= phy_offset < self._log.end_offset

    def _level(self, files: QueueFiles, slot: int, kind: FindingKind) -> Severity:
        if kind in (FindingKind.QUEUE_FILLED, FindingKind.QUEUE_AHEAD, FindingKind.QUEUE_ENTRY_RESTART):
            return Severity.NOTE
        # If a queue was not closed, a recovery cuts the unwritten slots of its last files and writes them again.
        recovered = max(files.sizes) // UNIT_SIZE - (_RECOVERED_FILES - 1) * files.file_size // UNIT_SIZE
        is_rewritten = not self._is_closed and kind is FindingKind.QUEUE_HOLE and slot >= recovered
        return Severity.NOTE if is_rewritten else Severity.DAMAGE

    def _judge(
        self, queue: CheckedQueue, begin: int, end: int, is_head: bool, is_before_log: bool
    ) -> tuple[Verdicts, bool]:
        """The verdicts of some slots, and whether all of them lie before the log's begin.

        ``is_before_log`` says the same of the slots before these. Filled slots there are below the queue's minimum
        offset.
        """
        units, log = queue.files.units(begin, end), self._log
        known = KnownLog(log.min_offset, log.end_offset, log.are_bad)
        slots = audit(begin, units, leads_somewhere(units), known)
        verdicts = np.full(len(units), None, object)
        verdicts[slots.is_of(SlotKind.UNWRITTEN)] = FindingKind.QUEUE_HOLE
        verdicts[slots.is_of(SlotKind.IMPOSSIBLE)] = FindingKind.QUEUE_ENTRY_NOWHERE
        verdicts[slots.is_of(SlotKind.AHEAD)] = (
            FindingKind.QUEUE_ENTRY_NOWHERE if self._is_closed else FindingKind.QUEUE_AHEAD
        )
        if not is_head:
            expired = slots.is_of(SlotKind.EXPIRED)
            verdicts[expired & (units.phy_offsets < log.first_offset)] = FindingKind.QUEUE_ENTRY_ORDER
        before = np.logical_and.accumulate(slots.is_of(SlotKind.FILLED, SlotKind.EXPIRED)) & is_before_log
        verdicts[slots.is_of(SlotKind.FILLED) & ~before] = FindingKind.QUEUE_FILLED
        self.unreadable += int(slots.is_of(SlotKind.UNREADABLE).sum())
        self._look_up(queue, np.flatnonzero(slots.is_of(SlotKind.EXTRA)), begin, units, verdicts)
        return verdicts, bool(before.all())

    def _look_up(
        self,
        queue: CheckedQueue,
        rows: NDArray[np.int64],
        begin: int,
        units: Units,
        verdicts: Verdicts,
    ) -> None:
        phy_offsets = units.phy_offsets
        for some, batch in self._lookup.read(phy_offsets[rows]):
            whole = batch.columns[codes.SIZE, : batch.count] > 0
            verdicts[rows[some[~whole]]] = FindingKind.QUEUE_ENTRY_NOWHERE
            batch, which = batch.take(whole), rows[some[whole]]
            expected = np.empty(batch.count, np.int64)
            tags_codes(batch.buffer, batch.columns, batch.count, self._delay_levels_ms, expected)
            for i, row in enumerate(which.tolist()):
                verdicts[row] = self._compare(queue, begin + row, units[row], batch, i, int(expected[i]))
                if not is_light(queue.files.topic):  # the record's own queue must have a unit as well
                    self._pointed.add(int(phy_offsets[row]))

    def _compare(
        self, queue: CheckedQueue, slot: int, unit: QueueEntry, batch: RecordBatch, i: int, expected_tags: int
    ) -> FindingKind | None:
        files, (phy_offset, size, tags) = queue.files, unit
        record = batch.columns[:, i]
        if not is_consumable(int(record[codes.SYS_FLAG])):
            return FindingKind.QUEUE_ENTRY_NOWHERE
        claimed = _claimed_slot(files, batch, i)
        claim = judge_claim((files.topic, files.queue_id, slot), claimed, is_later=phy_offset > queue.begin)
        if claim is not ClaimKind.OWN:
            is_wrong_record = claim is not ClaimKind.RESTART and self._is_wrong_record(queue, slot, phy_offset, claimed)
            return FindingKind.RECORD_QUEUE if is_wrong_record else _OF_CLAIM[claim]
        if record[codes.SIZE] != size:
            return FindingKind.QUEUE_ENTRY_SIZE
        if is_address(tags):
            ext = self._ext_unit(files, to_offset(tags))
            is_right = ext is not None and (ext.tags_code, ext.store_time_ms) == (
                expected_tags,
                record[codes.STORE_TIMESTAMP],
            )
            return None if is_right else FindingKind.QUEUE_EXT_ENTRY
        return None if tags == expected_tags else FindingKind.QUEUE_ENTRY_TAGS_CODE

    def _is_wrong_record(self, queue: CheckedQueue, slot: int, phy_offset: int, claimed: Slot) -> bool:
        """Whether the record, and not its entry, has the wrong slot, so that rebuilding the queue changes nothing.

        That is so if its place lies between those of the neighbouring entries, no other record has the slot, and the
        entry of the slot that the record names points to another record.
        """
        if is_light(queue.files.topic) or not self._fits(queue, slot, phy_offset) or queue.may_be_claimed(slot):
            return False
        return not self._queues.leads_to(*claimed, phy_offset)

    @staticmethod
    def _fits(queue: CheckedQueue, slot: int, phy_offset: int) -> bool:
        """Whether the nearest right entries before and after the slot point before and after ``phy_offset``."""
        first, end = queue.files.first, queue.files.end

        def nearest(slots: range) -> int | None:
            at = next((candidate for candidate in slots if queue.coverage.is_covered(candidate)), None)
            return None if at is None else queue.files.unit(at).phy_offset

        before = nearest(range(slot - 1, max(first, slot - _NEAR) - 1, -1))
        behind = nearest(range(slot + 1, min(end, slot + _NEAR + 1)))
        is_begun = slot - _NEAR <= first if before is None else before < phy_offset
        is_ended = slot + _NEAR >= end if behind is None else phy_offset < behind
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
            if is_judged and files.unit(slot).is_filler:
                is_judged = self._log.is_broken_record(phy_offset)  # filled: explained only if the record is broken
            is_gone = phy_offset < self._log.min_offset or phy_offset in self._quarantined
            return is_gone or phy_offset in self._pointed or is_judged or any(slot in gap for gap in missing)

        left = [record for records in queue.missed for record in records.offsets if not is_explained(*record)]
        more = sum(records.count - len(records.offsets) for records in queue.missed)
        behind = [record for record in left if record[0] >= files.end]
        if behind and not self._is_closed:
            text = "the queue lacks its newest entries; `gantrymq store recover` adds them"
            yield self._without(files, FindingKind.QUEUE_BEHIND, behind[0], len(behind) + more, text, Severity.NOTE)
            left, more = [record for record in left if record[0] < files.end], 0
        is_taken = [queue.coverage.is_covered(slot) for slot, _ in left]
        for is_in_use, text in ((True, _OFFSET_IN_USE), (False, _WITHOUT_ENTRY)):
            records = [record for record, has_rival in zip(left, is_taken, strict=True) if has_rival is is_in_use]
            for first, count in _runs(records, 0 if is_in_use else more):
                yield self._without(files, FindingKind.MESSAGE_WITHOUT_ENTRY, first, count, text, Severity.DAMAGE)

    def check_quarantine(self) -> Iterator[Finding]:
        """Report the quarantined records, which are still in the log."""
        for phy_offset, record in self._quarantined.items():
            file = self._log.file_at(phy_offset)
            path = (file.path if file else self._root / names.LOST_FOUND).relative_to(self._root)
            text = "the record is quarantined: it is in lost+found, and in no queue"
            size = record.size_bytes
            yield Finding(
                FindingKind.RECORD_QUEUE,
                path,
                text,
                Severity.DAMAGE,
                *record.slot,
                phy_offset=phy_offset,
                length_bytes=size,
            )

    def _without(
        self, files: QueueFiles, kind: FindingKind, first: tuple[int, int], count: int, text: str, level: Severity
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


def _claimed_slot(files: QueueFiles, batch: RecordBatch, i: int) -> Slot:
    """The slot that a record names: of the light queue in ``files``, if it names that, or else of its own queue."""
    record = batch.columns[:, i]
    if is_light(files.topic):
        properties = _raw(batch, i, codes.PROPERTIES_AT, codes.PROPERTIES_LENGTH)
        if (offset := light_offset(decode_properties(properties), files.topic)) is not None:
            return files.topic, files.queue_id, offset
    topic = decode_utf8(_raw(batch, i, codes.TOPIC_AT, codes.TOPIC_LENGTH))
    return topic, int(record[codes.QUEUE_ID]), int(record[codes.QUEUE_OFFSET])


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
