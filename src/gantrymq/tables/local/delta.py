"""A Delta table, by delta-rs.

The obvious way, to leave two landers to the ``txn`` actions of the protocol, fails: delta-rs keeps them as bookkeeping
only, appends the same version twice, accepts a lower one, and repeats a blind append by itself after a conflict. So a
commit is pinned to the version that was read (no repeats), and the ``txn`` of that version is compared before each try.

The state is a file beside the data, ``_gantrymq/state-N.json``, which is written before the commit that names it: the
``txn`` action of the application ``gantrymq`` has the N. A checkpoint keeps that action, while the metadata of commits
goes with the clean-up of the log, and compaction and VACUUM leave directories with an underscore alone.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from gantrymq.clock import SystemClock
from gantrymq.errors import GantrymqError
from gantrymq.tables.bodies.errors import SchemaError
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import AnotherLanderError, ForeignTableError, TableChangedError, TableError, one_line
from gantrymq.tables.local.contents import Rewrite
from gantrymq.tables.local.delta_columns import evolve_columns
from gantrymq.tables.local.delta_contents import HAS_DELETION_VECTORS, LOG, DeltaContents
from gantrymq.tables.local.directory import Directory
from gantrymq.tables.local.format_table import UnknownCommitError
from gantrymq.tables.local.hive_files import NamedFiles
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.state import TableFile, TableState

APPLICATION = "gantrymq"
STATES = "_gantrymq"
_STATE = re.compile(r"state-(\d+)\.json")
_KEPT_STATES = 8  # for a reader that has opened an earlier version
_FOREIGN_COMMITS = 50  # in a row, between two tries of a commit
_PROBE = Schema.from_arrow(pa.schema([pa.field("n", pa.int64())]))
_OVERWRITES = (
    "its store overwrites the commit of another lander (it ignores If-None-Match), so rows could be lost: take a store "
    "with conditional writes, or an Iceberg table in a catalog"
)


class DeltaFormatTable:
    """Implements :class:`gantrymq.tables.local.format_table.FormatTable`."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._table: DeltaTable | None = None
        self._partition_names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The path or URI."""
        return self._directory.text

    def head(self) -> Head | None:
        """The table now."""
        try:
            self._table = table = DeltaTable(self._directory.uri)
        except TableNotFoundError:
            others = [name for name in self._directory.names() or () if name not in (STATES, LOG)]
            if others:
                raise ForeignTableError(self.name, f"is a directory with other files ({others[0]})") from None
            return None
        except DeltaError as error:
            raise TableError(self.name, f"cannot be read as a Delta table: {one_line(error)}") from error
        commit_id = table.transaction_version(APPLICATION)
        if commit_id is None:
            raise ForeignTableError(self.name)
        content = self._directory.read(_state_path(commit_id))
        if content is None:
            reason = f"lacks {_state_path(commit_id)}, the positions of its landings: restore it from a backup"
            raise TableError(self.name, reason)
        state = TableState.from_json(self.name, content)
        self._partition_names = PartitionBy.parse(state.options.get("partitionBy", "none")).names
        return Head(state, table.version())

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the table."""
        if not self._directory.is_local:
            self._require_conditional_writes(state)
        self._directory.write(_state_path(state.commit_id), state.to_json().encode())
        columns = list(partition_by.names)
        with_partition = pa.schema([*schema, *(pa.field(name, pa.string()) for name in columns)])
        try:
            create_table_with_add_actions(
                self._directory.uri,
                Schema.from_arrow(with_partition),
                [],
                mode="error",
                partition_by=columns,
                commit_properties=_properties(state),
            )
        except (DeltaError, OSError) as error:
            if not DeltaTable.is_deltatable(self._directory.uri):
                raise TableError(self.name, f"cannot be created: {one_line(error)}") from error
        head = self.head()
        if head is None or head.state.commit_id != state.commit_id:
            raise AnotherLanderError(self.name)
        return head

    def _require_conditional_writes(self, state: TableState) -> None:
        """Raise TableError for a store on which a commit overwrites another one of the same version.

        An object store does that if it ignores the header If-None-Match. So two commits of one version are tried on a
        table of their own.
        """
        probe = Directory(f"{self._directory.text}/{STATES}/probe-{state.commit_id}")
        try:
            create_table_with_add_actions(probe.uri, _PROBE, [], mode="error", partition_by=[])
            first, second = (DeltaTable(probe.uri) for _ in range(2))
            first.create_write_transaction([], "append", _PROBE, [], commit_properties=_properties(state))
            with suppress(CommitFailedError):
                second.create_write_transaction([], "append", _PROBE, [], commit_properties=_properties(state))
                raise TableError(self.name, _OVERWRITES)
        except DeltaError as error:
            raise TableError(self.name, f"cannot be created: {one_line(error)}") from error
        finally:
            for path in list(probe.files_below("", recursive=True)):
                probe.remove(path)

    def evolved(self, schema: pa.Schema) -> pa.Schema:
        """Add columns; a column of a wider type is rewritten with the whole table, because Delta's files keep types."""
        self._refuse_foreign_layout(DeltaTable(self._directory.uri))
        for _ in range(_FOREIGN_COMMITS):
            try:
                evolve_columns(self._directory, schema)
                return schema
            except CommitFailedError:
                continue
            except (DeltaError, SchemaError) as error:
                raise TableError(
                    self.name, f"its columns cannot become those of the bodies: {one_line(error)}"
                ) from error
        raise TableError(self.name, f"{_FOREIGN_COMMITS} foreign commits came in between; nothing was written")

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns without the partition."""
        return schema

    def files(self) -> NamedFiles:
        """Files lie in the directory of their partition."""
        return NamedFiles(self._directory)

    def commit(self, head: Head, files: Sequence[TableFile], state: TableState, rewrite: Rewrite | None = None) -> Head:
        """Add the files, remove those of ``rewrite``, and set the state."""
        if rewrite is not None and not all(file.is_whole for file in rewrite.removed or ()):
            raise TableError(self.name, HAS_DELETION_VECTORS)
        self._directory.write(_state_path(state.commit_id), state.to_json().encode())
        try:
            version = self._commit(head, files, state, rewrite)
        except (AnotherLanderError, TableChangedError):
            self._directory.remove(_state_path(state.commit_id))
            raise
        self._forget_states(state.commit_id)
        return Head(state, version)

    def _commit(self, head: Head, files: Sequence[TableFile], state: TableState, rewrite: Rewrite | None) -> int:
        for _ in range(_FOREIGN_COMMITS):
            table = self._at(head, state)
            if table is None:
                return self._reached(state)
            self._refuse_foreign_layout(table)
            if rewrite is not None and rewrite.removed is not None and table.version() != head.version:
                raise TableChangedError(self.name)  # delta-rs would remove files that are not there any more
            columns = table.metadata().partition_columns
            try:
                table.create_write_transaction(
                    _actions(files, columns, rewrite),
                    "overwrite" if rewrite is not None and rewrite.removed is None else "append",
                    table.schema(),
                    columns,
                    commit_properties=_properties(state),
                )
            except CommitFailedError:
                continue  # a foreign commit, or another lander: the next look shows which
            except (DeltaError, OSError) as error:
                return self._reached(state, error)
            return self._reached(state)
        raise TableError(self.name, f"{_FOREIGN_COMMITS} foreign commits came in between; nothing was written")

    def _at(self, head: Head, state: TableState) -> DeltaTable | None:
        """The newest version, whose last landing must be that of ``head``; None if it is ``state`` already."""
        table = DeltaTable(self._directory.uri)
        landed_id = table.transaction_version(APPLICATION)
        if landed_id == state.commit_id:
            return None
        if landed_id != head.state.commit_id:
            raise AnotherLanderError(self.name)
        return table

    def _refuse_foreign_layout(self, table: DeltaTable) -> None:
        """Raise TableError for a table that another program has changed so that our files would be wrong in it.

        delta-rs takes the files of a commit as they are: it compares no partition and no constraint.
        """
        metadata = table.metadata()
        added = [name for name in metadata.partition_columns if name not in self._partition_names]
        if added:
            raise TableError(self.name, f"another program has partitioned it by {', '.join(added)}: undo that")
        for name, value in metadata.configuration.items():
            if name.startswith("delta.constraints.") or (name == "delta.columnMapping.mode" and value != "none"):
                raise TableError(self.name, f"another program has set {name}={value}, which a landing cannot honour")

    def _reached(self, state: TableState, cause: Exception | None = None) -> int:
        """The version with the state ``state``: only the table itself shows whether a commit took place."""
        try:
            table = DeltaTable(self._directory.uri)
            landed_id = table.transaction_version(APPLICATION)
        except (DeltaError, OSError) as error:
            raise UnknownCommitError(self.name, cause or error) from error
        if landed_id == state.commit_id:
            return table.version()
        if cause is not None:
            raise TableError(self.name, f"the commit failed: {one_line(cause)}") from cause
        raise AnotherLanderError(self.name)

    def _forget_states(self, newest: int) -> None:
        try:
            names = self._directory.below(STATES)
        except (OSError, GantrymqError):
            return
        states = sorted(int(match[1]) for match in map(_STATE.fullmatch, names) if match is not None)
        for commit_id in [number for number in states if number < newest][: -_KEPT_STATES or None]:
            self._directory.remove(_state_path(commit_id))

    def leftovers(self) -> tuple[str, ...]:
        """None: no reader sees files without a commit, and VACUUM removes them."""
        return ()

    def fence(self, head: Head) -> Head:
        """No commit: nothing is removed that a frozen process needs."""
        return head

    def discard(self, leftovers: Sequence[str]) -> None:
        """Remove nothing."""

    def contents(self, head: Head) -> DeltaContents:
        """The files of the version of ``head``."""
        try:
            return DeltaContents(self._directory, DeltaTable(self._directory.uri, version=head.version))
        except DeltaError as error:
            raise TableError(self.name, f"cannot be read as a Delta table: {one_line(error)}") from error

    def beside(self, suffix: str) -> DeltaFormatTable:
        """The table of that suffix."""
        return DeltaFormatTable(self._directory.beside(suffix))

    def count_files(self) -> int:
        """The number of its data files."""
        return len(DeltaTable(self._directory.uri).file_uris())


def _properties(state: TableState) -> CommitProperties:
    positions = json.dumps({"gantrymq": {"landings": state.landings, "positions": state.positions()}})
    return CommitProperties(
        custom_metadata={"userMetadata": positions},
        max_commit_retries=0,
        app_transactions=[Transaction(APPLICATION, state.commit_id, SystemClock().now_ms())],
    )


def _actions(
    files: Sequence[TableFile], columns: Sequence[str], rewrite: Rewrite | None
) -> list[AddAction | RemoveAction]:
    changes_rows, removed = (rewrite.changes_rows, rewrite.removed or ()) if rewrite is not None else (True, ())
    now_ms = SystemClock().now_ms()
    actions: list[AddAction | RemoveAction] = []
    for file in files:
        texts = dict(file.partition)
        values = {name: texts[name] for name in columns}
        # Without escapes: deltalake decodes those of characters beyond the first plane as other ones.
        stats = json.dumps(dict(file.stats) or {"numRecords": file.rows}, ensure_ascii=False)
        actions.append(AddAction(file.path, file.size_bytes, cast(Any, values), now_ms, changes_rows, stats))
    for old in removed:
        actions.append(RemoveAction(old.path, changes_rows, now_ms, old.size_bytes, old.origin))
    return actions


def _state_path(commit_id: int) -> str:
    return f"{STATES}/state-{commit_id}.json"
