"""Verifies the commit log: its directories, its records, its blanks, and the sequence of its files.

A fault is held back until it is known whether a whole record follows. If one follows, the fault is damage; otherwise
it is the tail that a recovery cuts.

Thread rule: belongs to one thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import MissingLogError
from gantrymq.format.names import offset_name
from gantrymq.format.queue_units import Bools
from gantrymq.format.record import BLANK_SIZE
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Int64s
from gantrymq.model.java import decode_utf8
from gantrymq.store.log.log_reader import Blank, Damage, End, LogEvent, LogFile
from gantrymq.store.log.mapped_file_queue import SALVAGE
from gantrymq.store.log.record_batch import RecordBatch, closes_with_crc
from gantrymq.store.paths import StorePaths, offset_files
from gantrymq.store.recovery.missing_log import first_record_offset, log_state, one_of_each
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.read.intact_records import torn_rows


def check_foreign_log_files(fs: FileSystem, paths: StorePaths, others: list[Path], file_size: int) -> Iterator[Finding]:
    """Report files that do not belong to the store, and files of records that have no log file's name."""
    entries = {directory / entry.name: entry for directory in paths.commit_logs for entry in fs.scan(directory)}
    _, duplicates = one_of_each(fs, offset_files(fs, paths.commit_logs))
    for problem in duplicates:
        yield Finding(FindingKind.FOREIGN_FILE, paths.name_of(problem.path), problem.reason)
    for path in sorted(set(others).difference(problem.path for problem in duplicates)):
        entry, text = entries.get(path), "is not part of a RocketMQ store, and is left alone; "
        phy_offset = None
        if entry is None or entry.is_directory:
            text += "a broker starts with it"
        elif not entry.is_special and (phy_offset := first_record_offset(fs, path)) is not None:
            begin = phy_offset - phy_offset % file_size
            text = f"holds records of the commit log from offset {phy_offset} on; `gantrymq store salvage` copies them"
            text += f", and a file of {file_size} bytes may be renamed to {offset_name(begin)} where that is missing"
        else:
            text += "gantrymq starts with it, RocketMQ 5.5.0 does not (it deletes an empty one that sorts last)"
        yield Finding(FindingKind.FOREIGN_FILE, paths.name_of(path), text, Severity.NOTE, phy_offset=phy_offset)


def check_missing_log(fs: FileSystem, paths: StorePaths, config: MessageStoreConfig, now_ms: int) -> Iterator[Finding]:
    """Report a missing log, or a missing begin or end of it, according to the rest of the store."""
    problems, notes = log_state(fs, paths, config, now_ms)
    for problem in problems:
        if isinstance(problem, MissingLogError):
            yield Finding(FindingKind.LOG_MISSING, paths.name_of(problem.path), problem.reason)
    for note in notes:
        yield Finding(FindingKind.LOG_MISSING, paths.name_of(note.path), note.reason, Severity.NOTE)


_OF_BODY = "its body does not have the CRC that the record names"


@dataclass(slots=True)
class RecordFacts:
    """What the check of the log needs to know about some consecutive records.

    ``end_offset`` is after the last whole record (None: there is no whole record). ``findings`` are before that and
    certain; ``suspects`` are after it.
    """

    end_offset: int | None = None
    newest_ms: int = 0
    records: int = 0
    record_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    suspects: list[Finding] = field(default_factory=list)

    def absorb(self, following: RecordFacts) -> bool:
        """Merge the facts of the following records into these. Returns False if a finding lies in between."""
        if self.suspects or following.findings or following.suspects or following.end_offset is None:
            return False
        self.end_offset, self.newest_ms = following.end_offset, max(self.newest_ms, following.newest_ms)
        self.records += following.records
        self.record_bytes += following.record_bytes
        return True


LogFact = RecordFacts | Damage | Blank | End


class LogCheck:
    """Takes all events of the log, in order (:meth:`add`), and reports what is wrong.

    ``min_offset`` is where the log begins and ``end_offset`` where it ends, which is final after :meth:`finish`.
    ``first_offset`` is where the log began before a writer's retention deleted files. ``newest_ms`` is the latest store
    timestamp, ``file_size`` the expected length of the files in bytes.
    """

    def __init__(self, paths: StorePaths, files: list[LogFile], file_size: int, *, is_closed: bool) -> None:
        self._paths = paths
        self._files = files
        self.file_size = file_size
        self._is_closed = is_closed
        self._ends: list[End] = []
        self._suspects: list[Finding] = []
        self._bad_starts: list[int] = []
        self._bad_ends: list[int] = []
        self._bad_records: set[int] = set()
        self.min_offset = self.first_offset = files[0].base if files else 0
        self.end_offset = self.min_offset
        self.newest_ms = 0
        self.records = 0
        self.record_bytes = 0

    def is_bad(self, phy_offset: int) -> bool:
        """Whether a physical offset lies in a part of the log that is known to be broken."""
        at = bisect_right(self._bad_starts, phy_offset) - 1
        return at >= 0 and phy_offset < self._bad_ends[at]

    def are_bad(self, phy_offsets: Int64s) -> Bools:
        """Which physical offsets lie in a part of the log that is known to be broken."""
        if not self._bad_starts:
            return np.zeros(len(phy_offsets), np.bool_)
        return np.array([self.is_bad(offset) for offset in phy_offsets.tolist()], np.bool_)

    def is_broken_record(self, phy_offset: int) -> bool:
        """Whether a physical offset is known to begin no whole record, or one with a wrong CRC or a torn sector."""
        return phy_offset in self._bad_records or self.is_bad(phy_offset)

    def file_at(self, phy_offset: int) -> LogFile | None:
        """The file that holds a physical offset, or None."""
        at = bisect_right(self._files, phy_offset, key=lambda file: file.base) - 1
        return self._files[at] if at >= 0 and phy_offset < self._files[at].end else None

    def begins_at(self, files: list[LogFile]) -> None:
        """Raise ``min_offset`` to the first of these files, after a writer's retention deleted earlier ones."""
        self.min_offset = max(self.min_offset, files[0].base if files else self.min_offset)

    # The files

    def check_files(self) -> Iterator[Finding]:
        """Report wrong names, wrong sizes and missing files."""
        for file in self._files:
            if file.size_bytes != self.file_size:
                is_left = file.size_bytes == 0 and file is self._files[-1]
                level = Severity.NOTE if is_left and not self._is_closed else Severity.DAMAGE
                text = f"is {file.size_bytes} bytes long, the others {self.file_size}; {SALVAGE}"
                yield self._finding(FindingKind.FILE_SIZE, file.path, text, level=level)
            if file.base % self.file_size:
                text = f"its name is no multiple of the file size {self.file_size}; move it away"
                yield self._finding(FindingKind.FOREIGN_FILE, file.path, text)
        for before, after in pairwise(self._files):
            expected = before.base + self.file_size
            if after.base > expected:
                count = -(-(after.base - expected) // self.file_size)
                self._mark_bad(expected, after.base)
                more = f", and {count - 1} more after it" if count > 1 else ""
                text = f"missing{more}"
                fields = {"phy_offset": expected, "length_bytes": after.base - expected}
                path = self._paths.directory_for(expected // self.file_size) / offset_name(expected)
                yield self._finding(FindingKind.LOG_FILE_MISSING, path, text, count=count, **fields)

    def check_foreign(self, files: list[LogFile]) -> Iterator[Finding]:
        """Report log files that probably belong to another store: those not read, and those read with a doubt."""
        for file in files:
            if text := f"is {file.left_out}" if file.left_out else file.doubt:
                yield self._range(FindingKind.LOG_FILE_FOREIGN, file.path, file.base, file.end, text)

    def _mark_bad(self, start: int, end: int) -> None:
        at = bisect_right(self._bad_starts, start)
        self._bad_starts.insert(at, start)
        self._bad_ends.insert(at, end)

    # The contents

    def add(self, event: LogEvent) -> list[Finding]:
        """Process one event; returns the findings that are certain now."""
        return self.take(self.fact(event))

    def fact(self, event: LogEvent) -> LogFact:
        """Reduce an event to a small fact, which may be computed in another process. Uses no state of the check."""
        return self._record_facts(event) if isinstance(event, RecordBatch) else event

    def take(self, fact: LogFact) -> list[Finding]:
        """Process a fact, in the order of the log; returns the findings that are certain now."""
        if isinstance(fact, RecordFacts):
            return self._check_records(fact)
        if isinstance(fact, Blank):
            return self._check_blank(fact)
        if isinstance(fact, End):
            self._ends.append(fact)
            return []
        if fact.stop is StopReason.UNREADABLE:
            text = f"the disk cannot read these bytes: {fact.error}; {SALVAGE}"
            return [self._range(FindingKind.FILE_UNREADABLE, fact.path, fact.start, fact.end, text)]
        return [*self._certain(), self._broken(fact.path, fact)]

    def _broken(self, path: Path, event: Damage | End) -> Finding:
        start, end = (event.start, event.end) if isinstance(event, Damage) else (event.offset, event.file.end)
        self._mark_bad(start, end)
        if event.stop is StopReason.ZEROS:
            return self._range(FindingKind.LOG_HOLE, path, start, end, "zeros where records should be")
        text = f"the chain of records ends at {event.stop.there_is}"
        return self._range(FindingKind.LENGTH_CHAIN, path, start, end, text)

    def _record_facts(self, batch: RecordBatch) -> RecordFacts:
        file = self.file_at(batch.start_offset)
        path = file.path if file else self._paths.root
        columns = batch.columns[:, : batch.count]
        facts = RecordFacts(records=batch.count, record_bytes=int(columns[codes.SIZE].sum()))
        is_right = columns[codes.CRC_OK] == 1
        torn = list(torn_rows(batch))
        is_right[torn] = False
        rights = np.flatnonzero(is_right)
        last = int(rights[-1]) if len(rights) else -1
        if len(rights):
            facts.end_offset = batch.base + int(columns[codes.POS, last] + columns[codes.SIZE, last])
            facts.newest_ms = int(columns[codes.STORE_TIMESTAMP, rights].max())
        for row in np.flatnonzero(~is_right).tolist():
            suspect = self._bad_record(path, batch, row, is_torn=row in torn)
            (facts.findings if row < last else facts.suspects).append(suspect)
        wrong_place = is_right & (columns[codes.PHY_OFFSET] != columns[codes.POS] + batch.base)
        for row in np.flatnonzero(wrong_place).tolist():
            text = f"the physical offset in the record is {columns[codes.PHY_OFFSET, row]}"
            facts.findings.append(self._record(FindingKind.RECORD_PHY_OFFSET, path, batch, row, text))
        return facts

    def _check_records(self, facts: RecordFacts) -> list[Finding]:
        findings: list[Finding] = []
        if facts.end_offset is not None:
            findings = [*self._certain(), *facts.findings]
            self.end_offset = facts.end_offset
            self.newest_ms = max(self.newest_ms, facts.newest_ms)
        self._suspects += facts.suspects
        bad = [
            finding
            for finding in (*facts.findings, *facts.suspects)
            if finding.kind is not FindingKind.RECORD_PHY_OFFSET
        ]
        self._bad_records.update(finding.phy_offset for finding in bad if finding.phy_offset is not None)
        self.records += facts.records
        self.record_bytes += facts.record_bytes
        return findings

    def _bad_record(self, path: Path, batch: RecordBatch, row: int, *, is_torn: bool) -> Finding:
        if is_torn:
            text = "a sector of its topic or properties was never written"
            return self._record(FindingKind.RECORD_TORN, path, batch, row, text)
        text = "the CRC over the whole record is wrong" if closes_with_crc(batch)[row] else _OF_BODY
        return self._record(FindingKind.RECORD_CRC, path, batch, row, text)

    def _check_blank(self, blank: Blank) -> list[Finding]:
        rest = blank.file.end - blank.offset
        if blank.size_bytes == rest:
            if blank.offset == self.end_offset:
                self.end_offset = blank.file.end  # a kill may come before the next file has a record
            return []
        text = f"the blank at the end has {blank.size_bytes} bytes, {rest} are left"
        return [self._range(FindingKind.BLANK_SIZE, blank.file.path, blank.offset, blank.file.end, text)]

    def _certain(self) -> list[Finding]:
        """Report what was held back as damage, because a whole record follows."""
        findings, self._suspects = self._suspects, []
        for end in self._ends:
            findings.append(self._damaged_end(end))
        self._ends = []
        return findings

    def _damaged_end(self, end: End) -> Finding:
        written, path = end.written_end - end.offset, end.file.path
        if written == 0 and end.offset == end.file.base:
            return self._broken(path, end)
        if written <= BLANK_SIZE:
            is_full = end.stop is StopReason.NO_BLANK
            rest = ": the records go to its last bytes" if is_full else f" but with {end.stop.there_is}"
            text = f"the file does not end with a blank{rest}"
            return self._range(FindingKind.BLANK_MISSING, path, end.offset, end.file.end, text)
        return self._broken(path, end)

    def finish(self) -> list[Finding]:
        """Report the tail after the last whole record."""
        findings = list(self._suspects) if self._is_closed else []
        if self._suspects and not self._is_closed:
            first, last = self._suspects[0], self._suspects[-1]
            text = f"{len(self._suspects)} torn at the end of the log; `gantrymq store recover` truncates the log there"
            tail = self._range(FindingKind.LOG_TAIL, self._paths.root / first.path, _start(first), _end(last), text)
            findings.append(replace(tail, level=Severity.NOTE, count=len(self._suspects)))
        elif self._suspects:
            self.end_offset = _end(self._suspects[-1])
        for end in self._ends:
            if end.written_end > end.offset:
                text = f"after the last record: {end.stop.there_is}; `gantrymq store recover` truncates the log there"
                tail = self._range(FindingKind.LOG_TAIL, end.file.path, end.offset, end.written_end, text)
                findings.append(replace(tail, level=Severity.NOTE))
        return findings

    # Findings

    def _finding(self, kind: FindingKind, path: Path, text: str, **fields: object) -> Finding:
        return Finding(kind, self._paths.name_of(path), text, **fields)  # type: ignore[arg-type]

    def _range(self, kind: FindingKind, path: Path, start: int, end: int, text: str) -> Finding:
        return self._finding(kind, path, text, phy_offset=start, length_bytes=end - start)

    def _record(self, kind: FindingKind, path: Path, batch: RecordBatch, row: int, text: str) -> Finding:
        column = batch.columns[:, row].tolist()
        at = column[codes.TOPIC_AT]
        return self._finding(
            kind,
            path,
            text,
            topic=decode_utf8(batch.buffer[at : at + column[codes.TOPIC_LENGTH]].tobytes()),
            queue_id=column[codes.QUEUE_ID],
            queue_offset=column[codes.QUEUE_OFFSET],
            phy_offset=batch.base + column[codes.POS],
            length_bytes=column[codes.SIZE],
        )


def _start(finding: Finding) -> int:
    return finding.phy_offset or 0


def _end(finding: Finding) -> int:
    return _start(finding) + (finding.length_bytes or 0)
