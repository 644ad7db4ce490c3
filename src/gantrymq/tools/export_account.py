"""The account of loss of an export: queues, checkpoint and index of the store against the exported records.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from gantrymq.clock import SystemClock
from gantrymq.format.names import parse_offset_name
from gantrymq.format.queue_units import UNIT_DTYPE, Units
from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.api import FileSystem
from gantrymq.store.log.log_reader import LogFile
from gantrymq.store.queue.owner import is_near
from gantrymq.store.queue.unit_source import UnitSource
from gantrymq.tools.audit.differences import NO_PLACE
from gantrymq.tools.audit.loss_account import missing_end
from gantrymq.tools.audit.queue_account import QueueAccount, RecordsElsewhere
from gantrymq.tools.audit.queue_runs import Coverage, QueueChoice, QueueName, QueueRun, choose
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.foreign_log_files import not_compared
from gantrymq.tools.read.intact_records import FoundRecords
from gantrymq.tools.read.log_extent import LogExtent, LostPlaces
from gantrymq.tools.read.log_places import LEFT_OUT, is_within_retention, log_files, missing_front
from gantrymq.tools.read.queue_files import unit_at
from gantrymq.tools.read.record_lookup import RecordClaim, RecordLookup, claims_at
from gantrymq.tools.reports import LossAccount, LostMessages, LostRange, Quarantined, RepairedRecord

_MAX_MISNAMED = 64  # consecutive messages of a queue: a longer run is not explained by flipped bits
_ALONE = "it is alone there, and another queue lacks a message of this offset"
_UNKNOWN_QUEUE = "a queue without another message: a bit of its topic or queue id may be wrong"


def decide(
    fs: FileSystem, plan: ExportPlan, contents: FoundRecords, runs: Mapping[QueueName, Sequence[QueueRun]]
) -> tuple[ExportPlan, dict[QueueName, QueueChoice]]:
    """What counts of what an export by ``plan`` found: the plan, corrected if rows would be wrong, and the choices."""
    choices = choices_of(fs, plan, contents, runs)
    needed, true_queues = _needed_choices(plan, runs, choices), _misnamed(fs, plan, contents, choices)
    return replace(plan, choices=needed, true_queues=true_queues) if needed or true_queues else plan, choices


def choices_of(
    fs: FileSystem, plan: ExportPlan, contents: FoundRecords, runs: Mapping[QueueName, Sequence[QueueRun]]
) -> dict[QueueName, QueueChoice]:
    """Decide which records of each queue count."""
    choices = {}
    for name, runs_of_queue in runs.items():
        place_of = partial(_place_of, fs, plan, name)
        choices[name] = choose(runs_of_queue, plan.begin_of(name), place_of)
    lost = LostPlaces(contents.lost())
    for name, choice in choices.items():
        only = choice.only
        if only is not None and _place_of(fs, plan, name, only.begin) != only.phy_offset:
            homes = [other for other in choices if is_near(name, other) and _lacks(choices[other], only, lost)]
            if homes:
                likely = (*homes[0], only.begin) if len(homes) == 1 else None
                span = only.phy_offset, only.phy_end - only.phy_offset
                choice.quarantine(Quarantined(*name, only.begin, *span, _ALONE, likely))
    return choices


def _place_of(fs: FileSystem, plan: ExportPlan, name: QueueName, queue_offset: int) -> int:
    """The physical offset in the unit of a queue offset; -1 if there is none."""
    return _unit_of(fs, plan, name, queue_offset)[0]


def _unit_of(fs: FileSystem, plan: ExportPlan, name: QueueName, queue_offset: int) -> tuple[int, int]:
    """The physical offset and the size in the unit of a queue offset; (-1, 0) if there is none."""
    size = plan.config.mapped_file_size_consume_queue
    unit = unit_at(plan.queues_of(fs), plan.paths.consume_queue, size, *name, queue_offset)
    return unit[:2] if unit is not None else (-1, 0)


def _needed_choices(
    plan: ExportPlan, runs: Mapping[QueueName, Sequence[QueueRun]], choices: Mapping[QueueName, QueueChoice]
) -> dict[QueueName, QueueChoice]:
    """The choices of the queues that ``plan`` would export wrongly without them."""
    needed = {}
    for name, choice in choices.items():
        begin = plan.begin_of(name) or 0
        counted = [run for run in runs[name] if run.phy_offset >= begin]
        if not choice.is_trivial(counted):
            needed[name] = choice
    return needed


def _misnamed(
    fs: FileSystem, plan: ExportPlan, contents: FoundRecords, choices: Mapping[QueueName, QueueChoice]
) -> dict[int, QueueName]:
    """The true queue, by physical offset, of records that name a wrong one: no CRC covers topic and queue id.

    A record belongs to another queue if that queue's unit points to it, no other record has the unit's queue offset,
    and the record carries exactly this offset and size.
    """
    files = _log_now(fs, plan)
    extent = _extent(fs, plan, contents, files)
    unit_of: dict[int, tuple[QueueName, int, int]] = {}
    lost = LostPlaces(extent.lost)
    for run in _compared(fs, plan, extent, choices).messages:
        name = run.topic, run.queue_id
        for queue_offset in range(run.begin, run.end) if run.count <= _MAX_MISNAMED else ():
            phy_offset, size = _unit_of(fs, plan, name, queue_offset)
            if phy_offset >= 0 and lost.reason(phy_offset) is None:
                unit_of[phy_offset] = name, queue_offset, size
    true_queues = {}
    with closing(RecordLookup.of(fs, files)) as lookup:
        for phy_offset, claim in claims_at(lookup, unit_of).items():
            name, queue_offset, size = unit_of[phy_offset]
            stated_queue = claim.topic, claim.queue_id
            is_near = stated_queue != name and (stated_queue[0] == name[0] or stated_queue[1] == name[1])
            is_it = is_near and (claim.queue_offset, claim.size_bytes) == (queue_offset, size)
            if is_it and _unit_of(fs, plan, stated_queue, queue_offset)[0] != phy_offset:
                true_queues[phy_offset] = name
    return true_queues


def _lacks(choice: QueueChoice, only: QueueRun, lost: LostPlaces) -> bool:
    """Whether a queue lacks exactly the message that the record ``only`` would be.

    If the queue ends just before that message, the answer is True only if the log has lost no record in between.
    """
    before, end = only.begin - 1, choice.covered.upto
    if end == only.begin:
        return not lost.has_between(choice.begin, only.phy_offset)
    return (only.begin, only.end) in choice.covered.gaps(end) and (before < 0 or choice.covered.is_covered(before))


def account_of(
    fs: FileSystem,
    plan: ExportPlan,
    contents: FoundRecords,
    choices: Mapping[QueueName, QueueChoice],
    undecodable: Mapping[int, str],
) -> LossAccount:
    """The messages that the store had, that ``plan`` selects, and that are not among the records found.

    ``undecodable`` maps the physical offset of a record whose body cannot be decompressed to the reason.
    """
    account = compare_export(fs, plan, contents, choices, undecodable)
    account.short_queues, account.filled, account.expired = [], [], []
    return account


def compare_export(
    fs: FileSystem,
    plan: ExportPlan,
    contents: FoundRecords,
    choices: Mapping[QueueName, QueueChoice],
    undecodable: Mapping[int, str],
) -> LossAccount:
    """As :func:`account_of`, with the messages that retention has deleted (``expired``) and filled slots."""
    files = _log_now(fs, plan)
    extent = _extent(fs, plan, contents, files)
    lost = extent.lost
    account = _compared(fs, plan, extent, choices)
    account.not_compared += not_compared(files)
    with closing(RecordLookup.of(fs, files)) as lookup:
        account.messages += _of_damaged_records(lookup, plan, lost, choices, account.messages)
        account.messages += _of_undecodable(lookup, undecodable)
        account.messages = list(_within(plan, account.messages))
        ranges = [
            *lost,
            *(
                gap
                for gap in _skipped(plan)
                if gap.start >= plan.log_begin or LostPlaces(lost).reason(gap.start) is None
            ),
            *(gap for name, choice in choices.items() for gap in _duplicates(plan, name, choice)),
        ]
        if not plan.has_end and _reads_the_end(plan, files):
            ranges += missing_end(fs, plan.paths, plan.config, extent, account)
        account.ranges = sorted(_of_wanted_topics(lookup, plan, ranges), key=lambda gap: gap.start)
        account.repaired = list(_renamed(lookup, plan.true_queues))
    account.misfiled = plan.filed.misfiled if plan.filed is not None else []
    account.quarantine([choice.quarantined for choice in choices.values() if choice.quarantined is not None])
    for name, choice in choices.items():
        account.repaired += _repaired(name, choice)
        if (
            choice.only is not None
            and choice.quarantined is None
            and not plan.queues_of(fs).exists(plan.paths.consume_queue / name[0] / str(name[1]))
        ):
            account.repaired.append(_repair(name, choice.only, choice.only.begin, _UNKNOWN_QUEUE))
    return account


def _extent(fs: FileSystem, plan: ExportPlan, contents: FoundRecords, files: Sequence[LogFile]) -> LogExtent:
    lost = [gap for gap in [*contents.lost(), *_damaged_end(fs, plan, contents)] if gap.start < plan.end]
    begin, limit = _begin(plan, files), _limit(plan, files)
    reads_begin = begin == plan.log_begin > 0
    front = missing_front(plan.log, plan.skipped, plan.config.mapped_file_size_commit_log) if reads_begin else None
    if front is not None:
        begin, lost = front.start, [front, *lost]
    is_young = reads_begin and is_within_retention(fs, plan.log, plan.config, SystemClock())
    return LogExtent(begin, contents.end_offset, lost, limit=limit, begins_too_late=is_young)


def _log_now(fs: FileSystem, plan: ExportPlan) -> list[LogFile]:
    """The log files that are still there: a writer's retention may have deleted the first ones meanwhile."""
    if not plan.is_live:
        return plan.log
    there = {file.path for file in log_files(fs, plan.paths)[0]}
    return [file for file in plan.log if file.path in there]


def _skipped(plan: ExportPlan) -> Iterator[LostRange]:
    """The ranges of the log files that were not read."""
    for path in plan.skipped:
        base = parse_offset_name(path.name) or 0
        yield LostRange(
            path, base, base + plan.config.mapped_file_size_commit_log, f"the file was left out: {LEFT_OUT}"
        )


def _compared(
    fs: FileSystem, plan: ExportPlan, extent: LogExtent, choices: Mapping[QueueName, QueueChoice]
) -> LossAccount:
    def old_place(topic: str, queue_id: int, queue_offset: int) -> int:
        return _place_of(fs, plan, (topic, queue_id), queue_offset)

    def has(queue: QueueName, queue_offset: int) -> bool:
        return queue in choices and choices[queue].covered.is_covered(queue_offset)

    def points_to(queue: QueueName, queue_offset: int, phy_offset: int) -> bool:
        if not has(queue, queue_offset) or not choices[queue].takes(queue_offset, phy_offset):
            return False
        # A record whose own queue points to another place was written over the record that was here. The export has
        # it, but the unit that points here is evidence of the record that was lost.
        return old_place(*queue, queue_offset) in (NO_PLACE, phy_offset)

    if plan.filed is not None:
        plan.filed.hide_foreign(extent)
    slots = {name: FoundSlots(choice, extent.end - 1) for name, choice in choices.items()}
    with closing(RecordLookup.of(fs, plan.log)) as lookup:
        elsewhere = RecordsElsewhere(lookup, points_to, has, old_place)
        size = plan.config.mapped_file_size_consume_queue
        account = QueueAccount(plan.queues_of(fs), plan.paths, size, extent, elsewhere)
        takes_queue = plan.selection.takes_queue
        return account.compare(slots, takes_queue, says_places=False, begins=plan.compared_from)


class FoundSlots(UnitSource):
    """The slots of a queue that the export has a message for, as units that all point to ``phy_offset``."""

    def __init__(self, choice: QueueChoice, phy_offset: int) -> None:
        self._covered: Coverage = choice.covered
        self._phy_offset = phy_offset

    @property
    def first(self) -> int:
        """The first slot with a message."""
        gaps = self._covered.gaps(self.end)
        return gaps[0][1] if gaps and gaps[0][0] == 0 else 0

    @property
    def end(self) -> int:
        """The slot after the last message."""
        return self._covered.upto

    def units(self, begin: int, end: int) -> Units:
        """The units in the slots [begin, end)."""
        units = np.zeros(end - begin, UNIT_DTYPE)
        is_covered = np.arange(begin, end) < self.end
        for low, high in self._covered.gaps(self.end):
            is_covered[max(low - begin, 0) : max(high - begin, 0)] = False
        units["phy_offset"][is_covered] = self._phy_offset
        units["size"][is_covered] = MIN_RECORD_SIZE
        return Units(units)


def _begin(plan: ExportPlan, files: Sequence[LogFile]) -> int:
    """The physical offset from which missing messages are reported."""
    if not plan.files:
        return 0 if not files else plan.end
    begin = max(plan.files[0].begin, plan.log_begin)
    return max(begin, files[0].base) if plan.is_live and files else begin


def _limit(plan: ExportPlan, files: Sequence[LogFile]) -> int:
    return min(plan.end, LogExtent(0, 0, ()).limit, *([] if _reads_the_end(plan, files) else [plan.files[-1].end]))


def _reads_the_end(plan: ExportPlan, files: Sequence[LogFile]) -> bool:
    """Whether the plan reads the last file of the log."""
    return not plan.files or not files or plan.files[-1].base >= files[-1].base


def _damaged_end(fs: FileSystem, plan: ExportPlan, contents: FoundRecords) -> Iterator[LostRange]:
    """Records with a wrong CRC after the last whole one. A store that was not closed has no certain message there."""
    if not fs.exists(plan.paths.abort):
        yield from (gap for gap in contents.tail() if gap.reason == StopReason.CRC)


def _of_damaged_records(
    lookup: RecordLookup,
    plan: ExportPlan,
    lost: Iterable[LostRange],
    choices: Mapping[QueueName, QueueChoice],
    named: Iterable[LostMessages],
) -> Iterator[LostMessages]:
    """Damaged records that no unit points to, with the topic, queue and offset that the records still carry."""
    known = {(lost.topic, lost.queue_id, offset) for lost in named for offset in range(lost.begin, lost.end)}
    reasons = {gap.start: gap.reason for gap in lost if gap.reason == StopReason.CRC}
    for phy_offset, claim in claims_at(lookup, reasons).items():
        name = claim.topic, claim.queue_id
        choice = choices.get(name)
        is_there = choice is not None and choice.covered.is_covered(claim.queue_offset)
        is_older = phy_offset < (choice.begin if choice is not None else plan.begin_of(name) or 0)
        if plan.selection.takes_queue(*name) and not is_there and not is_older and claim[:3] not in known:
            yield _lost(claim, reasons[phy_offset])


def _of_undecodable(lookup: RecordLookup, undecodable: Mapping[int, str]) -> Iterator[LostMessages]:
    for phy_offset, claim in claims_at(lookup, undecodable).items():
        yield _lost(claim, undecodable[phy_offset])


def _lost(claim: RecordClaim, reason: str) -> LostMessages:
    end = claim.phy_offset + claim.size_bytes
    offsets = claim.queue_offset, claim.queue_offset + 1
    return LostMessages(claim.topic, claim.queue_id, *offsets, claim.phy_offset, end, reason)


def _within(plan: ExportPlan, messages: Iterable[LostMessages]) -> Iterator[LostMessages]:
    """The messages within the selected queue offsets."""
    low, high = plan.selection.from_offset, plan.selection.to_offset
    for lost in messages:
        begin, end = max(lost.begin, low or 0), lost.end if high is None else min(lost.end, high)
        if (begin, end) == (lost.begin, lost.end):
            yield lost
        elif begin < end:
            yield LostMessages(lost.topic, lost.queue_id, begin, end, -1, -1, lost.reason)


def _of_wanted_topics(lookup: RecordLookup, plan: ExportPlan, ranges: Sequence[LostRange]) -> Iterator[LostRange]:
    """The ranges that may have held a selected message. A record with a wrong CRC still carries its queue."""
    if plan.selection.is_everything:
        yield from ranges
        return
    claims = claims_at(lookup, (gap.start for gap in ranges if gap.reason == StopReason.CRC))
    for gap in ranges:
        claim = claims.get(gap.start) if gap.reason == StopReason.CRC else None
        if claim is None or plan.selection.takes_queue(claim.topic, claim.queue_id):
            yield gap


def _duplicates(plan: ExportPlan, name: QueueName, choice: QueueChoice) -> Iterator[LostRange]:
    for run in choice.duplicates:
        path = next((file.path for file in plan.files if file.base <= run.phy_offset < file.end), plan.paths.commit_log)
        reason = f"a record that names {name[0]}/{name[1]} offset {run.begin}, which another record has"
        yield LostRange(path, run.phy_offset, run.phy_end, reason)


def _renamed(lookup: RecordLookup, true_queues: Mapping[int, QueueName]) -> Iterator[RepairedRecord]:
    for phy_offset, claim in claims_at(lookup, true_queues).items():
        stated = f"topic {claim.topic}, queue {claim.queue_id}"
        yield RepairedRecord(*true_queues[phy_offset], claim.queue_offset, phy_offset, claim.size_bytes, stated)


def _repaired(name: QueueName, choice: QueueChoice) -> Iterator[RepairedRecord]:
    for run, first in choice.renumbered:
        yield _repair(name, run, first, f"queue offset {run.begin}")
    for run in choice.moved:
        yield _repair(name, run, run.begin, "another physical offset")


def _repair(name: QueueName, run: QueueRun, queue_offset: int, stated: str) -> RepairedRecord:
    more = f", as did the {run.length - 1} after it" if run.length > 1 else ""
    size = run.phy_end - run.phy_offset if run.length == 1 else 0
    return RepairedRecord(*name, queue_offset, run.phy_offset, size, stated + more)
