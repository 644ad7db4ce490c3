"""The files of a version of a Delta table, and those that no newer version needs.

Which files no version needs is for delta-rs to say, by a VACUUM that only lists. Its age is in whole hours, counts from
the last change of a file instead of its removal for files without a tombstone, and it tells no sizes. So the age is
compared here: a file goes if it is older than the span, and no commit of the span has added or removed it.

Of the log go the versions in front of the newest checkpoint that is older than the span, as the protocol wants it.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.contents import DataFile, ExpiredFiles, TimeSpan, parquet_batches
from gantrymq.tables.local.directory import Directory, FoundFile

LOG = "_delta_log"
HAS_DELETION_VECTORS = "has deletion vectors of another program: run REORG TABLE … APPLY (PURGE) first"
_COMMIT = re.compile(r"(\d{20})\.json")
_OF_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*parquet|[0-9a-f-]+\.json)")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class DeltaContents:
    """Implements :class:`gantrymq.tables.local.contents.TableContents`."""

    def __init__(self, directory: Directory, table: DeltaTable) -> None:
        self._directory, self._table = directory, table
        columns = table.metadata().partition_columns
        schema = pa.schema(table.schema().to_arrow())
        self._columns = columns
        self._schema = pa.schema([field for field in schema if field.name not in columns])

    @property
    def removes_at_once(self) -> bool:
        """Readers of earlier versions need the files for a while."""
        return False

    def data_files(self) -> list[DataFile]:
        """The committed files."""
        marked = self._marked()
        data_files = []
        for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
            values = {name: row.get(f"partition.{name}") for name in self._columns}
            data_files.append(
                DataFile(
                    row["path"],
                    row["num_records"] or 0,
                    row["size_bytes"],
                    tuple(values.values()),
                    _span(row),
                    values,
                    is_whole=not any(path.endswith(row["path"]) for path in marked),
                )
            )
        return data_files

    def _marked(self) -> list[str]:
        """The files with deletion vectors."""
        return [str(path) for batch in self._table.deletion_vectors() for path in pa.record_batch(batch).column(0)]

    def open(self, file: DataFile) -> BinaryIO:
        """Open a file for reading."""
        return self._directory.open_for_reading(file.path)

    def batches(self, file: DataFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file. Raises TableError for one with deletion vectors."""
        if not file.is_whole:
            raise TableError(self._directory.text, HAS_DELETION_VECTORS)
        with self.open(file) as stream:
            for batch in parquet_batches(stream, columns):
                yield aligned(batch, self._schema) if columns is None else batch

    def schema_of(self, footer: pq.FileMetaData) -> pa.Schema:
        """The columns of the table without the partition."""
        return self._schema

    def expired(self, before_us: int, pending: Collection[str]) -> ExpiredFiles:
        """The files that no version since ``before_us`` needs, and files of the log."""
        log = list(self._directory.found_below(LOG, recursive=False))
        needed = {*pending, *self._named_since(log, before_us)}
        removed, unreferenced = (set(self._unreferenced(full=full)) for full in (False, True))
        others = [
            file
            for file in self._directory.found_below("", recursive=True)
            if file.path in unreferenced and file.path not in needed and file.modified_us < before_us
        ]
        committed = [file for file in others if file.path in removed]
        orphans = [file for file in others if file.path not in removed]
        return ExpiredFiles([*committed, *_before_checkpoint(log, before_us)], orphans)

    def _unreferenced(self, *, full: bool) -> list[str]:
        """The files that the version does not have: those that a commit has removed, and if ``full``, all."""
        return self._table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=full)

    def _named_since(self, log: Sequence[FoundFile], before_us: int) -> Iterator[str]:
        """The data files that commits since a time have added or removed."""
        for file in log:
            if _COMMIT.fullmatch(_name(file)) is None or file.modified_us < before_us:
                continue
            content = self._directory.read(file.path)
            if content is None:
                raise TableError(self._directory.text, f"{file.path} was removed while it was read; try again")
            for line in content.splitlines():
                action = json.loads(line)
                for kind in ("add", "remove"):
                    if kind in action:
                        yield action[kind]["path"]

    def remove(self, files: Sequence[FoundFile]) -> None:
        """Remove files that are expired."""
        for file in files:
            self._directory.remove(file.path)


def _before_checkpoint(log: Sequence[FoundFile], before_us: int) -> list[FoundFile]:
    """The files of the log that the newest checkpoint before a time replaces."""
    old = [file for file in log if file.modified_us < before_us]
    checkpoints = [int(match[1]) for file in old if (match := _CHECKPOINT.fullmatch(_name(file)))]
    commits = {int(match[1]) for file in old if (match := _COMMIT.fullmatch(_name(file)))}
    first = max((version for version in checkpoints if version in commits), default=0)
    versions = [(file, match) for file in old if (match := _OF_VERSION.fullmatch(_name(file)))]
    return [file for file, match in versions if int(match[1]) < first]


def _name(file: FoundFile) -> str:
    return file.path.rpartition("/")[2]


def _span(row: dict[str, object]) -> TimeSpan | None:
    if row.get("null_count.store_timestamp") != 0:
        return None
    bounds = [row.get(f"{end}.store_timestamp") for end in ("min", "max")]
    if None in bounds:
        return None
    return TimeSpan(*pc.cast(pa.array(bounds, pa.timestamp("us", "UTC")), pa.int64()).to_pylist())
