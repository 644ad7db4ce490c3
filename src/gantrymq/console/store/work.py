"""What the background jobs of the console do: verify a store, and count its pending messages.

The functions run in a process of their own (:mod:`gantrymq.console.store.jobs`). They take no lock and write nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gantrymq.clock import SystemClock
from gantrymq.config.reading import Reading
from gantrymq.console.store.jobs import JobReporter
from gantrymq.tools.outlook import Outlook
from gantrymq.tools.pending.due_times import DueTimes
from gantrymq.tools.pending.pending import PendingMessages, Total, Totals, first_due, holds_pending
from gantrymq.tools.pending.waiting import PendingMessage
from gantrymq.tools.verify import VerifySummary
from gantrymq.tools.verify_report import FindingGroups

FIRST_DUE = 200


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verify. ``outlook`` is only there for a damaged store, and at the end."""

    summary: VerifySummary
    groups: FindingGroups
    read_ms: float
    outlook: Outlook | None = None


def verify(reporter: JobReporter, path: Path, reading: Reading) -> VerifyResult:
    """Verify the store at ``path``. Raises as verify_store does."""
    from gantrymq.broker.tables.persistence import table_decoders
    from gantrymq.tools.outlook import look_ahead
    from gantrymq.tools.verify import verify_store

    clock = SystemClock()
    began_s = clock.monotonic_s()

    def result(outlook: Outlook | None = None) -> VerifyResult:
        return VerifyResult(verification.summary, groups, read_ms, outlook)

    groups, read_ms = FindingGroups(), 0.0
    verification = verify_store(
        path,
        reading.config,
        given=reading.given,
        progress=reporter.progress,
        decoders=table_decoders(),
        queue_progress=reporter.progress,
    )
    for finding in verification:
        groups.add(finding)
        reporter.partial(result)
    read_ms = (clock.monotonic_s() - began_s) * 1000
    if not verification.summary.findings:
        return result()
    reporter.partial(result)
    return result(look_ahead(path, reading.config, given=reading.given, progress=reporter.progress))


@dataclass(frozen=True, slots=True)
class PendingResult:
    """The pending messages of a store at ``now_ms``: totals, due times, and the ``first`` that are due.

    ``problems`` are texts about damaged files. ``unreadable`` and ``passed_over`` are those of PendingMessages.
    """

    now_ms: int
    totals: list[Total]
    due_times: DueTimes
    first: list[PendingMessage]
    problems: list[str]
    unreadable: int
    passed_over: int


def count_pending(reporter: JobReporter, path: Path, reading: Reading) -> PendingResult:
    """Count the pending messages of the store at ``path``. Raises as StoreReader.open does."""
    from gantrymq.store.reader import StoreReader

    now_ms = SystemClock().now_ms()
    totals, due_times = Totals(now_ms), DueTimes(now_ms)
    with closing(
        StoreReader.open(
            path,
            reading.config,
            given=reading.given,
            progress=reporter.progress,
            trusts_writer=True,
            skips_lost=True,
            reads_queue=holds_pending,
        )
    ) as reader:
        pending_messages = PendingMessages(reader, now_ms, report=reporter.progress)
        counted: Iterator[PendingMessage] = due_times.counted(totals.counted(pending_messages))
        first = first_due(counted, FIRST_DUE)
        problems = [*pending_messages.problems, *map(str, reader.problems)]
        return PendingResult(
            now_ms, list(totals), due_times, first, problems, pending_messages.unreadable, pending_messages.passed_over
        )
