"""What a table consists of: its data files, their rows, and the files that belong to no commit any more.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.tables.local.directory import FoundFile
from gantrymq.tables.local.part_files import ROW_BYTES
from gantrymq.tables.state import TableFile

_READ_BYTES = 16 << 20  # of rows at a time
_MOST_ROWS = 65_536


class TimeSpan(NamedTuple):
    """The smallest and the largest store timestamp of a file, in microseconds since 1970."""

    oldest_us: int
    newest_us: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A committed file of rows.

    ``partition`` is equal for files of one partition. ``span`` is None if the table does not know it, or if a row has
    no store timestamp. ``origin`` is what the format has of the file. A file that another program has marked rows in
    as deleted is not ``is_whole``.
    """

    path: str
    rows: int
    size_bytes: int
    partition: object = None
    span: TimeSpan | None = None
    origin: Any = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files that a commit removes: ``removed``, or None for all that are there at the time of the commit.

    ``changes_rows`` is false if the added files have the same rows.
    """

    removed: Sequence[DataFile] | None
    changes_rows: bool = True


class ExpiredFiles(NamedTuple):
    """Files that were part of a commit, and files that may belong to one that is still to come."""

    committed: list[FoundFile]
    orphans: list[FoundFile]


class TableContents(Protocol):
    """The files of a table at one version."""

    @property
    def removes_at_once(self) -> bool:
        """Whether the commit that removes a file also deletes it."""
        ...

    def data_files(self) -> list[DataFile]:
        """The committed files."""
        ...

    def open(self, file: DataFile) -> BinaryIO:
        """Open a file for reading."""
        ...

    def batches(self, file: DataFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, without those that another program has deleted.

        ``columns`` limits what is read; names may be dotted. A batch may have more columns, with the types of the file.
        """
        ...

    def schema_of(self, footer: pq.FileMetaData) -> pa.Schema:
        """The schema for files with the rows of a file. Files of one schema may become one file."""
        ...

    def expired(self, before_us: int, pending: Collection[str]) -> ExpiredFiles:
        """The files, older than a time in µs, that no version since that time needs, nor ``pending`` names.

        An Iceberg table first forgets its older snapshots.
        """
        ...

    def remove(self, files: Sequence[FoundFile]) -> None:
        """Remove files that are expired."""
        ...


def row_bytes(footer: pq.FileMetaData) -> int:
    """The size of the rows of a file in memory: as it was written, or estimated for a file of another program."""
    written = (footer.metadata or {}).get(ROW_BYTES)
    if written is not None:
        return int(written)
    return sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))


def parquet_batches(stream: BinaryIO, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of an open file, some MB at a time."""
    with pq.ParquetFile(stream) as file:
        row = row_bytes(file.metadata) // max(file.metadata.num_rows, 1) + 1
        yield from file.iter_batches(max(1, min(_MOST_ROWS, _READ_BYTES // row)), columns=columns)


def span_of(file: TableFile) -> TimeSpan | None:
    """The store timestamps by the statistics of a file that was landed."""
    stats = file.stats
    if stats.get("nullCount", {}).get("store_timestamp", 1):
        return None
    oldest, newest = (stats.get(end, {}).get("store_timestamp") for end in ("minValues", "maxValues"))
    if oldest is None or newest is None:
        return None
    return TimeSpan(*(int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64)) for text in (oldest, newest)))
