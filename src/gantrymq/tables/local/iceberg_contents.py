"""The files of a snapshot of an Iceberg table, and those that no snapshot needs.

PyIceberg expires snapshots and removes no file. So the files below the table's location are compared with all that its
metadata names: data files, manifests, lists of manifests, statistics, earlier metadata.

Thread rule: one thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import TimestamptzType

from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.errors import TableError
from gantrymq.tables.local.contents import DataFile, ExpiredFiles, TimeSpan, parquet_batches
from gantrymq.tables.local.directory import FoundFile

_FIELD_ID = b"PARQUET:field_id"
_METADATA = re.compile(r"(\d+)-.*\.metadata\.json")
_OF_TABLE: Mapping[str, tuple[str, ...]] = {
    "data": (".parquet", ".puffin"),
    "metadata": (".avro", ".metadata.json", ".stats", ".puffin"),
}


class IcebergContents:
    """Implements :class:`gantrymq.tables.local.contents.TableContents`. ``schema`` is that of the files."""

    def __init__(self, table: Table, schema: pa.Schema) -> None:
        self._table, self._schema = table, schema

    @property
    def removes_at_once(self) -> bool:
        """Readers of earlier versions need the files for a while."""
        return False

    def data_files(self) -> list[DataFile]:
        """The committed files."""
        try:
            tasks = list(self._table.scan().plan_files())
        except ValueError as error:  # deletes by equality, of Flink
            raise TableError(".".join(self._table.name()[-2:]), f"its files cannot be rewritten: {error}") from error
        return [self._data_file(task) for task in tasks]

    def _data_file(self, task: FileScanTask) -> DataFile:
        file = task.file
        partition = (file.spec_id, *(file.partition[number] for number in range(len(file.partition))))
        rows, size_bytes = file.record_count, file.file_size_in_bytes
        return DataFile(file.file_path, rows, size_bytes, partition, self._span(file), task, not task.delete_files)

    def _span(self, file: IcebergDataFile) -> TimeSpan | None:
        field = self._table.schema().find_field("store_timestamp") if self._has_times else None
        if field is None or (file.null_value_counts or {}).get(field.field_id, 1):
            return None
        bounds = [(ends or {}).get(field.field_id) for ends in (file.lower_bounds, file.upper_bounds)]
        if bounds[0] is None or bounds[1] is None:
            return None
        return TimeSpan(*(int(from_bytes(TimestamptzType(), bound)) for bound in bounds if bound is not None))

    @property
    def _has_times(self) -> bool:
        return "store_timestamp" in self._table.schema().column_names

    def open(self, file: DataFile) -> BinaryIO:
        """Open a file for reading."""
        return cast(BinaryIO, self._table.io.new_input(file.path).open())

    def batches(self, file: DataFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        PyIceberg reads null lists of structs as empty lists. So a file whose columns have the names of the table's is
        read without it. It reads a file with deletes, with renamed columns, or without a column that has a value there.
        """
        with self.open(file) as stream:
            if file.is_whole and self._is_read_by_names(file, pq.read_schema(stream)):
                stream.seek(0)
                for batch in parquet_batches(stream, columns):
                    yield aligned(batch, self._schema) if columns is None else batch
                return
        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        for batch in scan.to_record_batches([file.origin]):
            yield aligned(batch, self._schema)

    def _is_read_by_names(self, file: DataFile, fields: pa.Schema) -> bool:
        """A column that a file lacks is null, unless it has a default or is the partition of a file from elsewhere."""
        present = {int(number) for field in fields if (number := (field.metadata or {}).get(_FIELD_ID)) is not None}
        absent = [field for field in self._table.schema().fields if field.field_id not in present]
        sources = {field.source_id for field in self._table.specs()[file.origin.file.spec_id].fields}
        valued = any(field.initial_default is not None or field.field_id in sources for field in absent)
        return not valued and self._has_names_of(fields)

    def _has_names_of(self, fields: Iterable[pa.Field]) -> bool:
        """Whether the fields of a file, also nested ones, have the names that their ids have in the table."""
        for field in fields:
            number = (field.metadata or {}).get(_FIELD_ID)
            name = self._table.schema().find_column_name(int(number)) if number is not None else None
            if name is None or name.rpartition(".")[2] != field.name or not self._has_names_of(_children(field.type)):
                return False
        return True

    def schema_of(self, footer: pq.FileMetaData) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def expired(self, before_us: int, pending: Collection[str]) -> ExpiredFiles:
        """Forget the snapshots older than ``before_us``; the files that no other snapshot needs.

        An earlier metadata file that the log of the table does not name any more is not that of a commit to come: a
        commit follows the newest version.
        """
        old = [file for file in self._listed() if file.modified_us < before_us]
        formerly = {_path_of(name) for name in self._named_by(self._expire_snapshots(before_us))}
        table = self._table
        needed = {_path_of(name) for name in (*pending, *self._named_by(table.metadata.snapshots))}
        needed |= {_path_of(name) for name in _named_by_metadata(table)}
        version = _metadata_version(table.metadata_location)
        files = ExpiredFiles([], [])
        for file in old:
            if _path_of(file.path) not in needed:
                is_committed = _path_of(file.path) in formerly or 0 <= _metadata_version(file.path) <= version
                (files.committed if is_committed else files.orphans).append(file)
        return files

    def _expire_snapshots(self, before_us: int) -> list[Snapshot]:
        """Forget snapshots, but for the heads of branches and tags; returns those."""
        metadata = self._table.metadata
        heads = {reference.snapshot_id for reference in metadata.refs.values()}
        old = [
            snapshot
            for snapshot in metadata.snapshots
            if snapshot.timestamp_ms * 1000 < before_us and snapshot.snapshot_id not in heads
        ]
        if old:
            self._table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
        self._table.refresh()
        return old

    def _listed(self) -> Iterator[FoundFile]:
        """The files below the location of the table."""
        io = self._table.io
        if not isinstance(io, PyArrowFileIO):
            reason = "its files cannot be listed: set py-io-impl=pyiceberg.io.pyarrow.PyArrowFileIO for the catalog"
            raise TableError(".".join(self._table.name()[-2:]), reason)
        for part, suffixes in _OF_TABLE.items():
            directory = f"{self._table.location().rstrip('/')}/{part}"
            scheme, host, path = PyArrowFileIO.parse_location(directory)
            selector = FileSelector(path, allow_not_found=True, recursive=True)
            for entry in io.fs_by_scheme(scheme, host).get_file_info(selector):
                if entry.type is FileType.File and entry.base_name.endswith(suffixes):
                    name = f"{directory}{entry.path.removeprefix(path)}"
                    yield FoundFile(name, entry.size, entry.mtime_ns // 1000)

    def _named_by(self, snapshots: Sequence[Snapshot]) -> Iterator[str]:
        """The files that snapshots name."""
        seen: set[str] = set()
        for snapshot in snapshots:
            yield snapshot.manifest_list
            for manifest in snapshot.manifests(self._table.io):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    yield from self._named_in(manifest)

    def _named_in(self, manifest: ManifestFile) -> Iterator[str]:
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
            yield entry.data_file.file_path

    def remove(self, files: Sequence[FoundFile]) -> None:
        """Remove files that are expired."""
        for file in files:
            with suppress(FileNotFoundError):
                self._table.io.delete(file.path)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _named_by_metadata(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for statistics in (*table.metadata.statistics, *table.metadata.partition_statistics):
        yield statistics.statistics_path


def _metadata_version(path: str) -> int:
    """The number in the name of a metadata file; -1 for another file."""
    match = _METADATA.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match is not None else -1


def _path_of(name: Any) -> str:
    """A name without its scheme, which differs between programs: file:///a and /a, s3:// and s3a://."""
    _, host, path = PyArrowFileIO.parse_location(str(name))
    return f"{host}/{path.lstrip('/')}" if host and not path.startswith(host) else path
