"""A landed table as a view: Delta, Iceberg or Parquet. No extension of DuckDB is used: it would come from the network.

Thread rule: scans run in DuckDB's threads, several at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from gantrymq.errors import StoreError
from gantrymq.format.names import CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE
from gantrymq.tables.bodies.evolution import aligned
from gantrymq.tables.errors import one_line
from gantrymq.tables.query.pushdown import ScannedView, columns_of, matching_rows

_STORE_MARKS = (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT)
_DELTA_LOG, _METADATA = "_delta_log", "metadata"
_METADATA_SUFFIX = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)")
_LEVELS_ABOVE = 4


def is_table(path: Path) -> bool:
    """Whether a path is a landed table, not a store."""
    if any((path / name).exists() for name in _STORE_MARKS):
        return False  # a store may have ten thousand directories to search for Parquet files
    return _kind_of(path) is not None


def table_name(path: Path) -> str:
    """The name of the view: the last part of the table's path."""
    if path.name.endswith(_METADATA_SUFFIX):
        path = path.parent.parent
    return path.name.removesuffix(".parquet")


def _kind_of(path: Path) -> str | None:
    if path.name.endswith(_METADATA_SUFFIX):
        return "iceberg"
    if path.name.endswith(".parquet") and path.is_file():
        return "parquet"
    if (path / _DELTA_LOG).is_dir():
        return "delta"
    if any((path / _METADATA).glob(f"*{_METADATA_SUFFIX}")):
        return "iceberg"
    return "parquet" if next(path.rglob("*.parquet"), None) is not None else None


def open_table(path: Path) -> ds.Dataset:
    """The table at ``path`` as a dataset. Raises StoreError if it cannot be read."""
    kind = _kind_of(path)
    try:
        if kind == "delta":
            return _delta(path)
        if kind == "iceberg":
            return IcebergView(_newest_metadata(path))
        return _parquet(path)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # deltalake and pyiceberg have their own classes
        raise StoreError(str(path), f"is a {kind} table that cannot be read: {one_line(error)}") from error


def _parquet(path: Path) -> ds.Dataset:
    """The files with the columns and the widest types of all of them: pyarrow takes those of the first file."""
    first = ds.dataset(path, format="parquet", partitioning="hive")
    each = [first.schema, *(fragment.physical_schema for fragment in first.get_fragments())]
    schema = pa.unify_schemas(each, promote_options="permissive")
    return ds.dataset(path, schema=schema, format="parquet", partitioning="hive")


def _delta(path: Path) -> ds.Dataset:
    from deltalake import DeltaTable

    # deltalake's own file system ends some processes abnormally at their exit.
    files = fs.SubTreeFileSystem(str(path.absolute()), fs.LocalFileSystem())
    dataset = DeltaTable(path).to_pyarrow_dataset(filesystem=files)
    # What deltalake says of a file has bounds of null for a column without statistics, by which no row of it is found.
    fragments = [
        dataset.format.make_fragment(fragment.path, files, partition_expression=_of_partition(fragment))
        for fragment in dataset.get_fragments()
    ]
    return ds.FileSystemDataset(fragments, dataset.schema, dataset.format, files)


def _of_partition(fragment: ds.Fragment) -> ds.Expression:
    """The columns of the partition of a file: the only ones that are equal to something, or null, by its expression."""
    expression = ds.scalar(True)
    for name, value in ds.get_partition_keys(fragment.partition_expression).items():
        expression &= ds.field(name).is_null() if value is None else ds.field(name) == value
    return expression


def _newest_metadata(path: Path) -> str:
    """The metadata file of a table's newest snapshot: the catalogue's, if there is one on SQLite above the table.

    Without a catalogue the file of the highest version counts. It may be that of a commit that was not finished.
    """
    if path.name.endswith(_METADATA_SUFFIX):
        return str(path)
    directory = (path / _METADATA).absolute()
    for above in list(directory.parents)[1 : _LEVELS_ABOVE + 1]:
        for catalog in sorted(above.glob("*.db")):
            if catalog.is_file() and (location := _location_in(catalog, directory)) is not None:
                return location
    return str(max(directory.glob(f"*{_METADATA_SUFFIX}"), key=_version_of))


def _version_of(path: Path) -> tuple[int, float]:
    version = _VERSION.match(path.name)
    return int(version[1]) if version else -1, path.stat().st_mtime


def _location_in(catalog: Path, directory: Path) -> str | None:
    import sqlite3

    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{catalog.as_uri()}?mode=ro", uri=True)) as database:
        for (location,) in database.execute("select metadata_location from iceberg_tables"):
            if Path(str(location).removeprefix("file://")).parent == directory:
                return str(location)
    return None


class IcebergView(ScannedView):
    """An Iceberg table, read one file after the other.

    PyIceberg's own readers have the whole table in memory when they give the first batch.
    """

    def __init__(self, metadata: str) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.table import StaticTable

        from gantrymq.tables.local.iceberg_contents import IcebergContents

        table = StaticTable.from_metadata(metadata)
        super().__init__(schema_to_pyarrow(table.schema(), include_field_ids=False))
        self._contents = IcebergContents(table, self.schema)

    def read(self, columns: list[str], condition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass."""
        wanted = list(dict.fromkeys([*columns, *columns_of(condition, self.schema)]))
        schema = pa.schema([self.schema.field(name) for name in wanted])
        for file in self._contents.data_files():
            for stored in self._contents.batches(file, wanted):
                batch = aligned(stored, schema)
                if condition is not None:
                    batch = batch.take(matching_rows(batch, condition))
                if batch.num_rows:
                    yield batch.select(columns)
