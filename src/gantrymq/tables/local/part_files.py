"""Writes rows as Parquet files of bounded size: one partition a file, sorted by queue.

Rows wait in memory until there are enough of one partition for a file. So no file stays open, a file is whole when it
exists, and the memory is bounded for any number of rows and partitions. Several batches are divided at once: of a few
rows each, the parts of thousands of partitions would have more overhead than rows. Each partition of a commit is a file
at least, so a landing limits its files (MOST_FILES).

Thread rule: one thread.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gantrymq.errors import ConfigError, DiskFullError
from gantrymq.fs.descriptors import is_disk_full
from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.columns import TIMESTAMP
from gantrymq.tables.local.directory import sync
from gantrymq.tables.partitions import OPTION, Partition, PartitionBy
from gantrymq.tables.state import TableFile

FILE_BYTES = 128 << 20  # of rows in memory
WAITING_BYTES = 256 << 20  # of all partitions
_GROUP_BYTES = 32 << 20  # of rows in a row group, of which Arrow has several copies while it is written
DIVIDED_BYTES = 32 << 20  # of rows that are divided at once
MOST_FILES = 10_000  # of a commit
ROW_BYTES = b"gantrymq.row_bytes"
"""The key in a file's metadata of the size of its rows in memory."""

_SORTED_BY = ("broker", "topic", "queue_id", "generation", "queue_offset")
_WITH_STATS = 32  # columns: Delta's dataSkippingNumIndexedCols
_TEXT_CHARACTERS, _LAST_CHARACTER = 64, "\U0010ffff"
_DICTIONARIES = ["broker", "topic", "queue_id", "generation", "tags", "origin_topic", "properties.key_value.key"]
_DIGITS = 32
_LEAST_RUN_ROWS = 100  # on average, of slices that cost less than a copy of their rows


class Files(Protocol):
    """Where the files of a table are written, by any process: it can be pickled."""

    @property
    def local_root(self) -> Path | None:
        """The directory of the files; None if it is not on a local disk."""
        ...

    @property
    def empty_partition(self) -> str | None:
        """The text of a partition of empty texts; None if the format makes no difference between them and null."""
        ...

    def path(self, name: str, partition: Partition) -> str:
        """The path of a new file, relative to the table."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file that was not committed; it may be missing."""
        ...

    def paths_named(self, prefix: str, partitions: Sequence[Partition] | None) -> Iterator[str]:
        """The paths of files in these partitions, None for all, whose names begin with ``prefix``.

        They need not be committed.
        """
        ...


class PartFiles:
    """Writes the rows of one commit into one table. ``schema`` is that of the files.

    The name of a file is ``prefix``, and 32 hexadecimal digits that begin with ``token``. ``most_files`` limits the
    files.
    """

    def __init__(
        self,
        files: Files,
        schema: pa.Schema,
        partition_by: PartitionBy,
        prefix: str,
        token: str = "",
        most_files: int | None = None,
    ) -> None:
        self._files, self._schema, self._partition_by, self._prefix = files, schema, partition_by, prefix
        self._token, self._most_files = token, most_files
        self._undivided: list[pa.RecordBatch] = []
        self._undivided_bytes = 0
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[Partition, int] = {}
        self._all_bytes = 0
        self.written: list[TableFile] = []
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises ConfigError for too many files, DiskFullError, OSError."""
        self.rows += batch.num_rows
        self._undivided.append(batch)
        self._undivided_bytes += batch.nbytes
        if not self._partition_by.columns or self._undivided_bytes >= DIVIDED_BYTES:
            self._divide()

    def _divide(self) -> None:
        undivided, self._undivided, self._undivided_bytes = self._undivided, [], 0
        if not undivided:
            return
        for partition, batches in self._partition_by.divided(undivided, self._files.empty_partition):
            self._waiting.setdefault(partition, []).extend(batches)
            size = sum(batch.nbytes for batch in batches)
            self._waiting_bytes[partition] = self._waiting_bytes.get(partition, 0) + size
            self._all_bytes += size
            self._require_few_files()
            if self._waiting_bytes[partition] >= FILE_BYTES:
                self._write(partition)
        while self._all_bytes >= WAITING_BYTES:
            self._write(max(self._waiting_bytes, key=self._waiting_bytes.__getitem__))

    def _require_few_files(self) -> None:
        if self._most_files is not None and len(self.written) + len(self._waiting) > self._most_files:
            allowed = (
                f"at most {self._most_files:,} files a commit: take a smaller --commit-rows, or columns with fewer"
            )
            raise ConfigError(OPTION, str(self._partition_by), f"{allowed} values for a new table")

    def change_schema(self, schema: pa.Schema) -> None:
        """Write what waits, and the next rows with the columns of ``schema``."""
        self.finish()
        self._schema = schema

    def add_written(self, files: Sequence[TableFile]) -> None:
        """Add files that another process has written. Raises ConfigError for too many files."""
        self.written += files
        self.rows += sum(file.rows for file in files)
        self._require_few_files()

    def finish(self) -> tuple[TableFile, ...]:
        """Write the rest; returns all files. Raises ConfigError for too many files, DiskFullError, OSError."""
        self._divide()
        for partition in sorted(self._waiting, key=str):
            self._write(partition)
        return tuple(self.written)

    def abandon(self) -> None:
        """Remove the files."""
        self._undivided.clear()
        self._waiting.clear()
        for file in self.written:
            self._files.remove(file.path)
        self.written.clear()

    def _write(self, partition: Partition) -> None:
        batches = self._waiting.pop(partition)
        self._all_bytes -= self._waiting_bytes.pop(partition)
        table = pa.Table.from_batches(batches)
        table = in_order(table)
        digits = f"{self._token}{uuid.uuid4().hex}"[:_DIGITS]
        path = self._files.path(f"{self._prefix}-{digits}.parquet", partition)
        size_bytes = self._write_file(path, table)
        self.written.append(
            TableFile(path, table.num_rows, size_bytes, partition, statistics(table, self._partition_by.columns))
        )

    def _write_file(self, path: str, table: pa.Table) -> int:
        try:
            with self._files.open(path) as stream:
                with pq.ParquetWriter(
                    stream,
                    self._schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=_DICTIONARIES,
                    write_statistics=True,
                ) as writer:
                    rows = max(table.num_rows * _GROUP_BYTES // max(table.nbytes, 1), 1)
                    for begin in range(0, table.num_rows, rows):
                        batches = table.slice(begin, rows).to_batches()
                        group = pa.Table.from_batches([aligned(batch, self._schema) for batch in batches])
                        writer.write_table(group, group.num_rows)
                    writer.add_key_value_metadata({ROW_BYTES: str(table.nbytes)})
                size_bytes = stream.tell()
                sync(stream)
                return size_bytes
        except OSError as error:
            self._files.remove(path)
            if is_disk_full(error):
                raise DiskFullError(path, table.nbytes) from error
            raise


def in_order(table: pa.Table) -> pa.Table:
    """The rows sorted by queue and offset; the table itself if they are."""
    names = [name for name in _SORTED_BY if name in table.schema.names]
    if not names or table.num_rows < 2:
        return table
    keys = table.select(names)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    rows = order.to_numpy().astype(np.int64)
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) == 1:
        return table
    if len(starts) * _LEAST_RUN_ROWS > table.num_rows:
        return table.take(order)
    ends = np.append(starts[1:], len(rows))
    runs = zip(rows[starts].tolist(), (ends - starts).tolist(), strict=True)
    return pa.concat_tables([table.slice(begin, count) for begin, count in runs])


def statistics(table: pa.Table, partition_columns: Sequence[str] = ()) -> Mapping[str, Any]:
    """The smallest and largest value and the nulls of columns, as a Delta table keeps them.

    They cover the columns of which Delta's writers keep them, and those of partitions. The obvious way, only those that
    help, fails: deltalake takes a bound that is missing for null, and finds no row by a condition on that column.
    """
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in dict.fromkeys([*table.schema.names[:_WITH_STATS], *partition_columns]):
        if name not in table.schema.names:
            continue
        column = table.column(name)
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        if column.null_count < len(column):
            ends = _bounds(column)
            if ends is None:
                continue
            minima[name], maxima[name] = ends
        nulls[name] = column.null_count
    return {"numRecords": table.num_rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls}


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The smallest and the largest value, or a text that is smaller or larger, as JSON; None if it has neither."""
    kind = column.type
    bounds = pc.min_max(column)
    low, high = bounds["min"], bounds["max"]
    if kind == TIMESTAMP:
        return _time_text(low), _time_text(high)
    if pa.types.is_date(kind):
        return str(low.cast(pa.string())), str(high.cast(pa.string()))
    if pa.types.is_string(kind):
        return _text_bounds(low.as_py(), high.as_py())
    if pa.types.is_decimal(kind):
        is_exact = kind.precision <= sys.float_info.dig
        return (float(low.as_py()), float(high.as_py())) if is_exact else None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    return low.as_py(), high.as_py()


def _text_bounds(low: str, high: str) -> tuple[str, str]:
    cut = f"{high[:_TEXT_CHARACTERS]}{_LAST_CHARACTER}"
    return low[:_TEXT_CHARACTERS], min(high, cut, key=len) if high <= cut else high


def _time_text(value: pa.Scalar) -> str:
    text = np.datetime_as_string(np.datetime64(cast(int, value.value), "us"))
    return f"{text}Z"
