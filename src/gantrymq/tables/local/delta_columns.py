"""Changes the columns of a Delta table: new ones, and wider types.

Thread rule: plain functions.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, write_deltalake

from gantrymq.tables.bodies.evolution import aligned, evolve
from gantrymq.tables.local.directory import Directory

_PINNED = CommitProperties(max_commit_retries=0)


def evolve_columns(directory: Directory, schema: pa.Schema) -> None:
    """Give a table the columns of ``schema``. Raises CommitFailedError after a commit of another program, DeltaError,
    and SchemaError for a column to which another program has given a type that cannot become ours.

    An append without rows adds columns and fields of structs. It leaves the types of others as they are, and without a
    feature of the protocol that few readers know, a file keeps the types that it was written with. So for a wider type
    all rows are written again.
    """
    uri = directory.uri
    table = DeltaTable(uri)
    if _differs(table, schema):
        evolve(pa.schema(table.schema().to_arrow()), schema, "the table", is_partial=True)
        columns = table.metadata().partition_columns
        partition = [pa.field(name, pa.string()) for name in columns]
        empty = pa.schema([*schema, *partition]).empty_table()
        write_deltalake(
            uri,
            empty,
            mode="append",
            schema_mode="merge",
            partition_by=columns or None,
            commit_properties=_PINNED,
        )
    table = DeltaTable(uri)
    if _differs(table, schema):
        _rewrite(table, directory, schema)


def _differs(table: DeltaTable, schema: pa.Schema) -> bool:
    known = {field.name: field.type for field in table.schema().fields}
    return any(known.get(field.name) != field.type for field in Schema.from_arrow(schema).fields)


def _rewrite(table: DeltaTable, directory: Directory, schema: pa.Schema) -> None:
    """Write all rows again with the types of ``schema``, batch by batch."""
    wanted = {field.name: field.type for field in Schema.from_arrow(schema).fields}
    columns = [Field(field.name, wanted.get(field.name, field.type)) for field in table.schema().fields]
    target = pa.schema(Schema(columns).to_arrow())
    rows = table.to_pyarrow_dataset(filesystem=directory.file_system()).scanner().to_reader()
    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(target, (aligned(batch, target) for batch in rows)),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=table.metadata().partition_columns or None,
        commit_properties=_PINNED,
    )
