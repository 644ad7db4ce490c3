"""Files of a table that are written again, and the commit that exchanges them.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.tables.engine import Head
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.contents import DataFile, Rewrite, TableContents
from gantrymq.tables.local.format_table import FormatTable, UnknownCommitError
from gantrymq.tables.local.part_files import PartFiles
from gantrymq.tables.partitions import PartitionBy
from gantrymq.tables.state import TableFile

Keep = Callable[[DataFile, int, pa.RecordBatch], pa.BooleanArray]
"""Which rows of a batch stay: of a file, from the number of a row on."""

COMMIT_BYTES = 1 << 30
"""Rows in memory that one commit rewrites at most, give or take a partition: what a kill has to do again."""


class Rewriting:
    """The files of one commit. Rows are read and written batch by batch."""

    def __init__(self, table: FormatTable, head: Head, contents: TableContents) -> None:
        self._table, self._head, self._contents = table, head, contents
        self._partition_by = PartitionBy.parse(head.state.options.get("partitionBy", "none"))
        self._writers: list[PartFiles] = []
        self.removed: list[DataFile] = []
        self.added: list[TableFile] = []
        self.dropped_rows = 0

    def drop(self, file: DataFile) -> None:
        """Remove a file with its rows."""
        self.removed.append(file)
        self.dropped_rows += file.rows

    def rewrite(self, files: Sequence[DataFile], schema: pa.Schema, keep: Keep | None = None) -> None:
        """Write the rows of files again, or those that ``keep`` chooses.

        Raises DiskFullError, OSError, TableError.
        """
        prefix = f"part-{self._head.state.landings:08d}"
        writer = PartFiles(self._table.files(), schema, self._partition_by, prefix)
        self._writers.append(writer)
        rows = dropped = 0
        for file in files:
            at = 0
            for batch in self._contents.batches(file):
                chosen = batch if keep is None else batch.filter(keep(file, at, batch))
                at += batch.num_rows
                dropped += batch.num_rows - chosen.num_rows
                if chosen.num_rows:
                    writer.add(chosen)
            rows += at
        expected = sum(file.rows for file in files)
        if all(file.is_whole for file in files) and rows != expected:
            raise TableError(self._table.name, f"its files have {rows} rows in place of {expected}; none is rewritten")
        self.added += writer.finish()
        self.removed += files
        self.dropped_rows += dropped

    def commit(self) -> Head:
        """Exchange the files; returns the table after it. Raises AnotherLanderError, TableChangedError, TableError."""
        rewrite = Rewrite(self.removed, changes_rows=bool(self.dropped_rows))
        try:
            return self._table.commit(self._head, self.added, self._head.state.rewritten(), rewrite)
        except UnknownCommitError:
            raise
        except TableError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Remove the files that were written."""
        for writer in self._writers:
            writer.abandon()


def newer_than(from_us: int) -> Keep:
    """Keeps the rows since a time in microseconds, and those without a time."""

    def keep(file: DataFile, at: int, batch: pa.RecordBatch) -> pa.BooleanArray:
        times = batch.column("store_timestamp").cast(pa.int64())
        return pc.fill_null(pc.greater_equal(times, from_us), True)

    return keep
