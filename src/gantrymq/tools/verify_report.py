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
from gantrymq.tools.check.findings import Finding, Kind, Level
from gantrymq.tools.outlook import Outlook
from gantrymq.tools.verify import VerifySummary

MAX_GROUPS = 200
SHOWN = 3  # findings of a group
_WORTH_A_RATE_BYTES = 64 << 20  # below, loading the kernels dominates


@dataclass(slots=True)
class FindingGroup:
    """The findings of one level, kind and file: the first ``SHOWN`` of them, and how many there are."""

    level: Level
    kind: Kind
    path: Path
    first: list[Finding] = field(default_factory=list)
    count: int = 0


class FindingGroups:
    """Findings by level, kind and file, in the order in which the groups were found.

    At most ``MAX_GROUPS`` are kept; ``more`` counts the findings of other groups. ``damaged`` has kind and file of
    each finding that is damage.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Level, Kind, Path], FindingGroup] = {}
        self.more = 0
        self.damaged: set[tuple[Kind, Path]] = set()

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        key = finding.level, finding.kind, finding.path
        if finding.level is Level.DAMAGE:
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
    places = []
    if finding.topic is not None:
        places.append(f"{finding.topic}/{finding.queue_id}")
    if finding.queue_offset is not None:
        places.append(f"queue offset {finding.queue_offset}")
    if finding.phy_offset is not None:
        length = f" ({finding.length_bytes} bytes)" if finding.length_bytes else ""
        places.append(f"offset {finding.phy_offset}{length}")
    if finding.entry is not None:
        places.append(f"{'slot' if finding.kind is Kind.INDEX_SLOT else 'entry'} {finding.entry}")
    if finding.count > 1:
        places.append(f"{finding.count} in all")
    return ", ".join(places)


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
    found = count_text(summary.findings, "finding") if summary.findings else "nothing is damaged"
    return f"{found}, {count_text(summary.notes, 'note')}" if summary.notes else found


# The next step

_OF_LOG = ("log-", "length-", "blank-", "record-")
_OF_QUEUES = ("queue-", "message-", "index-")
_MOUNT = "mount the disk, or give all directories of the log (-c), and verify again; else"
_OF_CHECKPOINT = ("checkpoint-",)
_OF_GROUPS = ("consumer-",)
_OF_FILES = ("file-size", "file-unreadable")
_LOG = ("commitlog",)
_QUEUES = ("consumequeue", "consumequeue_ext", "index")


def next_steps(
    path: Path, summary: VerifySummary, damaged: Collection[tuple[Kind, Path]], outlook: Outlook | None
) -> list[str]:
    """The command that helps, and what others would cost; empty for a closed store without damage.

    ``damaged`` has the kind and the file of each finding.
    """
    if not summary.findings:
        recovers = f"gantrymq store recover {path} recovers it, as a start of the broker does"
        return [] if summary.last_exit_ok else [f"{recovers}; nothing to do while a broker has it open"]
    is_log = any(kind.value.startswith(_OF_LOG) or _is_file_of(_LOG, kind, file) for kind, file in damaged)
    is_queues = any(kind.value.startswith(_OF_QUEUES) or _is_file_of(_QUEUES, kind, file) for kind, file in damaged)
    if is_log or (outlook is not None and outlook.lost):
        first = [_MOUNT] if any(kind is Kind.LOG_MISSING for kind, _ in damaged) else []
        salvage, recover = f"gantrymq store salvage {path} OUT{_kept(outlook)}", _cost_of_recover(path, outlook)
        return first + ([*recover, salvage] if outlook is not None and not outlook.kept else [salvage, *recover])
    if is_queues:
        whole = f", which has all {outlook.kept:,} messages" if outlook is not None else ""
        return [f"gantrymq store rebuild {path} rebuilds queues and index from the log{whole}"]
    if any(kind.value.startswith(_OF_CHECKPOINT) for kind, _ in damaged):
        return [f"gantrymq store recover {path} writes a new checkpoint"]
    if any(kind.value.startswith(_OF_GROUPS) for kind, _ in damaged):
        return [f"gantrymq store recover {path} sets consumer groups to the end of their queues"]
    return []


def _is_file_of(directories: Collection[str], kind: Kind, file: Path) -> bool:
    """Whether the finding is a short or unreadable file below one of the directories."""
    return kind.value in _OF_FILES and bool(file.parts) and file.parts[0] in directories


def _kept(outlook: Outlook | None) -> str:
    if outlook is None:
        return " keeps the valid records"
    if not outlook.kept:
        return " refuses: the log has no valid record"
    lost = f"; {count_text(outlook.lost, 'message')} known to be lost" if outlook.lost else ""
    return f" keeps {count_text(outlook.kept, 'message')}{lost} (takes about {size_text(outlook.salvage_bytes)})"


def _cost_of_recover(path: Path, outlook: Outlook | None) -> list[str]:
    if outlook is None:
        return []
    if outlook.refusal is not None:
        return [f"gantrymq store recover {path} refuses: {outlook.refusal}"]
    if not outlook.cut:
        return [f"gantrymq store recover {path} would cut no message, and leave the damage"]
    cut = count_text(outlook.cut, "message")
    return [f"gantrymq store recover {path} would cut {cut}, among them {outlook.cut_whole:,} whole ones"]
