"""What people read of a verification: findings in groups, the totals, and the command that helps with its cost.

The command line prints it, and the console shows it as a page.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gantrymq.model.size import size_text
from gantrymq.model.texts import count_text, span_text
from gantrymq.store.entries import Group, group_of
from gantrymq.tools.findings import Finding, FindingKind, Severity, StorePart
from gantrymq.tools.outlook import Outlook
from gantrymq.tools.verify import VerifySummary

MAX_GROUPS = 200
SHOWN = 3  # findings of a group
_WORTH_A_RATE_BYTES = 64 << 20  # below, loading the kernels dominates
_MOUNT = "mount the disk, or give all directories of the log (-c), and verify again; else"
_PART_OF_GROUP = {
    Group.LOG: StorePart.LOG,
    Group.QUEUES: StorePart.QUEUES,
    Group.EXT: StorePart.QUEUES,
    Group.INDEX: StorePart.INDEX,
}


@dataclass(slots=True)
class FindingGroup:
    """The findings of one level, kind and file: the first ``SHOWN`` of them, and how many there are."""

    level: Severity
    kind: FindingKind
    path: Path
    first: list[Finding] = field(default_factory=list)
    count: int = 0


class FindingGroups:
    """Findings by level, kind and file, in the order in which the groups were found.

    At most ``MAX_GROUPS`` are kept; ``more`` counts the findings of other groups. ``damaged`` has kind and file of
    each finding that is damage.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Severity, FindingKind, Path], FindingGroup] = {}
        self.more = 0
        self.damaged: set[tuple[FindingKind, Path]] = set()

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        key = finding.level, finding.kind, finding.path
        if finding.level is Severity.DAMAGE:
            self.damaged.add((finding.kind, finding.path))
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) == MAX_GROUPS:
                self.more += 1
                return
            group = self._groups[key] = FindingGroup(*key)
        group.count += 1
        if len(group.first) < SHOWN:
            group.first.append(finding)

    def __iter__(self) -> Iterator[FindingGroup]:
        """Iterate over the groups."""
        return iter(self._groups.values())


def places_of(finding: Finding) -> str:
    """Queue, offsets and entry of a finding, joined by commas."""
    parts = []
    if finding.topic is not None:
        parts.append(f"{finding.topic}/{finding.queue_id}")
    if finding.queue_offset is not None:
        parts.append(f"queue offset {finding.queue_offset}")
    if finding.phy_offset is not None:
        length = f" ({finding.length_bytes} bytes)" if finding.length_bytes else ""
        parts.append(f"offset {finding.phy_offset}{length}")
    if finding.entry is not None:
        parts.append(f"{'slot' if finding.kind is FindingKind.INDEX_SLOT else 'entry'} {finding.entry}")
    if finding.count > 1:
        parts.append(f"{finding.count} in all")
    return ", ".join(parts)


def total_pairs(summary: VerifySummary, took_ms: float) -> list[tuple[str, str]]:
    """(name, text) of what was read and found."""
    is_large = summary.record_bytes > _WORTH_A_RATE_BYTES
    rate = f", {size_text(summary.record_bytes * 1000 / took_ms)}/s" if is_large else ""
    lost = summary.unreadable_messages
    return [
        ("state", "closed" if summary.last_exit_ok else "not closed: a recovery comes first when it is opened"),
        ("log", f"{count_text(summary.records, 'record')}, {size_text(summary.record_bytes)}"),
        ("queues", f"{count_text(summary.queue_entries, 'entry')} in {count_text(summary.queues, 'queue')}"),
        ("index", f"{count_text(summary.index_entries, 'entry')} in {count_text(summary.index_files, 'file')}"),
        *([("lost", f"{count_text(lost, 'message')} of queues are in damaged parts of the log")] if lost else []),
        *((kind, str(count)) for kind, count in sorted(summary.kinds.items())),
        ("took", f"{span_text(took_ms)}{rate}"),
    ]


def verdict(summary: VerifySummary) -> str:
    """The result in one line."""
    result = count_text(summary.findings, "finding") if summary.findings else "nothing is damaged"
    return f"{result}, {count_text(summary.notes, 'note')}" if summary.notes else result


# The next step


def next_steps(
    path: Path, summary: VerifySummary, damaged: Collection[tuple[FindingKind, Path]], outlook: Outlook | None
) -> list[str]:
    """The command that helps, and what others would cost; empty for a closed store without damage.

    ``damaged`` has the kind and the file of each finding.
    """
    if not summary.findings:
        recovers = f"gantrymq store recover {path} recovers it, as a start of the broker does"
        return [] if summary.last_exit_ok else [f"{recovers}; nothing to do while a broker has it open"]
    parts = {_part_of(kind, file) for kind, file in damaged}
    if StorePart.LOG in parts or (outlook is not None and outlook.lost):
        first = [_MOUNT] if any(kind is FindingKind.LOG_MISSING for kind, _ in damaged) else []
        salvage, recover = f"gantrymq store salvage {path} OUT{_salvage_text(outlook)}", _cost_of_recover(path, outlook)
        return first + ([*recover, salvage] if outlook is not None and not outlook.messages else [salvage, *recover])
    if parts & {StorePart.QUEUES, StorePart.INDEX}:
        whole = f", which has all {outlook.messages:,} messages" if outlook is not None else ""
        return [f"gantrymq store rebuild {path} rebuilds queues and index from the log{whole}"]
    if StorePart.CHECKPOINT in parts:
        return [f"gantrymq store recover {path} writes a new checkpoint"]
    if StorePart.GROUPS in parts:
        return [f"gantrymq store recover {path} sets consumer groups to the end of their queues"]
    return []


def _part_of(kind: FindingKind, file: Path) -> StorePart | None:
    """The part of the store of a finding; None for a file of no part with a step of its own."""
    if kind.part is not StorePart.OF_PATH:
        return kind.part
    return _PART_OF_GROUP.get(group_of(file.parts[0])) if file.parts else None


def _salvage_text(outlook: Outlook | None) -> str:
    if outlook is None:
        return " keeps the valid records"
    if not outlook.messages:
        return " refuses: the log has no valid record"
    lost = f"; {count_text(outlook.lost, 'message')} known to be lost" if outlook.lost else ""
    needed = size_text(outlook.salvage_needed_bytes)
    return f" keeps {count_text(outlook.messages, 'message')}{lost} (takes about {needed})"


def _cost_of_recover(path: Path, outlook: Outlook | None) -> list[str]:
    if outlook is None:
        return []
    if outlook.refusal is not None:
        return [f"gantrymq store recover {path} refuses: {outlook.refusal}"]
    if not outlook.cut:
        return [f"gantrymq store recover {path} would cut no message, and leave the damage"]
    cut = count_text(outlook.cut, "message")
    return [f"gantrymq store recover {path} would cut {cut}, among them {outlook.cut_whole:,} whole ones"]
