"""``gantrymq table land``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from gantrymq.cli.options import AsJson
from gantrymq.cli.spark_engine import Engine, EngineOption, SparkConf
from gantrymq.cli.stop_signals import Interrupted, StopSignals
from gantrymq.cli.table.exported_metrics import exported_metrics
from gantrymq.cli.table.land_options import (
    Body,
    CommitGroup,
    CommitRows,
    Compact,
    DeadLetters,
    Every,
    Expire,
    FormatOption,
    MessageName,
    MetricsSettings,
    Once,
    OpField,
    PartitionOption,
    Paths,
    Retries,
    SchemaFile,
    Topic,
    Topics,
    Ttl,
    UpsertBy,
)
from gantrymq.cli.table.options import CatalogName, CatalogSet, Warehouse, client_settings, shown_offsets, target
from gantrymq.cli.telling import Tell, telling
from gantrymq.cli.terminal import FINDINGS, print_line, warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gantrymq.tables.engine import LandingEngine
    from gantrymq.tables.landing import Landing, Summary
    from gantrymq.tables.local.target import TableTarget
    from gantrymq.tables.metrics import LandingMetrics
    from gantrymq.tables.options import LandOptions
    from gantrymq.tables.sources.group_offsets import GroupOffsets
    from gantrymq.tables.state import TableState


def land(
    paths: Paths,
    topic: Topic = None,
    topics: Topics = None,
    format_: FormatOption = None,
    once: Once = False,
    every: Every = None,
    body: Body = None,
    schema: SchemaFile = None,
    message: MessageName = None,
    retries: Retries = False,
    dlq: DeadLetters = False,
    partition_by: PartitionOption = None,
    upsert_by: UpsertBy = None,
    op_field: OpField = None,
    commit_rows: CommitRows = None,
    commit_group: CommitGroup = None,
    compact: Compact = False,
    ttl: Ttl = None,
    expire: Expire = None,
    warehouse: Warehouse = None,
    catalog: CatalogName = None,
    catalog_set: CatalogSet = None,
    engine: EngineOption = Engine.LOCAL,
    spark_conf: SparkConf = None,
    set_: MetricsSettings = None,
    json: AsJson = False,
) -> None:
    """Land topics in a table of Delta, Iceberg or Parquet, exactly once.

    Each commit has the rows and the positions after them, so a landing may be
    killed at any time, and continues where the table is. SOURCE may be running,
    stopped, crashed or damaged; it is not changed. TABLE__dead has the bodies
    that do not fit, TABLE__audit the messages that are missing, with reasons.
    With --upsert-by the newest message of a key replaces the row of the key.
    --compact, --ttl and --expire maintain the table after the landing.
    A table remembers its options. {topic} in TABLE makes a table for each topic.
    The exit code is 1 if rows are dead or messages missing.

    Examples of use:

        gantrymq table land /data/store /lake/orders --topic orders
        gantrymq table land /data/store '/lake/{topic}' --topics '.*' --every 30s
        gantrymq table land '/data/*/store' sales.orders --topic orders --warehouse /lake
        gantrymq table land /data/store /lake/typed --topic t --body json --schema infer --partition-by country,day
        gantrymq table land /data/store /lake/users --topic users --body json --schema infer --upsert-by id
    """
    _refuse_contradictions(paths, engine, spark_conf, every, once=once)
    *sources, table = paths
    meant = target(table, format_, warehouse, catalog, catalog_set)
    from gantrymq.tables.options import LandOptions

    options = LandOptions(
        tuple(topic or ()), topics, retries, dlq, partition_by, body.value if body else None, schema, message,
        upsert_by=upsert_by, op_field=op_field,
        sources=tuple(sources), ttl_s=ttl, expire_s=expire,
    )  # fmt: skip
    running = _Running(sources, meant, options, commit_rows, compact=compact)
    with ExitStack() as stack:
        running.metrics = stack.enter_context(exported_metrics(set_))
        if commit_group is not None:
            running.show_positions(stack.enter_context(shown_offsets(sources, commit_group)))
        if engine is Engine.SPARK:
            from gantrymq.cli.spark_engine import on_spark

            running.on_spark(stack.enter_context(on_spark(spark_conf, shown=every is None)))
        _land(running, every, json=json)


def _refuse_contradictions(
    paths: list[str], engine: Engine, spark_conf: list[str] | None, every_s: float | None, *, once: bool
) -> None:
    if len(paths) < 2:
        raise typer.BadParameter("a SOURCE and a TABLE are needed")
    if once and every_s is not None:
        raise typer.BadParameter("--once and --every exclude each other")
    if engine is Engine.LOCAL and spark_conf:
        raise typer.BadParameter("--spark-conf is for --engine spark")


def _land(running: _Running, every_s: float | None, *, json: bool) -> None:
    with StopSignals() as signals, telling(_print, json=json) as report:
        if every_s is None:
            running.run_pass(report, lambda: signals.number is not None)
            running.maintain(report, lambda: signals.number is not None, is_exact=True)
        else:
            _repeat(running, report, signals, every_s)
        summary = running.summary()
        report(summary.as_json())
    if every_s is None and signals.number is not None:
        raise typer.Exit(128 + signals.number)
    if not summary.is_clean:
        raise typer.Exit(FINDINGS)


class _Running:
    """The landings of a command: one, or one for each topic."""

    def __init__(
        self, sources: list[str], meant: TableTarget, options: LandOptions, commit_rows: int | None, *, compact: bool
    ) -> None:
        from gantrymq.tables.landing import DEFAULT_COMMIT_ROWS
        from gantrymq.tables.sources import TableSources

        self._sources = TableSources(sources, client_settings(sources))
        self._meant, self._options = meant, options
        self._given_rows, self._compact = commit_rows, compact
        self._commit_rows = commit_rows or DEFAULT_COMMIT_ROWS
        self._landings: dict[str, Landing] = {}
        self.metrics: LandingMetrics | None = None
        self._make_engine: Callable[[TableTarget], LandingEngine] = _local_engine
        self._show: Callable[[TableState], None] = lambda state: None

    def show_positions(self, offsets: GroupOffsets) -> None:
        """Let the offsets of a group follow the positions."""
        self._show = lambda state: offsets.commit(state.queues)

    def on_spark(self, spark: SparkSession) -> None:
        """Let the executors of ``spark`` write the files."""
        from gantrymq.spark.landing.engine import SparkEngine, default_commit_rows

        self._make_engine = lambda meant: SparkEngine(meant.open(), spark)
        self._commit_rows = self._given_rows or default_commit_rows(spark)

    def run_pass(self, report: Tell, stopped: Callable[[], bool]) -> None:
        """Land what is new now."""
        from gantrymq.tables.local.freed_memory import release_freed_memory

        for table, landing in self._of_pass():
            began_s, commits = time.monotonic(), 0
            for commit in landing.run_pass(stopped):
                if self.metrics is not None:
                    self.metrics.committed(table, commit, time.monotonic() - began_s)
                report(commit.as_json())
                release_freed_memory()
                self._show(commit.state)
                began_s, commits = time.monotonic(), commits + 1
            self._show(landing.state)  # an earlier run may have been killed before it
            if stopped():
                return
            if self.metrics is not None:
                self.metrics.passed(table, commits)

    def maintain(self, report: Tell, stopped: Callable[[], bool], *, is_exact: bool) -> None:
        """Maintain the tables after a pass. A run that repeats itself tells only what was done."""
        from gantrymq.tables.maintenance.options import Maintained

        done = []
        for landing in self._landings.values():
            if stopped():
                break
            of_table = landing.maintain(compact=self._compact, is_exact=is_exact, stopped=stopped)
            done += [of_table] if of_table is not None else []
        total = sum(done, Maintained())
        if done and (is_exact or total != Maintained()):
            report(total.as_json())

    def _of_pass(self) -> Iterator[tuple[str, Landing]]:
        from gantrymq.tables.landing import tables_of

        self._sources.begin_pass()
        for meant, options in tables_of(self._meant, self._options, self._sources.open):
            if meant.table not in self._landings:
                self._landings[meant.table] = self._landing(meant, options)
            yield meant.table, self._landings[meant.table]

    def _landing(self, meant: TableTarget, options: LandOptions) -> Landing:
        from gantrymq.tables.landing import Landing

        return Landing(self._make_engine(meant), self._sources.open, options, self._commit_rows)

    def summary(self) -> Summary:
        """What all landings have landed."""
        from gantrymq.tables.landing import joined

        return joined([landing.summary for landing in self._landings.values()])


def _local_engine(meant: TableTarget) -> LandingEngine:
    from gantrymq.tables.local.engine import LocalEngine
    from gantrymq.tables.local.freed_memory import keep_freed_memory

    keep_freed_memory()
    return LocalEngine(meant.open())


def _repeat(running: _Running, report: Tell, signals: StopSignals, every_s: float) -> None:
    """Land again and again until a signal. A source or catalog that is away is asked again for a while."""
    from gantrymq.tables.patience import Patience

    patience = Patience()
    while signals.number is None:
        began = time.monotonic()
        try:
            running.run_pass(report, lambda: signals.number is not None)
            running.maintain(report, lambda: signals.number is not None, is_exact=False)
            patience.succeeded()
        except Exception as error:
            if not patience.allows(error):
                raise
            if running.metrics is not None:
                running.metrics.failed()
            warn(f"is tried again in {every_s:g} s: {error}")
        try:
            signals.waiting(True)
            time.sleep(max(every_s - (time.monotonic() - began), 0.0))
        except Interrupted:
            return
        finally:
            signals.waiting_ended()


def _print(fields: dict[str, Any]) -> None:
    from gantrymq.model.texts import count_text

    if fields["kind"] == "maintenance":
        _print_maintenance(fields)
        return
    rows = count_text(fields["rows"], "row")
    faults = [f"{fields[name]} {name}" for name in ("dead", "missing") if fields[name]]
    told = ", ".join([rows, *faults])
    if fields["kind"] == "commit":
        left = fields["lag"]["messages"]
        print_line(f"version {fields['version']}: {told}; {count_text(left, 'message')} left")
    else:
        print_line(f"{told} landed in {count_text(fields['commits'], 'commit')}")


def _print_maintenance(fields: dict[str, Any]) -> None:
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    compacted = f"{count_text(fields['compacted'], 'file')} compacted into {fields['into']:,}"
    old = f"{count_text(fields['expired_rows'], 'row')} older than the TTL removed"
    deleted = f"{count_text(fields['removed_files'], 'file')} deleted ({size_text(fields['freed_bytes'])})"
    print_line(f"{compacted}; {old}; {deleted}")
