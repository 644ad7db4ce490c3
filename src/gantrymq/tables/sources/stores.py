"""Store directories as the source of a landing: running, stopped, crashed or damaged ones.

It takes no lock and writes nothing. Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from gantrymq.errors import ConfigError
from gantrymq.fs.real import RealFileSystem
from gantrymq.tables.selection import TopicChoice
from gantrymq.tables.sources.log_part import LogPart
from gantrymq.tables.sources.steps import AuditFinding, Lag, Step, StepPart
from gantrymq.tables.sources.store_plan import StorePlan, StoreSurveys, mark_at, plan_store
from gantrymq.tables.state import LogPosition, QueuePosition, TableState
from gantrymq.tools.locations import NamedStore, find_stores
from gantrymq.tools.queue_key import QueueKey
from gantrymq.tools.read.record_lookup import RecordLookup


class StoreMessages:
    """The stores that ``paths`` name; implements :class:`gantrymq.tables.sources.steps.MessageSource`."""

    def __init__(self, paths: Sequence[str], choice: TopicChoice, surveys: StoreSurveys | None = None) -> None:
        """``surveys`` are those of the pass, if several tables share them."""
        self._paths = tuple(paths)
        self._choice = choice
        self._surveys = surveys
        self._read: dict[str, tuple[LogPosition | None, LogPosition]] = {}

    def _stores(self) -> list[NamedStore]:
        return find_stores(self._paths)

    def topics(self) -> list[str]:
        """The topics that the choice lands and that have queues, sorted."""
        surveys = self._surveys or StoreSurveys()
        topics = {topic for store in self._stores() for topic, _, _ in surveys.of(store)[0].queues}
        return sorted(filter(self._choice.chooses, topics))

    def steps(self, state: TableState, commit_rows: int) -> Iterator[Step]:
        """What is new in the logs. Raises NotAStoreError, StoreError."""
        plans = self._plans(state, commit_rows, self._surveys or StoreSurveys())
        for plan in plans:
            self._refuse_renamed(plan, state)
        for plan in plans:
            is_empty = not (plan.rows or any(plan.findings))  # otherwise only a commit tells that it has landed
            if plan.log is not None and is_empty:
                self._read[plan.broker] = (state.logs.get(plan.broker), plan.log)
        yield from _steps(plans, commit_rows)

    def _refuse_renamed(self, plan: StorePlan, state: TableState) -> None:
        """Raise ConfigError for a log that has landed under another name of its broker: it would land twice."""
        if plan.broker in state.logs:
            return
        present = {store.broker for store in self._stores()}
        with closing(RecordLookup.of(RealFileSystem(), plan.plan.log)) as lookup:
            for broker, log in state.logs.items():
                if broker in present or all(
                    mark_at(lookup, phy_offset) != mark for phy_offset, mark in log.marks.items()
                ):
                    continue
                allowed = (
                    f"the name {broker}, under which this log has landed: put brokerName={broker} into a broker.conf"
                )
                raise ConfigError("brokerName", plan.broker, f"{allowed} beside the store, or choose another TABLE")

    def lag(self, state: TableState) -> Lag:
        """What is new in the logs now."""
        return _lag([(plan, 0) for plan in self._plans(state, 1 << 60, StoreSurveys())])

    def _plans(self, state: TableState, commit_rows: int, surveys: StoreSurveys) -> list[StorePlan]:
        return [
            plan_store(store, state, self._choice, commit_rows, self._log_read(store.broker, state), surveys)
            for store in self._stores()
        ]

    def _log_read(self, broker: str, state: TableState) -> LogPosition | None:
        """How far a log was read: further than the table says if nothing of it was to land since its last commit."""
        stated = state.logs.get(broker)
        before, after = self._read.get(broker, (None, stated))
        return after if before == stated else stated


def _steps(plans: Sequence[StorePlan], commit_rows: int) -> Iterator[Step]:
    """The segments of all stores as steps. Segments of several stores share a step if it has room for them."""
    waiting: list[tuple[StorePlan, int]] = []
    rows = 0
    cursors = {plan.broker: 0 for plan in plans}
    for plan in plans:
        for number, segment in enumerate(plan.segments):
            if waiting and (rows + segment.rows > commit_rows or any(segment is plan for segment, _ in waiting)):
                yield _step(waiting, plans, cursors)
                waiting, rows = [], 0
            waiting.append((plan, number))
            rows += segment.rows
            cursors[plan.broker] = number + 1
    if waiting:
        yield _step(waiting, plans, cursors)


def _step(chosen: Sequence[tuple[StorePlan, int]], plans: Sequence[StorePlan], cursors: dict[str, int]) -> Step:
    parts: list[StepPart] = []
    queues: dict[QueueKey, QueuePosition] = {}
    logs: dict[str, LogPosition] = {}
    findings: list[AuditFinding] = []
    for plan, number in chosen:
        segment = plan.segments[number]
        if segment.rows:
            bounds = segment.begin, segment.end
            cuts = tuple(segment.cuts)
            parts.append(LogPart(plan.broker, plan.plan, *bounds, plan.before, plan.generations, cuts))
        queues |= plan.queues_after(number)
        logs |= plan.log_after(number)
        findings += plan.findings[number]
    lag = _lag([(plan, cursors[plan.broker]) for plan in plans])
    return Step(tuple(parts), queues, logs, tuple(findings), lag)


def _lag(cursors: Sequence[tuple[StorePlan, int]]) -> Lag:
    """What is left of each plan from a segment on."""
    messages = size_bytes = 0
    seconds = 0.0
    for plan, number in cursors:
        left = plan.segments[number:]
        rows = sum(segment.rows for segment in left)
        if not rows:
            continue
        messages += rows
        size_bytes += left[-1].end - left[0].begin
        newest = max(segment.last_ms for segment in left)
        oldest = (
            plan.segments[number - 1].last_ms if number else min(segment.last_ms for segment in left if segment.rows)
        )
        seconds = max(seconds, (newest - oldest) / 1000)
    return Lag(messages, size_bytes, max(seconds, 0.0))
