"""The plan of a landing from one store: what is new in its log, which queues were recreated, and what is missing.

A landing continues where the last one ended in the log. It looks at the log from its begin if that place is not the one
that was noted (the log was cut, or is another one), if another choice of topics is landed now, or if the queues were
landed from a cluster before. What each queue has already is then left out by its own position.

The obvious way, to compare the offsets of records with the position of their queue, cannot tell a recreated queue from
one that has landed: its offsets begin at 0 again. So the place in the log decides wherever it is known.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gantrymq.config.settings import PATH_SEPARATOR, MessageStoreConfig
from gantrymq.errors import StoreError
from gantrymq.format.record import decode_record
from gantrymq.fs.api import FileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.kernels import codes
from gantrymq.store.paths import StorePaths
from gantrymq.tables.selection import LandSelection, TopicChoice
from gantrymq.tables.sources.log_look import LogLook, LogSegment
from gantrymq.tables.sources.log_part import LandedBefore, files_between
from gantrymq.tables.sources.restarts import Restart, choices_with_restarts
from gantrymq.tables.sources.store_account import StoreAccount, findings_of
from gantrymq.tables.state import LogPosition, QueuePosition, TableState
from gantrymq.tools.audit.queue_runs import QueueChoice, QueueName, QueueRun
from gantrymq.tools.export_account import choices_of, decide
from gantrymq.tools.export_plan import ExportPlan, StoreSurvey, plan_export
from gantrymq.tools.locations import NamedStore
from gantrymq.tools.queue_key import QueueKey
from gantrymq.tools.read.bad_disk import ListedFileSystem
from gantrymq.tools.read.intact_records import FoundRecords, IntactRecords
from gantrymq.tools.read.log_fingerprint import LogState, compare_log, fingerprint, stored_ms_of
from gantrymq.tools.read.record_lookup import RecordLookup

_NO_COMMIT = 1 << 62


@dataclass(slots=True)
class StorePlan:
    """What one store has for a landing. ``segments`` become steps; ``findings`` is their account, by segment."""

    broker: str
    plan: ExportPlan
    before: LandedBefore
    segments: list[LogSegment]
    ends: list[dict[QueueName, int]]
    findings: list[StoreAccount]
    generations: dict[QueueName, int]
    log: LogPosition | None
    told: frozenset[int] = frozenset()
    marks_at: dict[int, int | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of new records."""
        return sum(segment.rows for segment in self.segments)

    def queues_after(self, number: int) -> dict[QueueKey, QueuePosition]:
        """The positions after a segment, of what it changes."""
        return {
            QueueKey(self.broker, *name): QueuePosition(end, self.generations.get(name, 0))
            for name, end in self.ends[number].items()
        }

    def log_after(self, number: int) -> dict[str, LogPosition]:
        """The position in the log after a segment."""
        if self.log is None:
            return {}
        if number == len(self.segments) - 1:
            return {self.broker: self.log}
        segment = self.segments[number]
        marks = dict(sorted(self.log.marks.items())[:1])
        mark = self.marks_at.get(segment.last_place)
        if mark is not None:
            marks[segment.last_place] = mark
        return {self.broker: replace(self.log, phy_offset=segment.end, marks=marks)}


class StoreSurveys:
    """The surveys of stores for one pass: what they found for one table is not looked for again for the next."""

    def __init__(self) -> None:
        self._surveys: dict[NamedStore, tuple[StoreSurvey, ListedFileSystem]] = {}

    def forget(self) -> None:
        """Forget the surveys, so that the next plan of each store makes a new one."""
        self._surveys.clear()

    def of(self, store: NamedStore) -> tuple[StoreSurvey, ListedFileSystem]:
        """The survey of a store, and what it could not list. Raises StoreError if it is not on a local file system."""
        if store not in self._surveys:
            config, given = store_config(store)
            paths = StorePaths.of(local_root(store), config)
            listed = ListedFileSystem(RealFileSystem(), paths.root, (paths.root, *paths.commit_logs))
            self._surveys[store] = StoreSurvey(listed.as_file_system(), paths, config, given), listed
        return self._surveys[store]


def plan_store(
    store: NamedStore,
    state: TableState,
    choice: TopicChoice,
    commit_rows: int,
    log: LogPosition | None,
    surveys: StoreSurveys,
) -> StorePlan:
    """Plan a landing. ``log`` is how far the log was read, which may be further than ``state`` says.

    Raises NotAStoreError, StoreError.
    """
    return _Planning(store.broker, surveys.of(store), state, choice, log).planned(commit_rows)


class _Planning:
    """One plan of one store."""

    def __init__(
        self,
        broker: str,
        surveyed: tuple[StoreSurvey, ListedFileSystem],
        state: TableState,
        choice: TopicChoice,
        log: LogPosition | None,
    ) -> None:
        self._broker, self._choice, self._log = broker, choice, log
        self._told = frozenset(state.told)
        self._known = {
            (key.topic, key.queue_id): position
            for key, position in state.queues.items()
            if key.broker == broker and choice.reads(key.topic)
        }
        self._survey, self._listed = surveyed
        self._fs: FileSystem = self._survey.fs
        # What continues a log without a fault needs no queue, and reading them costs O(queues) a landing.
        self._plan = self._planned_export(reads_queues=log is None or log.topics != choice.signature)
        self._state = self._state_of_log()
        self._reached = self._place_reached()

    def _planned_export(self, *, reads_queues: bool) -> ExportPlan:
        selection = LandSelection(choice=self._choice)
        return plan_export(self._survey, selection, decompress=True, reads_queues=reads_queues)

    def _state_of_log(self) -> LogState:
        if self._log is None or not self._log.marks:
            return LogState.SAME
        with closing(RecordLookup.of(self._fs, self._plan.log)) as lookup:
            return compare_log(self._plan.log_begin, lambda phy_offset: mark_at(lookup, phy_offset), self._log.marks)

    def _place_reached(self) -> int | None:
        """The physical offset up to which the messages of the log have landed; None if that is not known.

        Of a log that was cut, later messages than the last one that was read have taken the place of others.
        """
        if self._log is None or self._state is LogState.OTHER:
            return None
        if self._state is LogState.SAME:
            return self._log.phy_offset
        last_ms = stored_ms_of(self._log.marks[max(self._log.marks)])
        return first_stored_after(self._plan, last_ms)

    @property
    def _continues(self) -> bool:
        """Whether the log is read from where the last landing ended."""
        log = self._log
        return self._reached is not None and log is not None and log.topics == self._choice.signature

    def planned(self, commit_rows: int) -> StorePlan:
        """The plan."""
        before, start = self._before()
        plan, look, contents = self._looked(before, start, commit_rows)
        is_clean = self._is_clean(plan, look, contents)
        if not is_clean and not plan.reads_queues:
            self._plan = self._planned_export(reads_queues=True)
            plan, look, contents = self._looked(before, start, commit_rows)
        choices: dict[QueueName, QueueChoice]
        if is_clean:
            better, choices = plan, choices_of(self._fs, plan, contents, look.runs.by_queue)
        else:
            better, choices = decide(self._fs, plan, contents, look.runs.by_queue)
            if better.true_queues:
                look, contents = self._look(better, before, commit_rows)
                choices = choices_of(self._fs, better, contents, look.runs.by_queue)
        restarts, choices = choices_with_restarts(
            self._known, choices, look.runs.by_queue, self._reached, self._state, plan=better
        )
        better = self._with_restarts(better, restarts, choices)
        before = LandedBefore(
            {name: phy_offset for name, phy_offset in before.phy_offsets.items() if name not in restarts}
            | {name: position.phy_offset for name, position in restarts.items()},
            {name: offset for name, offset in before.queue_offsets.items() if name not in restarts},
        )
        ends = self._ends(look, choices, restarts)
        findings = findings_of(
            self._fs, self._broker, better, contents, choices, look, ends, restarts, self._known,
            reached=self._reached, told=self._told, is_clean=is_clean, listed=self._listed,
        )  # fmt: skip
        planned = StorePlan(
            self._broker, better, before, look.segments, ends, findings, self._generations(restarts), None, self._told
        )
        self._mark(planned, look)
        return planned

    def _before(self) -> tuple[LandedBefore, int]:
        """What has landed of each queue, and the physical offset from which the log is read."""
        offsets = {name: position.next_offset for name, position in self._known.items()}
        if self._log is None:
            return LandedBefore(queue_offsets=offsets), 0
        if self._reached is None:
            return LandedBefore(), 0
        if self._continues:
            return LandedBefore(), self._reached
        return LandedBefore(phy_offsets=dict.fromkeys(self._known, self._reached)), 0

    def _looked(self, before: LandedBefore, start: int, commit_rows: int) -> tuple[ExportPlan, LogLook, FoundRecords]:
        """The plan with the files that are read, and what is new in them."""
        is_known_log = self._state is not LogState.OTHER
        offsets = {name: position.next_offset for name, position in self._known.items() if is_known_log}
        plan = replace(self._plan, compared_from=offsets)
        if self._continues and start > plan.log_begin:
            plan = replace(plan, files=files_between(plan.files, start, _NO_COMMIT))
        return plan, *self._look(plan, before, commit_rows)

    def _look(self, plan: ExportPlan, before: LandedBefore, commit_rows: int) -> tuple[LogLook, FoundRecords]:
        look = LogLook(plan, before, commit_rows)
        if self._continues and self._reached is not None:
            look.seed(self._landed_runs(self._reached))
        return look, look.look(plan.files)

    def _landed_runs(self, reached: int) -> dict[QueueName, QueueRun]:
        """The messages that have landed of each queue, as a run that lies before ``reached``."""
        runs = {}
        for name, position in self._known.items():
            begin = self._plan.begin_of(name) or 0
            if position.next_offset and begin < max(reached, 1):
                runs[name] = QueueRun(0, position.next_offset, begin, max(reached, begin + 1), False)
        return runs

    def _is_clean(self, plan: ExportPlan, look: LogLook, contents: FoundRecords) -> bool:
        """Whether the new part of the log has no fault, each queue continues without a gap, and has no further unit.

        Then nothing is missing, and the units of the queues need not be compared with it.
        """
        runs = look.runs.by_queue
        if contents.lost() or contents.misplaced or plan.skipped or any(len(some) != 1 for some in runs.values()):
            return False
        if self._continues and self._reached is not None:
            return self._reached >= plan.log_begin
        if self._log is not None or self._known or plan.log_begin:
            return False
        return all(end == 0 or (name in runs and end <= runs[name][0].end) for name, end in plan.unit_ends.items())

    @staticmethod
    def _with_restarts(
        plan: ExportPlan, restarts: Mapping[QueueName, Restart], choices: Mapping[QueueName, QueueChoice]
    ) -> ExportPlan:
        if not restarts:
            return plan
        needed = {name: choices[name] for name in restarts if name in choices}
        compared = {name: offset for name, offset in plan.compared_from.items() if name not in restarts}
        return replace(plan, choices={**plan.choices, **needed}, compared_from=compared)

    def _ends(
        self, look: LogLook, choices: Mapping[QueueName, QueueChoice], restarts: Mapping[QueueName, Restart]
    ) -> list[dict[QueueName, int]]:
        """The next offset of each queue after each segment. A position never goes back, but at a restart."""
        ends = []
        reached = {name: position.next_offset for name, position in self._known.items() if name not in restarts}
        for segment in look.segments:
            of_segment = {
                name: end for name, end in segment.next_offsets(choices).items() if end > reached.get(name, -1)
            }
            reached |= of_segment
            ends.append(of_segment)
        return ends

    def _generations(self, restarts: Mapping[QueueName, Restart]) -> dict[QueueName, int]:
        generations = {name: position.generation for name, position in self._known.items() if position.generation}
        return generations | {name: position.generation for name, position in restarts.items()}

    def _mark(self, planned: StorePlan, look: LogLook) -> None:
        """Note the marks of the log at the end of the plan, and those at the end of each segment."""
        with closing(RecordLookup.of(self._fs, planned.plan.log)) as lookup:
            first = planned.plan.log_begin
            marks_at = {first, look.last_record, *(segment.last_place for segment in planned.segments)} - {-1}
            planned.marks_at = {phy_offset: mark_at(lookup, phy_offset) for phy_offset in sorted(marks_at)}
        end = planned.segments[-1].end
        noted = {
            phy_offset: planned.marks_at.get(phy_offset) for phy_offset in (first, look.last_record) if phy_offset >= 0
        }
        marks = {phy_offset: mark for phy_offset, mark in noted.items() if mark is not None}
        if look.last_record < 0 and self._log is not None and self._state is LogState.SAME:  # nothing is new
            marks, end = {**marks, **self._log.marks}, max(end, self._log.phy_offset)
        planned.log = LogPosition(end, marks, self._choice.signature)


def first_stored_after(plan: ExportPlan, stored_ms: int) -> int:
    """The physical offset of the first record that was stored after ``stored_ms``; the end of the log without one."""
    records = IntactRecords(RealFileSystem(), plan.files, log=plan.log)
    for batch in records:
        later = np.flatnonzero(batch.columns[codes.STORE_TIMESTAMP, : batch.count] > stored_ms)
        if len(later):
            return batch.base + int(batch.columns[codes.POS, later[0]])
    return records.contents.end_offset


def local_root(store: NamedStore) -> Path:
    """The directory of a store. Raises StoreError if it is not on a local file system."""
    if store.location.uri is not None:
        raise StoreError(str(store.location), "is not on a local disk: mount it, or copy it")
    return Path(store.location.path)


def store_config(store: NamedStore) -> tuple[MessageStoreConfig, tuple[str, ...]]:
    """The settings with which a store is read, and the keys of them that are binding."""
    logs = store.location.logs
    if not logs:
        return MessageStoreConfig(), ()
    return MessageStoreConfig(store_path_commit_log=PATH_SEPARATOR.join(logs)), ("storePathCommitLog",)


def mark_at(lookup: RecordLookup, phy_offset: int) -> int | None:
    """The fingerprint of the record at a physical offset, or None."""
    record = lookup.record(phy_offset)
    if record is None:
        return None
    raw, layout = record
    return fingerprint(decode_record(memoryview(raw), 0, layout))
