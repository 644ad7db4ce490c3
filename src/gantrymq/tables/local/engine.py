"""The local engine: one process reads the parts of a step, writes files, and commits them.

The rows, the dead rows and the account are three tables, which no format commits together. So the files of the side
tables are written first, the commit of the main table names them as ``pending``, and they are added to the side tables
after it. A process that is killed in between leaves that to the next one. A side table notes the landing that it has,
so that nothing is added twice. Retries replace the files of a side table in the same way
(:mod:`gantrymq.tables.local.retry`).

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from gantrymq.clock import SystemClock
from gantrymq.errors import DiskFullError
from gantrymq.tables.columns import AUDIT, AUDIT_SCHEMA, DEAD, DEAD_SCHEMA
from gantrymq.tables.engine import Head, Landed
from gantrymq.tables.errors import AnotherLanderError, TableError
from gantrymq.tables.local.contents import Rewrite
from gantrymq.tables.local.format_table import FormatTable, UnknownCommitError
from gantrymq.tables.local.merging import KeptRows, Merger
from gantrymq.tables.local.part_files import MOST_FILES, Files, PartFiles
from gantrymq.tables.maintenance.maintainer import Maintainer
from gantrymq.tables.maintenance.options import Maintained, MaintenanceOptions
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.rows import BodyGrowth, Conversion, RowKind, audit_rows, landed_batches
from gantrymq.tables.sources.steps import AuditFinding, Step, StepPart
from gantrymq.tables.state import LandedCounts, TableFile, TableState

_SIDES: Mapping[RowKind, tuple[str, pa.Schema]] = {
    RowKind.DEAD: (DEAD, DEAD_SCHEMA),
    RowKind.AUDIT: (AUDIT, AUDIT_SCHEMA),
}
_TRIES = 8


class LocalEngine:
    """Lands in one table; implements :class:`gantrymq.tables.engine.LandingEngine`."""

    def __init__(self, table: FormatTable) -> None:
        self._table = table
        self._maintainer: Maintainer | None = None
        self._merger: Merger | None = None

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table.name

    def open(self) -> Head | None:
        """The table, with its side tables complete."""
        head = self._table.head()
        if head is None:
            return None
        self._complete(head)
        tables = [self._table, *(side for side in self._sides() if side.head() is not None)]
        leftovers_of = [(table, table.leftovers()) for table in tables]
        if any(leftovers for _, leftovers in leftovers_of):
            head = self._table.fence(head)
        for table, leftovers in leftovers_of:
            table.discard(leftovers)
        return head

    def _sides(self) -> list[FormatTable]:
        return [self._table.beside(suffix) for suffix, _ in _SIDES.values()]

    def look(self) -> Head:
        """The table as it is, without a change. Raises TableError without a table."""
        head = self._table.head()
        if head is None:
            raise TableError(self._table.name, "does not exist; `gantrymq table land` makes it")
        return head

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the table."""
        return self._table.create(schema, partition_by, state)

    def land(self, head: Head, step: Step, state: TableState, conversion: Conversion) -> Landed:
        """Write the rows of ``step`` and commit them."""
        writing = Writing(self._table, state, conversion)
        try:
            self.write_parts(writing, step.parts)
            if step.findings:
                writing.add(RowKind.AUDIT, audit_rows(step.findings), step.findings)
            keys = writing.write_kept()
            state = replace(state, options={**state.options, "bodies": writing.growth.bodies.remembered()})
            files, state = writing.finish(state, writing.totals())
        except BaseException:
            writing.abandon()
            raise
        after = self.commit(head, writing, files, state, keys)
        has_faults = any(finding.is_fault for finding in writing.findings)
        return Landed(after, writing.totals(), has_faults, writing.growth.bodies)

    def commit(
        self,
        head: Head,
        writing: Writing,
        files: Sequence[TableFile],
        state: TableState,
        keys: pa.Array | None = None,
    ) -> Head:
        """Commit the files that ``writing`` has written, and bring the side tables up to it.

        With ``keys`` these are all that the table has of them.
        """
        try:
            if keys is None:
                after = self._table.commit(head, files, state)
            else:
                after = self._merger_of(writing).commit(head, files, state, keys)
        except UnknownCommitError:
            raise
        except (TableError, DiskFullError):
            writing.abandon()
            raise
        self._complete(after)
        return after

    def _merger_of(self, writing: Writing) -> Merger:
        assert writing.conversion.upserts is not None
        self._merger = self._merger or Merger(self._table, writing.conversion.upserts)
        return self._merger

    def write_parts(self, writing: Writing, parts: Sequence[StepPart]) -> None:
        """Write the rows of the parts of a step. Another engine writes them elsewhere."""
        for part in parts:
            for kind, batch, findings in landed_batches(part, writing.conversion, writing.growth):
                writing.add(kind, batch, findings)

    def _complete(self, head: Head) -> None:
        """Bring the pending files of the last commit into the side tables, unless they are there."""
        for suffix in head.state.pending:
            _complete_side(self._table.beside(suffix), suffix, head.state)

    def maintain(
        self, head: Head, options: MaintenanceOptions, remembered: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> tuple[Head, Maintained]:
        """Compact and clean the table and those beside it."""
        self._maintainer = self._maintainer or Maintainer(self._table)
        return self._maintainer.run(head, options, remembered, stopped)

    def count_files(self) -> int:
        """The number of data files."""
        return self._table.count_files()

    def count_rows(self, suffix: str = "") -> int:
        """The rows that are in the table, or in the one beside it; 0 without a table."""
        table = self._table.beside(suffix) if suffix else self._table
        head = table.head()
        return 0 if head is None else sum(file.rows for file in table.contents(head).data_files())


def _complete_side(side: FormatTable, suffix: str, state: TableState) -> None:
    """Bring the pending files of a landing into a side table. Another process may do the same at the same time."""
    files, rewrite = state.pending[suffix], Rewrite(None) if suffix in state.replaced else None
    for _ in range(_TRIES):
        head = side.head()
        if head is None or head.state.landings >= state.landings:
            return
        after = replace(head.state, landings=state.landings, commit_id=state.commit_id)
        try:
            side.commit(head, files, after, rewrite)
            return
        except AnotherLanderError:
            continue
    raise TableError(side.name, "other processes write it all the time; run the command again to complete it")


@dataclass(frozen=True, slots=True)
class FileTarget:
    """What a process needs to write the files of a commit in one table, or in one beside it; it can be pickled."""

    files: Files
    schema: pa.Schema
    partition_by: PartitionBy
    prefix: str

    def writer(self, token: str = "") -> PartFiles:
        """A writer. ``token`` is in the names of its files."""
        return PartFiles(self.files, self.schema, self.partition_by, self.prefix, token, MOST_FILES)


class Writing:
    """The files of one commit, in the table and in its side tables."""

    def __init__(self, table: FormatTable, state: TableState, conversion: Conversion) -> None:
        self._table, self._state = table, state
        self.conversion = conversion
        self._partition_by = PartitionBy.parse(state.options["partitionBy"])
        self._prefix = f"part-{state.landings:08d}"
        self.growth = BodyGrowth(conversion.bodies)
        self._schema = table.evolved(conversion.schema)
        self._writers = {RowKind.ROWS: self.target(RowKind.ROWS).writer()}
        self.findings: list[AuditFinding] = []
        self._waiting_rows = KeptRows(conversion.upserts) if conversion.upserts is not None else None

    def add(self, kind: RowKind, batch: pa.RecordBatch, findings: Sequence[AuditFinding]) -> None:
        """Add rows of one of the tables. Those of a table with keys wait for :meth:`write_kept`."""
        if kind is RowKind.ROWS and self._waiting_rows is not None:
            self._waiting_rows.add(batch)
            return
        if kind is RowKind.ROWS and batch.schema != self._schema:
            self.change_schema(batch.schema)
        self._writer(kind).add(batch)
        if kind is RowKind.AUDIT:
            self.findings += findings

    def write_kept(self) -> pa.Array | None:
        """Write the last row of each key; returns all keys, None for a table without keys."""
        if self._waiting_rows is None:
            return None
        last = self._waiting_rows.last_rows()
        for batch in self._waiting_rows.rows(last.is_wanted):
            if batch.schema != self._schema:
                self.change_schema(batch.schema)
            self._writer(RowKind.ROWS).add(batch)
        self._waiting_rows.close()
        return last.keys

    def change_schema(self, schema: pa.Schema) -> None:
        """Give the table the columns of ``schema``, and write them from now on."""
        self._schema = self._table.evolved(schema)
        self._writers[RowKind.ROWS].change_schema(self._table.file_schema(self._schema))

    def add_written(self, kind: RowKind, files: Sequence[TableFile]) -> None:
        """Add files that another process has written at :meth:`target`."""
        self._writer(kind).add_written(files)

    def _writer(self, kind: RowKind) -> PartFiles:
        if kind not in self._writers:
            self._writers[kind] = self.target(kind).writer()
        return self._writers[kind]

    def target(self, kind: RowKind) -> FileTarget:
        """Where the files of one of the tables are written. A side table is made before its first file."""
        table, schema, partition_by = self._table, self._schema, self._partition_by
        if kind in _SIDES:
            (suffix, schema), partition_by = _SIDES[kind], PartitionBy()
            table = self._table.beside(suffix)
            if (side := table.head()) is None:
                table.create(schema, partition_by, TableState().next())
            elif side.state.landings >= self._state.landings:
                self._refuse_ahead(table.name)
            else:
                table.evolved(schema)
        return FileTarget(table.files(), table.file_schema(schema), partition_by, self._prefix)

    def _refuse_ahead(self, side: str) -> None:
        """Raise TableError: a side table that is ahead of its table would take this landing for one that it has."""
        head = self._table.head()
        if head is not None and head.state.landings >= self._state.landings:
            raise AnotherLanderError(self._table.name)
        reason = f"has later landings than {self._table.name}, which was made or restored since: move {side} away"
        raise TableError(side, reason)

    def totals(self) -> LandedCounts:
        """The numbers of what was written, or of the messages that were applied to rows."""
        rows, dead = (self._writers[kind].rows if kind in self._writers else 0 for kind in (RowKind.ROWS, RowKind.DEAD))
        if self._waiting_rows is not None:
            rows = self._waiting_rows.messages
        return LandedCounts(rows, dead, sum(finding.messages for finding in self.findings))

    def finish(
        self, state: TableState, counts: LandedCounts, replaced: tuple[str, ...] = ()
    ) -> tuple[tuple[TableFile, ...], TableState]:
        """Write the rest; returns the files of the main table, and the state with the numbers and the pending files.

        In the side tables ``replaced`` the pending files take the place of all others.
        """
        files = {kind: writer.finish() for kind, writer in self._writers.items()}
        pending: dict[str, tuple[TableFile, ...]] = dict.fromkeys(replaced, ())
        pending |= {_SIDES[kind][0]: some for kind, some in files.items() if kind in _SIDES and some}
        state = replace(state.counted(counts, SystemClock().now_ms()), pending=pending, replaced=replaced)
        return files[RowKind.ROWS], state

    def abandon(self) -> None:
        """Remove the files."""
        if self._waiting_rows is not None:
            self._waiting_rows.close()
        for writer in self._writers.values():
            writer.abandon()
