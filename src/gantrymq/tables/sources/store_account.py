"""The account of a landing from a store, by segment: gaps, repeats, restarts of a queue, and what retention removed.

It is the account of an export (:mod:`gantrymq.tools.export_account`) of what is new. Each finding belongs to the commit
that passes its offsets, so that it is written once, whatever is killed.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

from gantrymq.fs.api import FileSystem
from gantrymq.tables.sources.log_look import LogLook
from gantrymq.tables.sources.restarts import Restart
from gantrymq.tables.sources.steps import AuditFinding
from gantrymq.tables.state import QueuePosition
from gantrymq.tools.audit.queue_runs import QueueChoice, QueueName
from gantrymq.tools.export_account import compare_export
from gantrymq.tools.export_plan import ExportPlan
from gantrymq.tools.read.bad_disk import ListedFileSystem, not_listed
from gantrymq.tools.read.intact_records import FoundRecords
from gantrymq.tools.reports import LossAccount

StoreAccount = list[AuditFinding]
"""The findings of one segment."""

_EXPIRED = "deleted by retention before it was landed"
_DELETED = "its topic was deleted, or the queue recreated, before it was landed"


def findings_of(
    fs: FileSystem,
    broker: str,
    plan: ExportPlan,
    contents: FoundRecords,
    choices: Mapping[QueueName, QueueChoice],
    look: LogLook,
    ends: list[dict[QueueName, int]],
    restarts: Mapping[QueueName, Restart],
    known: Mapping[QueueName, QueuePosition],
    *,
    reached: int | None,
    told: frozenset[int],
    is_clean: bool,
    listed: ListedFileSystem,
) -> list[StoreAccount]:
    """The findings of each segment. ``ends`` then passes what is missing at the end of a queue, too.

    ``is_clean``: the new part of the log has no fault, so that the queues need not be compared.
    """
    nexts = {name: finding.next_offset for name, finding in known.items() if name not in restarts}
    findings = list(_of_restarts(broker, restarts, known))
    findings += _of_deleted(broker, plan, look, choices, known, reached)
    log_end = contents.end_offset
    if not is_clean:
        account = compare_export(fs, plan, contents, choices, {})
        account.not_compared += not_listed(listed)
        of_account = _of_account(broker, plan, account, choices, nexts, reached or 0)
        findings += [
            finding._replace(is_passed=False) if finding.phy_offset >= log_end else finding for finding in of_account
        ]
    findings = [finding for finding in findings if not _is_remembered(finding) or _hash(finding) not in told]
    by_segment = _by_segment(findings, look, ends, nexts)
    last = ends[-1]
    for finding in findings:
        name = (finding.topic or "", finding.queue_id)
        if finding.is_missing and finding.is_passed and finding.topic is not None and name not in restarts:
            passed = max((end.get(name, -1) for end in ends), default=-1)
            if finding.to_offset + 1 > max(passed, nexts.get(name, -1)):
                last[name] = finding.to_offset + 1
    return by_segment


def hashes_of(findings: Sequence[AuditFinding]) -> set[int]:
    """The hashes of the findings that no position shows as told, which a table remembers."""
    return {_hash(finding) for finding in findings if _is_remembered(finding)}


def _is_remembered(finding: AuditFinding) -> bool:
    return finding.topic is None or not finding.is_passed


def _hash(finding: AuditFinding) -> int:
    return crc32(repr(finding[:6]).encode() + finding.reason.encode())


def _of_restarts(
    broker: str, restarts: Mapping[QueueName, Restart], known: Mapping[QueueName, QueuePosition]
) -> Iterator[AuditFinding]:
    for name, restart in restarts.items():
        last = known[name].next_offset - 1
        reason = f"the queue was recreated after offset {last}: generation {restart.generation} begins"
        at = restart.first_offset, restart.first_offset, restart.phy_offset, -1
        yield AuditFinding(broker, *name, *at, reason, is_missing=False, is_fault=False)


def _of_deleted(
    broker: str,
    plan: ExportPlan,
    look: LogLook,
    choices: Mapping[QueueName, QueueChoice],
    known: Mapping[QueueName, QueuePosition],
    reached: int | None,
) -> Iterator[AuditFinding]:
    """The messages that came after the last landing, and whose topic or queue was deleted before this one."""
    for name, position in known.items():
        begin = max(choices[name].begin if name in choices else 0, plan.begin_of(name) or 0)
        for run in look.runs.by_queue.get(name, ()) if reached is not None else ():
            is_between = reached is not None and reached <= run.phy_offset < begin
            if is_between and run.begin >= position.next_offset:
                at = run.begin, run.end - 1, run.phy_offset, run.phy_end
                yield AuditFinding(broker, *name, *at, _DELETED, is_passed=False)


def _of_account(
    broker: str,
    plan: ExportPlan,
    account: LossAccount,
    choices: Mapping[QueueName, QueueChoice],
    nexts: Mapping[QueueName, int],
    reached: int,
) -> Iterator[AuditFinding]:
    named: list[tuple[int, int]] = []
    for lost in account.messages:
        name = (lost.topic, lost.queue_id)
        low = max(lost.begin, nexts.get(name, 0))
        if low >= lost.end:
            continue
        named.append((lost.phy_offset, lost.phy_end))
        is_whole = low == lost.begin
        span = (lost.phy_offset, lost.phy_end) if is_whole else (-1, lost.phy_end)
        is_front = name in nexts and low == nexts[name] and lost.phy_offset < 0 and plan.log_begin > reached
        yield AuditFinding(broker, *name, low, lost.end - 1, *span, _EXPIRED if is_front else lost.reason)
    for expired in account.expired:
        name = (expired.topic, expired.queue_id)
        low = max(expired.begin, nexts.get(name, expired.end))  # before the first landing it is no finding
        if low < expired.end:
            yield AuditFinding(broker, *name, low, expired.end - 1, -1, -1, _EXPIRED)
    repeats = {run.phy_offset for choice in choices.values() for run in choice.duplicates}
    for name, choice in choices.items():
        for run in choice.duplicates:
            if run.phy_offset >= reached:
                reason = "another record has this offset"
                at = run.begin, run.end - 1, run.phy_offset, run.phy_end
                yield AuditFinding(broker, *name, *at, reason, is_missing=False, is_fault=False)
    for finding in account.quarantined:
        if finding.phy_offset >= reached:
            at = finding.queue_offset, finding.queue_offset, finding.phy_offset, finding.phy_offset + finding.size_bytes
            yield AuditFinding(broker, finding.topic, finding.queue_id, *at, f"quarantined: {finding.reason}")
    for part in account.ranges:
        is_named = any(begin < part.end and part.start < end for begin, end in named if begin >= 0)
        if part.start >= reached and part.start not in repeats and not is_named:
            yield AuditFinding(broker, None, -1, -1, -1, part.start, part.end, part.reason)
    for other in account.not_compared:
        if other.is_damage:
            reason = f"{plan.paths.name_of(other.path)}: {other.reason}"
            yield AuditFinding(broker, None, -1, -1, -1, -1, -1, reason)


def _by_segment(
    findings: Sequence[AuditFinding], look: LogLook, ends: list[dict[QueueName, int]], nexts: Mapping[QueueName, int]
) -> list[StoreAccount]:
    """Each finding with the segment that passes its offsets, or its place in the log; the last segment otherwise."""
    by_segment: list[StoreAccount] = [[] for _ in look.segments]
    for finding in findings:
        by_segment[_segment_of(finding, look, ends)].append(finding)
    return by_segment


def _segment_of(finding: AuditFinding, look: LogLook, ends: list[dict[QueueName, int]]) -> int:
    last = len(look.segments) - 1
    if finding.topic is not None and finding.is_missing:
        name = (finding.topic, finding.queue_id)
        passing = (number for number, of_segment in enumerate(ends) if of_segment.get(name, -1) > finding.to_offset)
        return next(passing, last)
    if finding.phy_offset >= 0:
        return next((number for number, segment in enumerate(look.segments) if finding.phy_offset < segment.end), last)
    return last
