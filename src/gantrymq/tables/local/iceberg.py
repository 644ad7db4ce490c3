"""An Iceberg table, by PyIceberg.

The state is in the properties of the table, set in the transaction that adds the snapshot, because a snapshot's own
properties go when the snapshot expires. The snapshot has the positions too, for people.

PyIceberg repeats a commit after a conflict by itself, on top of the other snapshot: two landers would both land their
rows. So a commit is made without repeats, on the snapshot that was read, after its state was compared.

Thread rule: one thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.types import IcebergType
from sqlalchemy.exc import SQLAlchemyError

from gantrymq.errors import ConfigError, GantrymqError
from gantrymq.tables.bodies.names import LANDED
from gantrymq.tables.engine import Head
from gantrymq.tables.errors import AnotherLanderError, ForeignTableError, TableChangedError, TableError, one_line
from gantrymq.tables.local.contents import Rewrite
from gantrymq.tables.local.format_table import UnknownCommitError
from gantrymq.tables.local.iceberg_contents import IcebergContents
from gantrymq.tables.partitions import Partition, PartitionBy, plain_text
from gantrymq.tables.state import TableFile, TableState

STATE, POSITIONS = "gantrymq.state", "gantrymq.positions"
_TRANSFORMS: Mapping[str, Transform[Any, Any]] = {"day": DayTransform(), "hour": HourTransform()}
_CATALOG = "default"  # the name that PyIceberg takes by itself
_FOREIGN_COMMITS = 50  # in a row, between two tries of a commit
_NO_REPEATS = {TableProperties.COMMIT_NUM_RETRIES: "0"}


def open_catalog(warehouse: str | None, name: str | None, settings: Mapping[str, str]) -> Catalog:
    """The catalog of that name, or the one in a SQLite file in the directory ``warehouse``.

    Raises ConfigError, and TableError if it cannot be opened now.
    """
    if name is None:
        assert warehouse is not None
        root = Path(warehouse).absolute()
        root.mkdir(parents=True, exist_ok=True)
        file = _sqlite_file(root)
        own = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"file://{root}"}
        try:
            return load_catalog(_name_in(file), **own)
        except SQLAlchemyError as error:
            raise TableError(str(file), f"cannot be read as a catalog: {one_line(error.__cause__ or error)}") from error
    given = dict(settings)
    if warehouse is not None:
        given["warehouse"] = warehouse
    try:
        return load_catalog(name, **given)
    except (ValueError, KeyError, NotInstalledError) as error:
        raise ConfigError("--catalog", name, f"a catalog that PyIceberg knows: {error}") from error
    except ImportError:
        raise
    except Exception as error:  # each catalog has errors of its own
        raise TableError(f"catalog {name}", f"cannot be opened: {one_line(error)}") from error


def _removed(table: Table, rewrite: Rewrite | None) -> list[DataFile]:
    """The files that a commit removes."""
    if rewrite is None:
        return []
    if rewrite.removed is None:
        return [task.file for task in table.scan().plan_files()]
    return [old.origin.file for old in rewrite.removed]


def _data_file(table: Table, file: TableFile) -> DataFile:
    """A file for a commit, with the values of its partition.

    PyIceberg takes them from the statistics of the file, and null where there are none: of a long text, or of a column
    for which the table keeps none. Readers show the value of the partition in place of the column's.
    """
    data_file = parquet_file_to_data_file(table.io, table.metadata, file.path)
    texts, schema = dict(file.partition), table.schema()
    for number, field in enumerate(table.spec().fields):
        name = f"{LANDED}{schema.find_column_name(field.source_id)}"
        if isinstance(field.transform, IdentityTransform) and name in texts:
            data_file.partition[number] = _partition_value(texts[name], schema.find_type(field.source_id))
    return data_file


def _partition_value(text: str | None, kind: IcebergType) -> Any:
    """A value as manifests have it: times and dates are numbers since 1970."""
    scalar = pa.scalar(text, pa.string()).cast(schema_to_pyarrow(kind))
    if pa.types.is_timestamp(scalar.type):
        return scalar.cast(pa.int64()).as_py()
    return scalar.cast(pa.int32()).as_py() if pa.types.is_date(scalar.type) else scalar.as_py()


def _sqlite_file(root: Path) -> Path:
    """The only SQLite file of a warehouse, or a new one."""
    landed_id = sorted(root.glob("*.db"))
    if len(landed_id) > 1:
        names = ", ".join(path.name for path in landed_id)
        raise ConfigError("--warehouse", str(root), f"a directory with one catalog *.db; there are {names}")
    return landed_id[0] if landed_id else root / "catalog.db"


def _name_in(file: Path) -> str:
    """The name of the catalog in a SQLite file. One file may hold several; PyIceberg shows one."""
    if not file.exists():
        return _CATALOG
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            names = database.execute("SELECT DISTINCT catalog_name FROM iceberg_tables").fetchall()
    except sqlite3.Error:
        return _CATALOG
    return str(names[0][0]) if len(names) == 1 else _CATALOG


class IcebergFiles:
    """Implements :class:`gantrymq.tables.local.part_files.Files` at a location; paths are URIs."""

    def __init__(self, location: str, io: FileIO) -> None:
        self._location, self._io = location.rstrip("/"), io

    @property
    def local_root(self) -> Path | None:
        """The location; None if it is not on a local disk."""
        scheme, _, path = PyArrowFileIO.parse_location(self._location)
        return Path(path) if scheme == "file" else None

    @property
    def empty_partition(self) -> str:
        """Empty texts have a partition of their own."""
        return ""

    def path(self, name: str, partition: Partition) -> str:
        """The location of a new data file."""
        return f"{self._directory_of(partition)}/{name}"

    def _directory_of(self, partition: Partition) -> str:
        return "/".join([f"{self._location}/data", *(plain_text(text) for _, text in partition)])

    def open(self, path: str) -> BinaryIO:
        """Open a new file for writing."""
        return cast(BinaryIO, self._io.new_output(path).create(overwrite=True))

    def remove(self, path: str) -> None:
        """Remove a file that was not committed."""
        with suppress(FileNotFoundError):
            self._io.delete(path)

    def paths_named(self, prefix: str, partitions: Sequence[Partition] | None) -> Iterator[str]:
        """The paths of files in these partitions, None for all, whose names begin with ``prefix``.

        There are none if PyIceberg does not use the file systems of pyarrow: its own interface lists no files.
        """
        if not isinstance(self._io, PyArrowFileIO):
            return
        for partition in [()] if partitions is None else partitions:
            directory = self._directory_of(partition)
            scheme, host, path = PyArrowFileIO.parse_location(directory)
            selector = FileSelector(path, allow_not_found=True, recursive=partitions is None)
            for entry in self._io.fs_by_scheme(scheme, host).get_file_info(selector):
                if entry.type is FileType.File and entry.base_name.startswith(prefix):
                    yield f"{directory}{entry.path.removeprefix(path)}"


class IcebergFormatTable:
    """Implements :class:`gantrymq.tables.local.format_table.FormatTable`."""

    def __init__(self, catalog: Catalog, identifier: str) -> None:
        self._catalog, self._identifier = catalog, identifier
        self._table: Table | None = None

    @property
    def name(self) -> str:
        """The namespace and the name."""
        return self._identifier

    def head(self) -> Head | None:
        """The table now."""
        try:
            with self._named_errors("cannot be read"):
                self._table = table = self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        return self._head_of(table)

    def _head_of(self, table: Table) -> Head:
        text = table.properties.get(STATE)
        if text is None:
            raise ForeignTableError(self.name)
        return Head(TableState.from_json(self.name, text), _version(table))

    def create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Head:
        """Make the namespace and the table."""
        namespace = self._identifier.rpartition(".")[0]
        with self._named_errors("cannot be created"):
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
            try:
                self._table = self._create(schema, partition_by, state)
            except (TableAlreadyExistsError, CommitFailedException):
                raise AnotherLanderError(self.name) from None
        return self._head_of(self._table)

    def _create(self, schema: pa.Schema, partition_by: PartitionBy, state: TableState) -> Table:
        properties = {STATE: state.to_json()}
        if not partition_by.members:
            return self._catalog.create_table(
                self._identifier, schema, partition_spec=UNPARTITIONED_PARTITION_SPEC, properties=properties
            )
        transaction = self._catalog.create_table_transaction(self._identifier, schema, properties=properties)
        with transaction, transaction.update_spec() as spec:
            for member in partition_by.members:
                if member in _TRANSFORMS:
                    spec.add_field("store_timestamp", _TRANSFORMS[member], f"store_timestamp_{member}")
                else:
                    spec.add_identity(member)
        return self._catalog.load_table(self._identifier)

    def evolved(self, schema: pa.Schema) -> pa.Schema:
        """Add columns, and widen int to bigint and float to double."""
        with self._named_errors("its columns cannot become those of the bodies"):
            table = self._catalog.load_table(self._identifier)
            with table.update_schema() as update:
                update.union_by_name(schema)
            self._table = self._catalog.load_table(self._identifier)
        return schema

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns with Iceberg's ids of fields, also those that the rows lack."""
        schema = schema_to_pyarrow(self._opened().schema(), include_field_ids=True)
        return pa.schema([_with_short_offsets(field) for field in schema])

    def files(self) -> IcebergFiles:
        """Files lie below the location of the table."""
        table = self._opened()
        return IcebergFiles(table.location(), table.io)

    def _opened(self) -> Table:
        if self._table is None:
            self._table = self._catalog.load_table(self._identifier)
        return self._table

    def commit(self, head: Head, files: Sequence[TableFile], state: TableState, rewrite: Rewrite | None = None) -> Head:
        """Add the files, remove those of ``rewrite``, and set the state."""
        for _ in range(_FOREIGN_COMMITS):
            with self._named_errors("cannot be read"):
                table = self._catalog.load_table(self._identifier)
            landed_id = self._head_of(table).state.commit_id
            if landed_id == state.commit_id:
                return self._head_of(table)
            if landed_id != head.state.commit_id:
                raise AnotherLanderError(self.name)
            if rewrite is not None and rewrite.removed is not None and _version(table) != head.version:
                raise TableChangedError(self.name)
            with self._named_errors("the files do not fit its partitions"):
                added = [_data_file(table, file) for file in files]
            try:
                self._change(table, added, state, rewrite)
            except CommitFailedException:
                continue  # a foreign commit, or another lander: the next look shows which
            except Exception as error:
                return self._read_back(state, error)
            return self._read_back(state, None)
        raise TableError(self.name, f"{_FOREIGN_COMMITS} foreign commits came in between; nothing was written")

    def _change(self, table: Table, files: Sequence[DataFile], state: TableState, rewrite: Rewrite | None) -> None:
        metadata = table.metadata
        table.metadata = metadata.model_copy(update={"properties": {**metadata.properties, **_NO_REPEATS}})
        positions = json.dumps(state.positions(), separators=(",", ":"))
        with table.transaction() as transaction:
            transaction.set_properties({STATE: state.to_json()})
            snapshot = transaction.update_snapshot(snapshot_properties={POSITIONS: positions})
            with snapshot.fast_append() if rewrite is None else snapshot.overwrite() as change:
                for file in files:
                    change.append_data_file(file)
                for old in _removed(table, rewrite):
                    change.delete_data_file(old)

    def _read_back(self, state: TableState, cause: Exception | None) -> Head:
        """The table with the state ``state``: only the catalog shows whether a commit took place."""
        try:
            self._table = table = self._catalog.load_table(self._identifier)
            head = self._head_of(table)
        except Exception as error:
            raise UnknownCommitError(self.name, cause or error) from error
        if head.state.commit_id == state.commit_id:
            return head
        if cause is not None:
            raise UnknownCommitError(self.name, cause) from cause
        raise AnotherLanderError(self.name)

    @contextmanager
    def _named_errors(self, what: str) -> Iterator[None]:
        """Raise the errors of a catalog as TableError, of which there are as many classes as catalogs."""
        try:
            yield
        except (GantrymqError, NoSuchTableError, NoSuchNamespaceError):
            raise
        except Exception as error:
            raise TableError(self.name, f"{what}: {one_line(error)}") from error

    def leftovers(self) -> tuple[str, ...]:
        """None: no reader sees files without a commit."""
        return ()

    def fence(self, head: Head) -> Head:
        """No commit: nothing is removed that a frozen process needs."""
        return head

    def discard(self, leftovers: Sequence[str]) -> None:
        """Remove nothing."""

    def contents(self, head: Head) -> IcebergContents:
        """The files of the newest snapshot, which must be that of ``head``."""
        with self._named_errors("cannot be read"):
            self._table = table = self._catalog.load_table(self._identifier)
        if self._head_of(table).state.commit_id != head.state.commit_id:
            raise AnotherLanderError(self.name)
        if _version(table) != head.version:
            raise TableChangedError(self.name)
        return IcebergContents(table, self.file_schema(pa.schema([])))

    def beside(self, suffix: str) -> IcebergFormatTable:
        """The table of that suffix in the same namespace."""
        return IcebergFormatTable(self._catalog, f"{self._identifier}{suffix}")

    def count_files(self) -> int:
        """The number of its data files."""
        with self._named_errors("cannot be read"):
            snapshot = self._catalog.load_table(self._identifier).current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        return int(summary["total-data-files"] or 0) if summary is not None else 0


def _version(table: Table) -> int:
    """The sequence number of the newest snapshot; 0 in a table without one."""
    snapshot = table.current_snapshot()
    return (snapshot.sequence_number or 0) if snapshot is not None else 0


def _with_short_offsets(field: pa.Field) -> pa.Field:
    """The field with 32-bit offsets instead of PyIceberg's 64-bit ones, and with all of its ids."""
    return field.with_type(_short(field.type))


def _short(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_with_short_offsets(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_with_short_offsets(kind.key_field), _with_short_offsets(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_with_short_offsets(child) for child in kind])
    return kind
