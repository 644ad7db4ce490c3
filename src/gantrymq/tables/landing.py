"""Lands what is new: one pass over the steps of a source, commit by commit.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from gantrymq.clock import Clock, SystemClock
from gantrymq.errors import ConfigError
from gantrymq.tables.bodies.body_format import BodyFormat, GrowingFormat
from gantrymq.tables.columns import AUDIT, DEAD
from gantrymq.tables.engine import Head, Landed, LandingEngine
from gantrymq.tables.errors import AnotherLanderError, LogDeletedError
from gantrymq.tables.local.target import TOPIC, TableTarget
from gantrymq.tables.maintenance.options import Maintained, MaintenanceOptions
from gantrymq.tables.options import LandOptions
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.rows import BodyGrowth, Conversion, RowKind, landed_batches
from gantrymq.tables.selection import TopicChoice
from gantrymq.tables.sources.steps import Lag, MessageSource, Step
from gantrymq.tables.sources.store_account import hashes_of
from gantrymq.tables.state import LandedCounts, TableState

DEFAULT_COMMIT_ROWS = 1_000_000

_PLANS = 20  # of a pass, each ended by retention

MakeMessageSource = Callable[[TopicChoice], MessageSource]


@dataclass(frozen=True, slots=True)
class Commit:
    """A durable commit, and what the source had left then."""

    version: int
    totals: LandedCounts
    state: TableState
    lag: Lag

    def as_json(self) -> dict[str, Any]:
        """The object that the command prints."""
        return {
            "kind": "commit",
            "version": self.version,
            **_numbers(self.totals),
            "positions": self.state.positions(),
            "lag": lag_json(self.lag),
        }


@dataclass(slots=True)
class Summary:
    """What a run has landed."""

    totals: LandedCounts = LandedCounts()
    commits: int = 0
    has_faults: bool = False
    positions: Mapping[str, Any] = field(default_factory=dict)

    def add(self, landed: Landed) -> None:
        """Count a commit."""
        self.totals = self.totals.plus(landed.totals)
        self.commits += 1
        self.has_faults |= landed.has_faults

    @property
    def is_clean(self) -> bool:
        """Whether no row is dead and nothing is missing."""
        return not (self.totals.dead or self.totals.missing or self.has_faults)

    def as_json(self) -> dict[str, Any]:
        """The object that the command prints last."""
        return {"kind": "summary", **_numbers(self.totals), "positions": self.positions, "commits": self.commits}


def joined(summaries: Sequence[Summary]) -> Summary:
    """What several landings have landed together. The positions of a queue that is in several tables are the last."""
    whole = Summary()
    for summary in summaries:
        whole.totals = whole.totals.plus(summary.totals)
        whole.commits += summary.commits
        whole.has_faults |= summary.has_faults
        for broker, topics in summary.positions.items():
            whole.positions = {**whole.positions, broker: {**whole.positions.get(broker, {}), **topics}}
    return whole


def _grows(bodies: BodyFormat) -> bool:
    return isinstance(bodies, GrowingFormat) and bodies.grows


def _with_columns(step: Step, conversion: Conversion, partition_by: PartitionBy) -> Conversion:
    """The conversion of the first step of a table, with the columns that its options need.

    As much of the step is read for it as brings them. Raises ConfigError if no message does. Bodies of which none can
    be read prove nothing about a key, while the columns of partitions must be there when the table is made.
    """
    is_partitioned = bool(set(partition_by.columns) - set(conversion.message_schema.names))
    if not _grows(conversion.bodies) or not (conversion.upserts or is_partitioned):
        partition_by.require_columns(conversion.schema)
        return conversion
    growth = BodyGrowth(conversion.bodies)
    missing: ConfigError | None = None
    for landed in chain.from_iterable(landed_batches(part, conversion, growth) for part in step.parts):
        if landed.kind is RowKind.AUDIT:
            continue
        grown = replace(conversion, bodies=growth.bodies)
        try:
            _require_columns(grown, partition_by)
            return grown
        except ConfigError as error:
            missing = error
    if missing is not None and (growth.bodies.schema.names or is_partitioned):
        raise missing
    return conversion


def _require_columns(conversion: Conversion, partition_by: PartitionBy) -> None:
    """Raise ConfigError if the table lacks a column that its options need."""
    partition_by.require_columns(conversion.schema)
    if conversion.upserts is not None:
        conversion.upserts.require_columns(conversion.schema)


def _numbers(totals: LandedCounts) -> dict[str, int]:
    return {"rows": totals.rows, "dead": totals.dead, "missing": totals.missing}


def lag_json(lag: Lag) -> dict[str, float]:
    """The object that the command prints."""
    return {"messages": lag.messages, "bytes": lag.size_bytes, "seconds": round(lag.seconds, 3)}


def tables_of(
    target: TableTarget, options: LandOptions, make_source: MakeMessageSource
) -> list[tuple[TableTarget, LandOptions]]:
    """The tables that a landing means: ``target``, or one for each topic.

    Raises ConfigError if two topics have one table, or if a table would be one of those beside a table, and what the
    source raises.
    """
    if TOPIC not in target.table:
        _refuse_side(target.table)
        return [(target, options)]
    tables: dict[str, tuple[TableTarget, LandOptions]] = {}
    for topic in make_source(options.choice()).topics():
        meant, landed = target.of_topic(topic), options.of_topic(topic)
        _refuse_side(meant.table)
        if meant.table in tables:
            other = tables[meant.table][1].topics[0]
            allowed = f"another table for each topic, and {other} and {topic} are both {meant.table}: land one apart"
            raise ConfigError("TABLE", target.table, allowed)
        tables[meant.table] = meant, landed
    return list(tables.values())


def _refuse_side(table: str) -> None:
    if table.rstrip("/").endswith((DEAD, AUDIT)):
        raise ConfigError("TABLE", table, f"a name without {DEAD} or {AUDIT} at its end: those are beside a table")


class Landing:
    """Lands in one table, pass by pass.

    The table is read at the first pass, and after one that failed. A commit refuses a table that another process has
    landed in since then, and an AnotherLanderError ends the landing.
    """

    def __init__(
        self,
        engine: LandingEngine,
        make_source: MakeMessageSource,
        options: LandOptions,
        commit_rows: int = DEFAULT_COMMIT_ROWS,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is read yet."""
        self._clock = clock or SystemClock()
        self._engine, self._make_source, self._given, self._commit_rows = engine, make_source, options, commit_rows
        self._head: Head | None = None
        self._source: MessageSource | None = None
        self._options = options
        self._conversion: Conversion | None = None
        self.summary = Summary()

    @property
    def state(self) -> TableState:
        """The state of the table after the last commit that is known."""
        return self._head.state if self._head is not None else TableState()

    def run_pass(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[Commit]:
        """Land what is new now; yields each commit when it is durable. ``stopped`` ends the pass after a commit.

        What retention deletes after the plan is planned again, and so it is named. Raises ConfigError, StoreError,
        TableError, RemotingError.
        """
        for _ in range(_PLANS):
            try:
                yield from self._planned(stopped)
                return
            except LogDeletedError as error:
                last = error
            except AnotherLanderError:
                raise
            except Exception:
                self._source = None  # the commit may have taken place: only the table knows
                raise
        raise last

    def maintain(
        self, *, compact: bool, is_exact: bool, stopped: Callable[[], bool] = lambda: False
    ) -> Maintained | None:
        """Compact and clean the table after a pass, as its options say; None without a table or a step.

        ``is_exact`` is for the only pass of a run (:class:`~gantrymq.tables.maintenance.options.MaintenanceOptions`).
        Raises AnotherLanderError, TableChangedError, TableError, DiskFullError, OSError.
        """
        ttl_s, expire_s = self._options.ttl_s, self._options.expire_s
        options = MaintenanceOptions.of(compact=compact, ttl_s=ttl_s, expire_s=expire_s, is_exact=is_exact)
        if self._head is None or not (
            options.is_any or self._given.ttl_s is not None or self._given.expire_s is not None
        ):
            return None
        try:
            self._head, done = self._engine.maintain(self._head, options, self._remembered(), stopped)
        except BaseException:
            self._source = None  # the commit may have taken place: only the table knows
            raise
        return done

    def _planned(self, stopped: Callable[[], bool]) -> Iterator[Commit]:
        """Land the steps of one plan."""
        source, conversion = self._opened()
        if self._options.ttl_s:
            conversion = replace(conversion, from_ms=self._clock.now_ms() - int(self._options.ttl_s * 1000))
        head = self._head
        for step in source.steps(head.state if head is not None else TableState(), self._commit_rows):
            if step.is_empty:
                continue
            if head is None:
                conversion = _with_columns(step, conversion, self._partition_by)
            self._head = head = head or self._create(conversion)
            landed = self._engine.land(head, step, self._state_after(head.state, step), conversion)
            self._head = head = landed.head
            conversion = self._conversion = replace(conversion, bodies=landed.bodies)
            self.summary.add(landed)
            self.summary.positions = head.state.positions()
            yield Commit(head.version, landed.totals, head.state, step.lag)
            if stopped():
                return

    def _opened(self) -> tuple[MessageSource, Conversion]:
        if self._source is None or self._conversion is None:
            self._head = head = self._engine.open()
            self._options = self._given.merged(head.state.options if head is not None else {})
            choice = self._options.choice()
            upserts, bodies = self._options.upserts(), self._options.body_format()
            self._conversion = Conversion(choice, bodies, upserts=upserts)
            if not _grows(bodies):
                _require_columns(self._conversion, self._partition_by if head is None else PartitionBy())
            self._source = self._make_source(choice)
            self.summary.positions = head.state.positions() if head is not None else {}
        return self._source, self._conversion

    @property
    def _partition_by(self) -> PartitionBy:
        return self._options.partition_by or PartitionBy()

    def _create(self, conversion: Conversion) -> Head:
        state = replace(TableState(), options=self._remembered()).next()
        head = self._engine.create(conversion.schema, self._partition_by, state)
        if head.state.commit_id != state.commit_id:
            raise AnotherLanderError(self._engine.table)
        return head

    def _remembered(self) -> dict[str, Any]:
        bodies = self._conversion.bodies.remembered() if self._conversion is not None else {}
        return {**self._options.as_json(), "bodies": dict(bodies)}

    def _state_after(self, state: TableState, step: Step) -> TableState:
        """The state of the commit of a step, whose numbers the engine adds."""
        told = set(state.told) | hashes_of(step.findings)
        return replace(
            state.next(),
            options=self._remembered(),
            queues={**state.queues, **step.queues},
            logs={**state.logs, **step.logs},
            told=tuple(sorted(told)),
        )
