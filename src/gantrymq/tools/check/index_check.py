"""Verifies the index: each file by itself, and its entries against the keys of the log.

Entries are in the order of the log. Each batch of the log is therefore compared with the entries from where the last
batch ended. Entries that do not match are checked once more at the end. Results are kept up to a bound; beyond it they
are only counted.

Thread rule: :meth:`IndexCheck.add` from one thread, the rest before or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_at,
)
from gantrymq.fs.api import Bytes
from gantrymq.kernels import codes
from gantrymq.kernels.api import index_chains, index_compare, index_hashes
from gantrymq.kernels.codes import SURELY_BEHIND
from gantrymq.store.index.index_dispatch import index_entries
from gantrymq.store.log.record_batch import RecordBatch
from gantrymq.tools.check.log_check import LogCheck
from gantrymq.tools.check.unreadable import unreadable_findings
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.bad_disk import ReadableBytes
from gantrymq.tools.read.record_lookup import RecordLookup

MAX_LISTED = 262_144
SHOWN = 4096
_ENTRIES_AHEAD = 65_536
_CHAIN_KINDS = {
    codes.CHAIN_LOOP: (FindingKind.INDEX_CHAIN_LOOP, "the predecessor of the entry is the entry itself or a newer one"),
    codes.CHAIN_BROKEN: (
        FindingKind.INDEX_CHAIN_BROKEN,
        "the predecessor of the entry is not the previous entry of its slot",
    ),
    codes.CHAIN_SLOT: (FindingKind.INDEX_SLOT, "the slot does not name its newest entry"),
}
_NO_TIMES = -1
_LOST = -2  # as begin_ms: a part of the file is unreadable, so none of it is compared
_PHY_OFFSET_AT = 4
_FAR = np.iinfo(np.int64).max


@dataclass(slots=True)
class Strays:
    """(file, entry number) of entries that did not match in their position.

    The first MAX_LISTED are listed, all are counted.
    """

    entries: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0

    def add(self, file: int, numbers: list[int]) -> None:
        """Add the entries with these numbers of the file with the number ``file``."""
        room = MAX_LISTED - len(self.entries)
        self.entries += [(file, number) for number in numbers[:room]]
        self.count += len(numbers)


@dataclass(slots=True)
class IndexComparison:
    """The result of comparing entries with a part of the log. The first of each kind are kept, all are counted."""

    strays: Strays = field(default_factory=Strays)
    wrong: list[Finding] = field(default_factory=list)
    excused_places: set[int] = field(default_factory=set)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    unseen_count: int = 0

    def append(self, following: IndexComparison) -> None:
        """Add the result of the following part of the log."""
        for file, number in following.strays.entries:
            self.strays.add(file, [number])
        self.strays.count += following.strays.count - len(following.strays.entries)
        self.wrong += following.wrong[: max(MAX_LISTED - len(self.wrong), 0)]
        self.excused_places |= following.excused_places
        self.unseen += following.unseen[: max(SHOWN - len(self.unseen), 0)]
        self.unseen_count += following.unseen_count


@dataclass(slots=True)
class CheckedIndexFile:
    """One index file, and the number of its next entry to compare. ``begin_ms`` is -1 if it cannot be trusted."""

    path: Path
    data: ReadableBytes
    slots: int
    header: IndexHeader
    begin_ms: int
    next_entry: int = 1

    @property
    def is_lost(self) -> bool:
        """Whether a part that was read is unreadable: its zeros would contradict the rest."""
        return self.begin_ms == _LOST or bool(self.data.unreadable)

    def at(self, number: int) -> int:
        """The position of an entry in the file."""
        return entry_at(self.slots, number)

    def array(self, first: int, count: int) -> Bytes:
        """The bytes of the file, with those of ``count`` entries from ``first`` on loaded."""
        self.data.prefault(self.at(first), self.at(first + count))
        return self.data.array

    def entry(self, number: int) -> IndexEntry:
        """Decode one entry."""
        return decode_entry(self.array(number, 1)[self.at(number) : self.at(number + 1)].data, 0)


class IndexCheck:
    """Checks the index ``files`` (in the order of their names), with ``slots`` slots and ``entries`` entries each."""

    def __init__(
        self,
        root: Path,
        files: list[tuple[Path, ReadableBytes]],
        slots: int,
        entries: int,
        log: LogCheck,
        lookup: RecordLookup,
        *,
        is_closed: bool,
    ) -> None:
        self._root = root
        self._slots = slots
        self._entries = entries
        self._log = log
        self._lookup = lookup
        self._is_closed = is_closed
        self._files = [self._checked(path, data) for path, data in files]
        self._current = 0
        self._excused_hashes: set[int] = set()
        self.compared = IndexComparison()

    def _checked(self, path: Path, data: ReadableBytes) -> CheckedIndexFile:
        data.prefault(0, HEADER_SIZE)
        header = decode_header(data.array[:HEADER_SIZE].data)
        file = CheckedIndexFile(path, data, self._slots, header, header.begin_timestamp_ms)
        header.index_count = min(header.index_count, self._entries)
        return file

    @property
    def entries(self) -> int:
        """The number of entries in all files."""
        return sum(file.header.index_count - 1 for file in self._files)

    # Each file by itself

    def check_files(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Finding]:
        """Check the headers and chains of all files. ``progress(done_bytes, total_bytes)`` is called before each."""
        sizes = [len(file.data.array) for file in self._files]
        for number in range(len(sizes)):
            if progress is not None:
                progress(sum(sizes[:number]), sum(sizes))
            yield from self.check_file(number)

    def check_file(self, number: int) -> Iterator[Finding]:
        """Check the header and the chains of one file."""
        file = self._files[number]
        yield from unreadable_findings(self._root, file.path, file.data)
        if file.is_lost:
            file.begin_ms = _LOST
            return
        newest, faults = np.zeros(self._slots, np.int64), np.zeros((2, SHOWN), np.int64)
        wrong, used = index_chains(file.data.array, self._slots, file.header.index_count, newest, faults)
        for entry, code in faults[:, : min(wrong, SHOWN)].T.tolist():
            kind, text = _CHAIN_KINDS[code]
            yield self._finding(kind, file, text, entry=entry)
        if wrong > SHOWN:
            text = f"{wrong - SHOWN} more chains or slots are wrong"
            yield self._finding(FindingKind.INDEX_CHAIN_BROKEN, file, text, count=wrong - SHOWN)
        yield from self._header(file, used, is_chained=not wrong)

    def _header(self, file: CheckedIndexFile, used: int, *, is_chained: bool) -> Iterator[Finding]:
        raw = int.from_bytes(file.data.array[36:HEADER_SIZE].tobytes(), "big", signed=True)
        header = file.header
        faults = []
        if raw not in {header.index_count, 0}:
            faults.append(f"indexCount is {raw}, the file holds at most {self._entries}")
        if header.hash_slot_count != used and is_chained:
            faults.append(f"hashSlotCount is {header.hash_slot_count}, {used} slots are used")
        if header.index_count > 1:
            faults += self._ends(file)
        if faults:
            yield self._finding(FindingKind.INDEX_HEADER, file, "; ".join(faults))

    def _ends(self, file: CheckedIndexFile) -> list[str]:
        """What the header states wrongly about the first and the last entry."""
        header, faults = file.header, []
        first, last = file.entry(1), file.entry(header.index_count - 1)
        named = (
            ("begin", first.phy_offset, header.begin_phy_offset, header.begin_timestamp_ms),
            ("end", last.phy_offset, header.end_phy_offset, header.end_timestamp_ms),
        )
        for name, phy_offset, stated_offset, stated_ms in named:
            stored_ms = self._stored_ms(phy_offset)
            if stored_ms is None:
                continue  # the record is gone, or the entry points nowhere and is reported
            if stated_offset != phy_offset:
                faults.append(f"{name}PhyOffset is {stated_offset}, the entry's {phy_offset}")
            if stated_ms != stored_ms:
                faults.append(f"{name}Timestamp is {stated_ms}, the record's {stored_ms}")
                if name == "begin":
                    file.begin_ms = _NO_TIMES
        return faults

    def _stored_ms(self, phy_offset: int) -> int | None:
        for _, batch in self._lookup.read(np.array([phy_offset], np.int64)):
            column = batch.columns[:, 0]
            if column[codes.SIZE] and column[codes.PHY_OFFSET] == phy_offset:
                return int(column[codes.STORE_TIMESTAMP])
        return None

    # Partial checks, for several processes

    @property
    def begins_ms(self) -> list[int]:
        """The base time of each file's entries in ms.

        -1: :meth:`check_file` found it wrong. -2: the file has unreadable pages.
        """
        return [file.begin_ms for file in self._files]

    @begins_ms.setter
    def begins_ms(self, begins_ms: list[int]) -> None:
        for file, begin_ms in zip(self._files, begins_ms, strict=True):
            file.begin_ms = begin_ms

    def first_entries(self, number: int, phy_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each of ``phy_offsets`` (rising), the entry of a file at which :meth:`check_until` stops; 0 for none."""
        file = self._files[number]
        count = file.header.index_count - 1
        if count < 1 or file.is_lost:
            return np.zeros(len(phy_offsets), np.int64)
        raw = file.array(1, count)[file.at(1) : file.at(1 + count)].reshape(count, ENTRY_SIZE)
        pointers = (
            np.ascontiguousarray(raw[:, _PHY_OFFSET_AT : _PHY_OFFSET_AT + 8]).view(">i8").ravel().astype(np.int64)
        )
        # A single entry may be damaged, so the following ones must point as far as it does.
        behind = np.concatenate([pointers, np.full(SURELY_BEHIND - 1, _FAR)])
        lowest = np.lib.stride_tricks.sliding_window_view(behind, SURELY_BEHIND).min(axis=1)
        rows = np.searchsorted(np.maximum.accumulate(lowest), phy_offsets)
        return np.where(rows < count, rows + 1, 0)

    @property
    def position(self) -> tuple[int, int]:
        """(file, entry) of the next entry to compare."""
        at = self._current
        return at, self._files[at].next_entry if at < len(self._files) else 0

    @position.setter
    def position(self, position: tuple[int, int]) -> None:
        self._current, entry = position
        for file in self._files[: self._current]:
            file.next_entry = file.header.index_count
        if self._current < len(self._files):
            self._files[self._current].next_entry = entry

    def check_until(self, phy_offset: int) -> None:
        """Skip to ``phy_offset``. There are no records in between, so entries that point there are out of place."""
        nothing = np.empty(0, np.int64)
        while self._current < len(self._files):
            expected = (nothing, nothing, nothing)
            if self._compare(self._files[self._current], expected, phy_offset, np.empty(0, np.uint8)):
                return
            self._current += 1

    # Against the log

    def add(self, batch: RecordBatch) -> None:
        """Compare the entries with the records of a batch."""
        batch.trust_positions()
        hashes, phy_offsets, stored = index_entries(batch)
        seen = np.zeros(len(hashes), np.uint8)
        while self._current < len(self._files):
            file = self._files[self._current]
            if self._compare(file, (hashes, phy_offsets, stored), batch.end_offset, seen):
                return self._note_unseen(batch, hashes, phy_offsets, seen)
            self._current += 1
        return self._note_unseen(batch, hashes, phy_offsets, seen)

    def _compare(
        self, file: CheckedIndexFile, expected: tuple[NDArray[np.int64], ...], end_offset: int, seen: Bytes
    ) -> bool:
        """Compare the entries of ``file``; returns whether it has entries left, which point further on."""
        hashes, phy_offsets, stored = expected
        while file.next_entry < file.header.index_count:
            count = min(file.header.index_count - file.next_entry, _ENTRIES_AHEAD)
            faults = np.zeros((2, count), np.int64)
            start, array = file.at(file.next_entry), file.array(file.next_entry, count)
            if file.is_lost:
                file.next_entry = file.header.index_count
                return False
            used, wrong = index_compare(
                array, start, start + count * ENTRY_SIZE,
                hashes, phy_offsets, stored, len(hashes),
                end_offset, file.begin_ms, seen, faults,
            )  # fmt: skip
            if wrong:
                self._note_wrong(file, faults[:, :wrong])
            file.next_entry += used // ENTRY_SIZE
            if used < count * ENTRY_SIZE:
                return True
        return False

    def _note_wrong(self, file: CheckedIndexFile, faults: NDArray[np.int64]) -> None:
        numbers = (faults[0] - file.at(0)) // ENTRY_SIZE
        self.compared.strays.add(self._files.index(file), numbers[faults[1] == codes.ENTRY_STRAY].tolist())
        for number in numbers[faults[1] == codes.ENTRY_HASH].tolist():
            self._wrong_hash(file, number)
        for number in numbers[faults[1] == codes.ENTRY_TIME].tolist():
            if number > 1:  # the first one's is relative to the end of the file before
                text = "its time is not that of its record"
                self._add(self._finding(FindingKind.INDEX_ENTRY_TIME, file, text, entry=number))

    def _wrong_hash(self, file: CheckedIndexFile, number: int) -> None:
        phy_offset = file.entry(number).phy_offset
        self.compared.excused_places.add(phy_offset)
        text = "the record that it points at has no key of this hash"
        self._add(self._finding(FindingKind.INDEX_ENTRY_HASH, file, text, entry=number, phy_offset=phy_offset))

    def _add(self, finding: Finding) -> None:
        if len(self.compared.wrong) < MAX_LISTED:
            self.compared.wrong.append(finding)

    def _note_unseen(
        self, batch: RecordBatch, hashes: NDArray[np.int64], phy_offsets: NDArray[np.int64], seen: Bytes
    ) -> None:
        if seen.all() or not self._is_closed:
            return
        # Since 5.5.0 a record's last entry is one for its tags. Older stores do not have it, so it is not required.
        some, of = np.empty((2, len(hashes) + codes.MAX_HASHES_OF_RECORD), np.int32)
        count, _ = index_hashes(batch.buffer, batch.columns, 0, batch.count, 0, some, of)
        with_keys = batch.columns[codes.PHY_OFFSET][of[:count]]
        rank = np.arange(len(hashes)) - np.searchsorted(phy_offsets, phy_offsets)
        keys = np.searchsorted(with_keys, phy_offsets, "right") - np.searchsorted(with_keys, phy_offsets)
        rows = np.flatnonzero((seen == 0) & (rank < keys))
        self.compared.unseen_count += len(rows)
        room = SHOWN - len(self.compared.unseen)
        self.compared.unseen += list(zip(phy_offsets[rows[:room]].tolist(), hashes[rows[:room]].tolist(), strict=True))

    # Afterwards

    def finish(self) -> Iterator[Finding]:
        """Check the entries that did not match in their position, and report keys without an entry."""
        for number, file in enumerate(self._files):
            rest = range(0) if file.is_lost else range(file.next_entry, file.header.index_count)
            self.compared.strays.add(number, list(rest))
            file.next_entry = file.header.index_count
        for begin in range(0, len(self.compared.strays.entries), SHOWN):
            self._check_strays(self.compared.strays.entries[begin : begin + SHOWN])
        yield from _joined(
            sorted(self.compared.wrong, key=lambda finding: (finding.path, finding.kind.value, finding.entry or 0))
        )
        more = self.compared.strays.count - len(self.compared.strays.entries)
        if more > 0:
            text = f"{more} more entries are out of place, and were not compared"
            yield self._finding(FindingKind.INDEX_ENTRY_NOWHERE, self._files[-1], text, count=more)
        unseen = [key for key in self.compared.unseen if not self._is_excused(*key)]
        if unseen:
            count = self.compared.unseen_count - len(self.compared.unseen) + len(unseen)
            text = "the index lacks keys of messages; `gantrymq store rebuild --index` adds them"
            path = (self._files[-1].path if self._files else self._root / "index").relative_to(self._root)
            yield Finding(FindingKind.INDEX_INCOMPLETE, path, text, Severity.NOTE, phy_offset=unseen[0][0], count=count)

    def _is_excused(self, phy_offset: int, code: int) -> bool:
        return phy_offset in self.compared.excused_places or code in self._excused_hashes

    def _check_strays(self, entry_numbers: list[tuple[int, int]]) -> None:
        entries = [self._files[file].entry(number) for file, number in entry_numbers]
        offsets = np.array([entry.phy_offset for entry in entries], np.int64)
        looked_up = np.array([self._may_be_there(offset) for offset in offsets.tolist()], np.bool_)
        rows = np.flatnonzero(looked_up)
        for some, batch in self._lookup.read(offsets[rows]):
            right = self._hashes_of(batch)
            for i, row in enumerate(rows[some].tolist()):
                file, number = entry_numbers[row]
                is_record = batch.columns[codes.SIZE, i] and batch.columns[codes.PHY_OFFSET, i] == offsets[row]
                if not is_record:
                    self._nowhere(self._files[file], number, entries[row])
                elif entries[row].key_hash not in right[i]:
                    self._wrong_hash(self._files[file], number)
        for row in np.flatnonzero(~looked_up & (offsets >= self._log.end_offset)).tolist():
            self._nowhere(self._files[entry_numbers[row][0]], entry_numbers[row][1], entries[row])

    def _may_be_there(self, phy_offset: int) -> bool:
        """Whether a physical offset is neither expired nor in a part of the log that is known to be broken."""
        return self._log.min_offset <= phy_offset < self._log.end_offset and not self._log.is_bad(phy_offset)

    @staticmethod
    def _hashes_of(batch: RecordBatch) -> list[set[int]]:
        hashes: list[set[int]] = [set() for _ in range(batch.count)]
        whole = np.flatnonzero(batch.columns[codes.SIZE, : batch.count] > 0)
        records = batch.take(batch.columns[codes.SIZE, : batch.count] > 0)
        done = 0
        while done < records.count:
            some, of = np.empty((2, codes.MAX_HASHES_OF_RECORD), np.int32)
            count, done = index_hashes(records.buffer, records.columns, done, records.count, 1, some, of)
            for code, record in zip(some[:count].tolist(), of[:count].tolist(), strict=True):
                hashes[int(whole[record])].add(code)
        return hashes

    def _nowhere(self, file: CheckedIndexFile, number: int, entry: IndexEntry) -> None:
        self._excused_hashes.add(entry.key_hash)
        is_behind = entry.phy_offset >= self._log.end_offset
        text = "points after the end of the log" if is_behind else "points at no record"
        # A recovery that cuts the log leaves the entries in place and only sets the header's end back.
        last = file.entry(file.header.index_count - 1).phy_offset
        is_cut = file.header.end_phy_offset <= entry.phy_offset and file.header.end_phy_offset < last
        level = Severity.NOTE if is_cut or (is_behind and not self._is_closed) else Severity.DAMAGE
        fields = {"entry": number, "phy_offset": entry.phy_offset}
        self._add(self._finding(FindingKind.INDEX_ENTRY_NOWHERE, file, text, level=level, **fields))

    def _finding(self, kind: FindingKind, file: CheckedIndexFile, text: str, **fields: object) -> Finding:
        return Finding(kind, file.path.relative_to(self._root), text, **fields)  # type: ignore[arg-type]


def _joined(findings: list[Finding]) -> Iterator[Finding]:
    """Merge the findings of consecutive entries with the same fault."""
    held: Finding | None = None
    for finding in findings:
        follows = held is not None and (held.entry or 0) + held.count == finding.entry
        if (
            held is not None
            and follows
            and (held.kind, held.level, held.path) == (finding.kind, finding.level, finding.path)
        ):
            held = replace(held, count=held.count + 1)
            continue
        if held is not None:
            yield held
        held = finding
    if held is not None:
        yield held
