"""The types of a body's fields, with all that decides whether a value fits, and their types in a table.

Every type exists in Delta and in Iceberg v2: no unsigned and no 8- or 16-bit integers, no timestamps without a zone.

Thread rule: values, which can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import pyarrow as pa

MAX_DEPTH = 32  # levels of a schema
_INTEGER_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_ARROW = {
    "BOOLEAN": pa.bool_(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "JSON": pa.string(),
}


class ScalarKind(Enum):
    """The kinds of a scalar."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    JSON = "JSON"  # any value, which lands as its text


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts.

    ``bits`` is the size of an integer, ``unit`` how a body that is no JSON holds the value: the unit of a number that
    is a timestamp, or the bytes of a decimal or a UUID.
    """

    kind: ScalarKind
    bits: int = 64
    precision: int = 0
    scale: int = 0
    max_length: int | None = None
    unit: str = ""

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    def __str__(self) -> str:
        if self.kind is ScalarKind.INTEGER:
            return _INTEGER_NAMES[self.bits]
        if self.kind is ScalarKind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return self.kind.value if self.max_length is None else f"VARCHAR({self.max_length})"


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array."""

    element: Shape
    accepts_null: bool = True

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object whose keys are data. Keys are text."""

    value: Shape
    accepts_null: bool = True

    def __str__(self) -> str:
        return f"MAP<STRING, {self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: its key in the body, and the column."""

    key: str
    column: str
    shape: Shape
    accepts_null: bool = True
    is_required: bool = False

    def ddl(self, separator: str) -> str:
        """The field in Spark's DDL."""
        quoted = "`" + self.key.replace("`", "``") + "`"
        return f"{quoted}{separator}{self.shape}{' NOT NULL' if self.is_required and not self.accepts_null else ''}"


@dataclass(frozen=True, slots=True)
class StructOf:
    """An object with known fields."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(field.ddl(': ') for field in self.fields)}>"


Shape: TypeAlias = Scalar | ListOf | MapOf | StructOf


def arrow_type(shape: Shape) -> pa.DataType:
    """The type of a column."""
    match shape:
        case Scalar(kind=ScalarKind.INTEGER, bits=bits):
            return pa.int64() if bits == 64 else pa.int32()
        case Scalar(kind=ScalarKind.DECIMAL):
            return pa.decimal128(shape.precision, shape.scale)
        case Scalar():
            return _ARROW[shape.kind.value]
        case ListOf():
            return pa.list_(pa.field("element", arrow_type(shape.element)))
        case MapOf():
            return pa.map_(pa.string(), arrow_type(shape.value))
        case StructOf():
            return pa.struct(list(arrow_schema(shape)))


def arrow_schema(struct: StructOf) -> pa.Schema:
    """The columns of an object."""
    return pa.schema([pa.field(field.column, arrow_type(field.shape)) for field in struct.fields])


def ddl(struct: StructOf) -> str:
    """The fields as Spark's DDL, from which ``ddl.parse`` makes them again."""
    return ", ".join(field.ddl(" ") for field in struct.fields)


def fields_below(shape: Shape) -> Iterator[Field]:
    """All fields, those of inner objects too."""
    match shape:
        case ListOf(element=inner) | MapOf(value=inner):
            yield from fields_below(inner)
        case StructOf(fields=fields):
            for field in fields:
                yield field
                yield from fields_below(field.shape)


def has_kind(shape: Shape, kind: ScalarKind) -> bool:
    """Whether a scalar of a kind is somewhere in a shape."""
    match shape:
        case ListOf(element=inner) | MapOf(value=inner):
            return has_kind(inner, kind)
        case StructOf(fields=fields):
            return any(has_kind(field.shape, kind) for field in fields)
    return shape.kind is kind
