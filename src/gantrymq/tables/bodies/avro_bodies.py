"""Avro bodies as columns: one plain datum a body, in the schema that it was written with.

fastavro decodes a body, and encodes the result again. If that gives the same bytes, the body is whole and valid. The
check is needed because fastavro takes negative indices of unions and enums, numbers of more than 64 bits, any byte for
a boolean, and the last of two equal keys of a map. ``_StrictReader`` decides about the other bodies: it takes arrays in
several blocks, and names the field of what is wrong.

Thread rule: a format is a value, its schema is parsed in each process.
"""

from __future__ import annotations

import io
import json
import struct as structs
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from gantrymq.tables.bodies.body_format import DecodedBodies
from gantrymq.tables.bodies.columns import ColumnBuilder
from gantrymq.tables.bodies.errors import MisfitError, SchemaError
from gantrymq.tables.bodies.names import column_names
from gantrymq.tables.bodies.shapes import Field, ListOf, MapOf, Scalar, ScalarKind, Shape, StructOf, arrow_schema

_PRIMITIVES = {
    "boolean": Scalar(ScalarKind.BOOLEAN),
    "int": Scalar(ScalarKind.INTEGER, 32),
    "long": Scalar(ScalarKind.INTEGER, 64),
    "float": Scalar(ScalarKind.FLOAT),
    "double": Scalar(ScalarKind.DOUBLE),
    "string": Scalar(ScalarKind.STRING),
    "bytes": Scalar(ScalarKind.BINARY),
}
_LOGICAL = {
    ("int", "date"): Scalar(ScalarKind.DATE, unit="days"),
    ("long", "timestamp-millis"): Scalar(ScalarKind.TIMESTAMP, unit="ms"),
    ("long", "timestamp-micros"): Scalar(ScalarKind.TIMESTAMP, unit="us"),
    ("long", "timestamp-nanos"): Scalar(ScalarKind.TIMESTAMP, unit="ns"),
}
_UNIONS = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


class AvroSchema:
    """A parsed schema: its columns, and the decoder of bodies that were written with it. Raises: SchemaError."""

    message_name = descriptors = ""

    def __init__(self, text: str, source: str) -> None:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType

        self._source = source
        try:
            raw = json.loads(text)
            self._named: dict[str, Any] = {}
            parsed = fastavro.parse_schema(raw, self._named)
            self._plain = fastavro.parse_schema(_without_logical_types(raw))
        except json.JSONDecodeError as error:
            raise SchemaError(source, f"line {error.lineno}, column {error.colno}: {error.msg}") from None
        except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError, RecursionError) as error:
            raise SchemaError(source, f"no valid Avro schema: {type(error).__name__} {error}") from None
        shape = self._shape(parsed, "", ())
        if not isinstance(shape, StructOf):
            raise SchemaError(source, "the Avro schema of a body must be a record with at least one field")
        self.struct = shape
        self._strict = _StrictReader(parsed, self._named)

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies."""
        reasons: list[str | None] = []
        rows: list[dict[str, Any]] = []
        empty: dict[str, Any] = {}
        for body in bodies.to_pylist():
            row, reason = self._datum(body or b"")
            rows.append(empty if row is None else row)
            reasons.append(reason)
        return from_dicts(self.struct, rows, reasons)

    def _datum(self, body: bytes) -> tuple[dict[str, Any] | None, str | None]:
        from fastavro import schemaless_reader, schemaless_writer

        try:
            row = schemaless_reader(io.BytesIO(body), self._plain, None)
            again = io.BytesIO()
            schemaless_writer(again, self._plain, row)
            if again.getvalue() == body:
                return row, None  # type: ignore[return-value]
        except Exception:  # any: fastavro has no root of its errors
            pass
        try:
            return self._strict.datum(body), None
        except MisfitError as error:
            return None, str(error)

    def _shape(self, schema: Any, path: str, names: tuple[str, ...]) -> Shape | None:
        """The shape of a schema, None for one without a value."""
        if isinstance(schema, list):
            return self._union(schema, path, names)
        if isinstance(schema, str):
            if schema == "null":
                return None
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._shape(self._named[schema], path, names)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, path, names)
            case "enum":
                return Scalar(ScalarKind.STRING)
            case "array":
                element = self._shape(schema["items"], f"{path}[]", names)
                if element is None:
                    raise SchemaError(self._source, f"the elements of the field {path} have no value")
                return ListOf(element)
            case "map":
                value = self._shape(schema["values"], f"{path}[]", names)
                if value is None:
                    raise SchemaError(self._source, f"the values of the field {path} have no value")
                return MapOf(value)
            case "fixed" | "bytes" | "string" | "int" | "long":
                return self._logical(schema, path)
        return self._shape(kind, path, names)

    def _record(self, schema: dict[str, Any], path: str, names: tuple[str, ...]) -> StructOf | None:
        name = schema["name"]
        if name in names:
            raise SchemaError(self._source, f"the field {path} contains itself ({name}), so it has no columns")
        shapes = [
            (
                field["name"],
                self._shape(field["type"], f"{path}.{field['name']}" if path else field["name"], (*names, name)),
            )
            for field in schema["fields"]
        ]
        fields = [(key, shape) for key, shape in shapes if shape is not None]
        columns = column_names([key for key, _ in fields], path, self._source)
        made = (Field(key, column, shape) for (key, shape), column in zip(fields, columns, strict=True))
        return StructOf(tuple(made)) if fields else None

    def _union(self, schema: list[Any], path: str, names: tuple[str, ...]) -> Shape | None:
        others = [part for part in schema if part != "null"]
        if len(others) == 1:
            return self._shape(others[0], path, names)
        wide = _UNIONS.get(frozenset(part for part in others if isinstance(part, str)))
        if wide is not None and len(others) == 2:
            return _PRIMITIVES[wide]
        if not others:
            return None
        kinds = ", ".join(part if isinstance(part, str) else str(part.get("type")) for part in others)
        raise SchemaError(
            self._source,
            f"the field {path} is a union of {kinds}: only null and one type, int with long, or float with double",
        )

    def _logical(self, schema: dict[str, Any], path: str) -> Scalar:
        kind, logical = str(schema["type"]), str(schema.get("logicalType"))
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        if logical == "decimal" and kind in {"bytes", "fixed"} and isinstance(schema.get("precision"), int):
            precision, scale = schema["precision"], schema.get("scale", 0)
            if not 1 <= precision <= 38 or not 0 <= scale <= precision:
                raise SchemaError(self._source, f"the decimal of the field {path} has more than 38 digits")
            return Scalar(ScalarKind.DECIMAL, precision=precision, scale=scale, unit="bytes")
        if kind == "fixed":
            if schema["size"] < 1:
                raise SchemaError(self._source, f"the field {path} is of zero bytes")
            return (
                Scalar(ScalarKind.STRING, unit="uuid")
                if logical == "uuid" and schema["size"] == 16
                else _PRIMITIVES["bytes"]
            )
        return _PRIMITIVES[kind]


def _without_logical_types(schema: Any) -> Any:
    """A schema with the values as they are stored."""
    if isinstance(schema, dict):
        return {
            key: value if key in {"default", "symbols", "aliases"} else _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return [_without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


def from_dicts(struct: StructOf, rows: Sequence[dict[str, Any]], reasons: list[str | None]) -> DecodedBodies:
    """The columns of dicts, with nulls where there is a reason; completes the reasons by those of the columns."""
    builder = ColumnBuilder(len(rows), items_of)
    batch = pa.RecordBatch.from_arrays(builder.arrays(struct, rows), schema=arrow_schema(struct))
    for row, reason in builder.misfits.items():
        reasons[row] = reasons[row] or reason
    if any(reason is not None for reason in reasons):
        batch = batch.take(pa.array([None if reason else row for row, reason in enumerate(reasons)], pa.int64()))
    return DecodedBodies(batch, reasons)


def items_of(objects: Sequence[Any], index: int, field: Field) -> list[Any]:
    """The values of a key; an object may be None."""
    key = field.key
    return [None if item is None else item.get(key) for item in objects]


class _StrictReader:
    """Decodes a datum by the letter of the specification, slowly, and names the field of an error."""

    def __init__(self, schema: Any, named: dict[str, Any]) -> None:
        self._schema = schema
        self._named = named

    def datum(self, body: bytes) -> dict[str, Any]:
        """The record of a body. Raises: MisfitError."""
        cursor = _Cursor(body)
        value = self._read(self._schema, cursor, "")
        if cursor.left:
            raise MisfitError("", f"{cursor.left} bytes behind the Avro record")
        return value  # type: ignore[no-any-return]

    def _read(self, schema: Any, cursor: _Cursor, path: str) -> Any:
        if isinstance(schema, list):
            index = cursor.number(path)
            if not 0 <= index < len(schema):
                raise MisfitError(path, f"a union of {len(schema)} types has no type {index}")
            return self._read(schema[index], cursor, path)
        kind = schema["type"] if isinstance(schema, dict) else schema
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is not None:
            return reader(cursor, path)
        match kind:
            case "record" | "error":
                return {
                    field["name"]: self._read(
                        field["type"], cursor, f"{path}.{field['name']}" if path else field["name"]
                    )
                    for field in schema["fields"]
                }
            case "enum":
                index = cursor.number(path)
                if not 0 <= index < len(schema["symbols"]):
                    raise MisfitError(path, f"the enum has no symbol {index}")
                return schema["symbols"][index]
            case "fixed":
                return cursor.take(schema["size"], path)
            case "array":
                return [self._read(schema["items"], cursor, f"{path}[{n}]") for n in self._block_items(cursor, path)]
            case "map":
                return self._map(schema["values"], cursor, path)
        return self._read(self._named[kind] if isinstance(kind, str) else kind, cursor, path)

    def _map(self, schema: Any, cursor: _Cursor, path: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _ in self._block_items(cursor, path):
            key = _text(cursor, path)
            if key in entries:
                raise MisfitError(f"{path}.{key}", "the key is there twice")
            entries[key] = self._read(schema, cursor, f"{path}.{key}")
        return entries

    @staticmethod
    def _block_items(cursor: _Cursor, path: str) -> Any:
        """The indices of the items of all blocks. An item has at least one byte, so the body's length bounds them."""
        index = 0
        while count := cursor.number(path):
            if count < 0:
                count = -count
                cursor.number(path)  # the bytes of the block
            if count > cursor.left:
                raise MisfitError(path, f"{count} items are announced, and {cursor.left} bytes are left")
            for _ in range(count):
                yield index
                index += 1


class _Cursor:
    """A position in a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def left(self) -> int:
        """The bytes that are not read yet."""
        return len(self._body) - self._at

    def take(self, size: int, path: str) -> bytes:
        """The next bytes."""
        if not 0 <= size <= self.left:
            raise MisfitError(path, f"{size} bytes are announced, and {self.left} bytes are left")
        self._at += size
        return self._body[self._at - size : self._at]

    def number(self, path: str, bits: int = 64) -> int:
        """A number in zigzag and groups of 7 bits."""
        value = 0
        for shift in range(0, 70, 7):
            if not self.left:
                raise MisfitError(path, "the body ends in a number")
            byte = self._body[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                return (value >> 1) ^ -(value & 1)
        raise MisfitError(path, f"a number of more than {bits} bits")


def _text(cursor: _Cursor, path: str) -> str:
    data = cursor.take(cursor.number(path), path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MisfitError(path, f"not UTF-8 at byte {error.start} of the text") from None


def _boolean(cursor: _Cursor, path: str) -> bool:
    byte = cursor.take(1, path)[0]
    if byte > 1:
        raise MisfitError(path, f"{byte} is no boolean")
    return bool(byte)


_READERS: dict[str, Callable[[_Cursor, str], Any]] = {
    "null": lambda cursor, path: None,
    "boolean": _boolean,
    "int": lambda cursor, path: cursor.number(path, 32),
    "long": lambda cursor, path: cursor.number(path),
    "float": lambda cursor, path: structs.unpack("<f", cursor.take(4, path))[0],
    "double": lambda cursor, path: structs.unpack("<d", cursor.take(8, path))[0],
    "bytes": lambda cursor, path: cursor.take(cursor.number(path), path),
    "string": _text,
}


@lru_cache(64)
def avro_schema(text: str, source: str) -> AvroSchema:
    """The schema of a text; each process parses it once."""
    return AvroSchema(text, source)
