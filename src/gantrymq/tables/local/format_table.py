"""One table of a format, as the local engine uses it: the messages, the dead rows, or the account.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from gantrymq.tables.engine import Head
from gantrymq.tables.errors import AnotherLanderError, TableError, one_line
from gantrymq.tables.local.contents import Rewrite, TableContents
from gantrymq.tables.local.part_files import Files
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.state import TableFile, TableState


class UnknownCommitError(TableError):
    """The outcome of a commit is unknown: its files must stay. The next landing reads the table's state."""

    def __init__(self, table: str, cause: Exception) -> None:
        super().__init__(
            table, f"the outcome of a commit is unknown, run `table land` again to continue: {one_line(cause)}"
        )


class FormatTable(Protocol):
    """A table in Delta, Iceberg or plain Parquet."""

    @property
    def name(self) -> str:
        """The name of the table, for messages."""
        ...

    def head(self) -> Head | None:
        """The table now; None if there is none. Raises ForeignTableError, TableError."""
        ...

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the table. Raises AnotherLanderError if it exists by now."""
        ...

    def evolved(self, schema: pa.Schema) -> pa.Schema:
        """Give the table the columns of ``schema`` that it lacks, in a commit of their own, and wider types.

        Returns ``schema``. Columns of the table that it lacks stay, and are null in new rows. Raises TableError.
        """
        ...

    def files(self) -> Files:
        """Where its files are written, which can be pickled. An Iceberg table must exist."""
        ...

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of a file with rows of ``schema``."""
        ...

    def commit(self, head: Head, files: Sequence[TableFile], state: TableState, rewrite: Rewrite | None = None) -> Head:
        """Add the files and set the state, in one commit. The table must be at ``head``, but for foreign commits.

        With ``rewrite`` the commit also removes files; if it names them, a foreign commit is a TableChangedError. An
        unknown outcome is read back. Raises AnotherLanderError, and UnknownCommitError if it stays unknown.
        """
        ...

    def contents(self, head: Head) -> TableContents:
        """The files of the table at ``head``. Raises TableError."""
        ...

    def leftovers(self) -> Sequence[str]:
        """Files of commits that never took place, where readers would see them. The table was read just before.

        What an interrupted commit has left undone is done.
        """
        ...

    def fence(self, head: Head) -> Head:
        """Commit no rows, so that a process that was frozen before its commit fails at it; returns the table after it.

        Raises AnotherLanderError.
        """
        ...

    def discard(self, leftovers: Sequence[str]) -> None:
        """Remove leftovers."""
        ...

    def beside(self, suffix: str) -> FormatTable:
        """The table of that suffix beside this one."""
        ...

    def count_files(self) -> int:
        """The number of its data files."""
        ...


def head_at(table: FormatTable, head: Head) -> Head:
    """The table now, whose last landing must be that of ``head``; foreign commits may have followed.

    Raises AnotherLanderError.
    """
    current = table.head()
    if current is None or current.state.commit_id != head.state.commit_id:
        raise AnotherLanderError(table.name)
    return current
