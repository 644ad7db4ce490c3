"""How the columns of a table follow a changed schema."""

from __future__ import annotations

import pyarrow as pa

from gantrymq.tables.bodies.errors import SchemaError

_SQL_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}
_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


def evolve(old: pa.Schema, new: pa.Schema, source: str = "the schema", *, is_partial: bool = False) -> pa.Schema:
    """The columns of a table after a schema has changed: the old ones in their order, then the added ones.

    INT may become BIGINT and FLOAT may become DOUBLE. Fields may be added at any level. ``is_partial`` is for a schema
    that is a table's together with others: it may lack fields, and may have the narrower type.

    Raises: SchemaError, which names the field and both types.
    """
    return pa.schema(_Evolution(source, is_partial).fields(list(old), list(new), ""))


class _Evolution:
    def __init__(self, source: str, is_partial: bool) -> None:
        self._source = source
        self._is_partial = is_partial

    def fields(self, old: list[pa.Field], new: list[pa.Field], path: str) -> list[pa.Field]:
        """The fields of one level."""
        by_name = {field.name: field for field in new}
        fields = []
        for field in old:
            below = f"{path}.{field.name}" if path else field.name
            other = by_name.pop(field.name, None)
            if other is None and not self._is_partial:
                raise SchemaError(self._source, f"the field {below} is missing: a table keeps its columns, so add it")
            fields.append(field if other is None else field.with_type(self._type(field.type, other.type, below)))
        names = {field.name.lower(): field.name for field in fields}
        for name, field in by_name.items():
            if name.lower() in names:
                below = f"{path}.{name}" if path else name
                raise SchemaError(self._source, f"the field {below} differs from {names[name.lower()]} by case only")
            fields.append(field)
        return fields

    def _type(self, old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
        if old == new or _WIDER.get(old) == new:
            return new
        if self._is_partial and _WIDER.get(new) == old:
            return old
        if pa.types.is_struct(old) and pa.types.is_struct(new):
            return pa.struct(self.fields(list(old), list(new), path))
        if pa.types.is_list(old) and pa.types.is_list(new):
            element = self._type(old.value_type, new.value_type, f"{path}[]")
            return pa.list_(old.value_field.with_type(element))
        if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
            return pa.map_(old.key_type, self._type(old.item_type, new.item_type, f"{path}[]"))
        raise SchemaError(self._source, f"the field {path} is {sql_name(old)} and cannot become {sql_name(new)}")


def sql_name(kind: pa.DataType) -> str:
    """The name of a type in Spark's SQL."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_name(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SQL_NAMES.get(kind, str(kind))


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a batch as those of a schema that has evolved from its own: by name, missing ones are null."""
    if batch.schema.equals(schema):
        return batch
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [
        _aligned(columns[field.name], field.type) if field.name in columns else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _aligned(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        children = {array.type.field(n).name: array.field(n) for n in range(array.type.num_fields)}
        arrays = [
            _aligned(children[field.name], field.type) if field.name in children else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        return _with_children(array, kind, _aligned(array.values, kind.value_type))
    if pa.types.is_map(kind):
        arrays = [_aligned(array.keys, kind.key_type), _aligned(array.items, kind.item_type)]
        return _with_children(array, kind, pa.StructArray.from_arrays(arrays, fields=[kind.key_field, kind.item_field]))
    return array.cast(kind)


def _with_children(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """A list or map with another child, which has as many values; also of a slice."""
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, [child])
