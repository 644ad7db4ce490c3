"""Maintains a table and those beside it.

The order is: rows that are too old, small files, then versions and files that nothing needs. Each commit is whole in
itself, so a process may be killed at any time.

A file that never belonged to a commit may be that of a landing which is still running, or frozen. Its age does not
tell. So a commit without rows comes first: such a landing then fails at its own commit (AnotherLanderError), and its
files are not needed. For other programs the age counts.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gantrymq.clock import Clock, SystemClock
from gantrymq.tables.columns import AUDIT, DEAD
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import TableChangedError
from gantrymq.tables.local.format_table import FormatTable, head_at
from gantrymq.tables.maintenance.options import Maintained, MaintenanceOptions
from gantrymq.tables.maintenance.upkeep import TableUpkeep

_TRIES = 3
_PAUSE = 4  # times the duration of a run, so that it takes a fifth of the time at most
_US = 1_000_000

Stopped = Callable[[], bool]


class Maintainer:
    """Maintains one table, also again and again."""

    def __init__(self, table: FormatTable, clock: Clock | None = None) -> None:
        self._table, self._clock = table, clock or SystemClock()
        self._upkeeps = {"": TableUpkeep(table)} | {side: TableUpkeep(table.beside(side)) for side in (DEAD, AUDIT)}
        self._resume_s = self._expire_s = 0.0
        self._done = Maintained()

    def run(
        self, head: Head, options: MaintenanceOptions, remembered: Mapping[str, Any], stopped: Stopped
    ) -> tuple[Head, Maintained]:
        """All steps; returns the table after them, which keeps ``remembered`` as its options.

        ``stopped`` ends the run after a commit. Raises AnotherLanderError if another process has landed since ``head``,
        TableChangedError if another program commits again and again, TableError, OSError.
        """
        began_s = self._clock.monotonic_s()
        if not options.is_exact and began_s < self._resume_s:
            return head, Maintained()
        self._done = Maintained()
        for left in reversed(range(_TRIES)):
            try:
                for changed in self._steps(head_at(self._table, head), options, remembered):
                    head = changed
                    if stopped():
                        break
                break
            except TableChangedError:
                if not left:
                    raise
        ended_s = self._clock.monotonic_s()
        self._resume_s = ended_s + _PAUSE * (ended_s - began_s)
        return head, self._done

    def _steps(self, head: Head, options: MaintenanceOptions, remembered: Mapping[str, Any]) -> Iterator[Head]:
        """The table after each commit."""
        if any(remembered[name] != head.state.options.get(name) for name in ("ttl", "expire")):
            head = self._table.commit(head, [], replace(head.state.rewritten(), options=dict(remembered)))
            yield head
        for suffix, upkeep in self._upkeeps.items():
            at = upkeep.table.head() if suffix else head
            if at is None:
                continue
            for after in self._rewritten(upkeep, at, options, has_ttl=suffix != AUDIT):
                head = head if suffix else after
                yield head
        if options.expire_s and self._clock.monotonic_s() >= self._expire_s:
            yield self._expire(head, options)

    def _rewritten(
        self, upkeep: TableUpkeep, head: Head, options: MaintenanceOptions, *, has_ttl: bool
    ) -> Iterator[Head]:
        """One of the tables after each commit that rewrites its files."""
        if options.ttl_s and has_ttl:
            before_us = self._before_us(options.ttl_s)
            if (done := upkeep.remove_old_rows(head, before_us, int(options.ttl_slack_s * _US))) is not None:
                head = self._counted(done)
                yield head
        while options.compact and (done := upkeep.compact(head, is_exact=options.is_exact)) is not None:
            head = self._counted(done)
            yield head

    def _counted(self, done: tuple[Head, Maintained]) -> Head:
        self._done += done[1]
        return done[0]

    def _expire(self, head: Head, options: MaintenanceOptions) -> Head:
        """Remove files that no commit of the span needs."""
        before_us = self._before_us(options.expire_s)
        expired = []
        for suffix, upkeep in self._upkeeps.items():
            at = upkeep.table.head() if suffix else head
            if at is not None:
                contents = upkeep.table.contents(at)
                pending = {file.path for file in head.state.pending.get(suffix, ())}
                expired.append((contents, contents.expired(before_us, pending)))
        if any(files.orphans for _, files in expired):
            head = self._table.commit(head, [], head.state.rewritten())
        for contents, files in expired:
            unneeded = [*files.committed, *files.orphans]
            contents.remove(unneeded)
            self._done += Maintained(removed_files=len(unneeded), freed_bytes=sum(file.size_bytes for file in unneeded))
        self._expire_s = self._clock.monotonic_s() + options.expire_pause_s
        return head

    def _before_us(self, span_s: float) -> int:
        return self._clock.now_ms() * 1000 - int(span_s * _US)
