"""Writes rows as Parquet files of bounded size: one partition a file, sorted by queue.

Rows wait in memory until there are enough of one partition for a file. So no file stays open, a file is whole when it
exists, and the memory is bounded for any number of rows and partitions.

Thread rule: one thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gantrymq.errors import DiskFullError
from gantrymq.fs.descriptors import is_disk_full
from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.columns import TIMESTAMP
from gantrymq.tables.local.directory import sync
from gantrymq.tables.options import PartitionBy
from gantrymq.tables.state import TableFile

FILE_BYTES = 128 << 20  # of rows in memory
WAITING_BYTES = 256 << 20  # of all partitions
ROW_BYTES = b"gantrymq.row_bytes"
"""The key in a file's metadata of the size of its rows in memory."""

_SORTED_BY = ("broker", "topic", "queue_id", "generation", "queue_offset")
_WITH_STATS = ("broker", "topic", "queue_id", "queue_offset", "generation", "store_timestamp", "born_timestamp")
_DICTIONARIES = ["broker", "topic", "queue_id", "generation", "tags", "origin_topic", "properties.key_value.key"]
_DIGITS = 32
_NO_TIME = -(1 << 62)
_US = {PartitionBy.DAY: 86_400_000_000, PartitionBy.HOUR: 3_600_000_000}


class Files(Protocol):
    """Where the files of a table are written, by any process: it can be pickled."""

    @property
    def local_root(self) -> Path | None:
        """The directory of the files; None if it is not on a local disk."""
        ...

    def path(self, name: str, partition: str | None) -> str:
        """The path of a new file, relative to the table."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file that was not committed; it may be missing."""
        ...

    def paths_named(self, prefix: str, partitions: Sequence[str | None] | None) -> Iterator[str]:
        """The paths of files in these partitions, None for all, whose names begin with ``prefix``.

        They need not be committed.
        """
        ...


class PartFiles:
    """Writes the rows of one commit into one table. ``schema`` is that of the files.

    The name of a file is ``prefix``, and 32 hexadecimal digits that begin with ``token``.
    """

    def __init__(
        self, files: Files, schema: pa.Schema, partition_by: PartitionBy, prefix: str, token: str = ""
    ) -> None:
        self._files, self._schema, self._partition_by, self._prefix = files, schema, partition_by, prefix
        self._token = token
        self._waiting: dict[str | None, list[pa.RecordBatch]] = {}
        self._waiting_bytes: dict[str | None, int] = {}
        self._all_bytes = 0
        self.written: list[TableFile] = []
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises DiskFullError, OSError."""
        self.rows += batch.num_rows
        for partition, rows in self._divided(batch):
            self._waiting.setdefault(partition, []).append(rows)
            size = rows.nbytes
            self._waiting_bytes[partition] = self._waiting_bytes.get(partition, 0) + size
            self._all_bytes += size
            if self._waiting_bytes[partition] >= FILE_BYTES:
                self._write(partition)
        while self._all_bytes >= WAITING_BYTES:
            self._write(max(self._waiting_bytes, key=self._waiting_bytes.__getitem__))

    def change_schema(self, schema: pa.Schema) -> None:
        """Write what waits, and the next rows with the columns of ``schema``."""
        self.finish()
        self._schema = schema

    def add_written(self, files: Sequence[TableFile]) -> None:
        """Add files that another process has written."""
        self.written += files
        self.rows += sum(file.rows for file in files)

    def finish(self) -> tuple[TableFile, ...]:
        """Write the rest; returns all files. Raises DiskFullError, OSError."""
        for partition in sorted(self._waiting, key=str):
            self._write(partition)
        return tuple(self.written)

    def abandon(self) -> None:
        """Remove the files."""
        self._waiting.clear()
        for file in self.written:
            self._files.remove(file.path)
        self.written.clear()

    def _divided(self, batch: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
        if self._partition_by is PartitionBy.NONE:
            return [(None, batch)]
        times = batch.column("store_timestamp").cast(pa.int64())
        numbers = pc.fill_null(times, _NO_TIME).to_numpy(zero_copy_only=False) // _US[self._partition_by]
        first = int(numbers[0]) if len(numbers) else 0
        if (numbers == first).all():
            return [(self._text(first), batch)]
        return [
            (self._text(number), batch.filter(pa.array(numbers == number))) for number in np.unique(numbers).tolist()
        ]

    def _text(self, number: int) -> str:
        return partition_text(number, self._partition_by)

    def _write(self, partition: str | None) -> None:
        batches = self._waiting.pop(partition)
        self._all_bytes -= self._waiting_bytes.pop(partition)
        table = pa.Table.from_batches(batches)
        table = in_order(table)
        digits = f"{self._token}{uuid.uuid4().hex}"[:_DIGITS]
        path = self._files.path(f"{self._prefix}-{digits}.parquet", partition)
        size_bytes = self._write_file(path, table)
        self.written.append(TableFile(path, table.num_rows, size_bytes, partition, statistics(table)))

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
                    for batch in table.combine_chunks().to_batches():
                        writer.write_batch(aligned(batch, self._schema))
                    writer.add_key_value_metadata({ROW_BYTES: str(table.nbytes)})
                size_bytes = stream.tell()
                sync(stream)
                return size_bytes
        except OSError as error:
            self._files.remove(path)
            if is_disk_full(error):
                raise DiskFullError(path, table.nbytes) from error
            raise


def partition_text(number: int, partition_by: PartitionBy) -> str:
    """A day as 2026-11-29, an hour as 2026-11-29-08; ``unknown`` for rows without a store timestamp."""
    if number == _NO_TIME // _US[partition_by]:
        return "unknown"
    seconds = number * _US[partition_by] // 1_000_000
    text = str(np.datetime64(seconds, "s"))  # 2026-11-29T08:00:00
    return text[: -len("T08:00:00")] if partition_by is PartitionBy.DAY else text[: -len(":00:00")].replace("T", "-")


def in_order(table: pa.Table) -> pa.Table:
    """The rows sorted by queue and offset; the table itself if they are."""
    names = [name for name in _SORTED_BY if name in table.schema.names]
    if not names or table.num_rows < 2:
        return table
    keys = table.select(names)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    rows = order.to_numpy()
    if (np.diff(rows.astype(np.int64)) == 1).all():
        return table
    return table.take(order)


def statistics(table: pa.Table) -> Mapping[str, Any]:
    """The smallest and largest value and the nulls of some columns, as a Delta table keeps them."""
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in _WITH_STATS:
        if name not in table.schema.names:
            continue
        column = table.column(name)
        nulls[name] = column.null_count
        if column.null_count < len(column):
            bounds = pc.min_max(column)
            minima[name], maxima[name] = (_plain(bounds[end], column.type) for end in ("min", "max"))
    return {"numRecords": table.num_rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls}


def _plain(value: pa.Scalar, kind: pa.DataType) -> Any:
    if kind != TIMESTAMP:
        return value.as_py()
    text = np.datetime_as_string(np.datetime64(cast(int, value.value), "us"))
    return f"{text}Z"
