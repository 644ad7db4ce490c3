"""Objects in memory as columns of Arrow.

The values come from a decoder that has checked their types. What only a whole column can check cheaply (whether a text
is a timestamp) is checked here, first at once, and value by value if there is a bad one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.tables.bodies import values as texts
from gantrymq.tables.bodies.errors import MisfitError
from gantrymq.tables.bodies.shapes import (
    Field,
    ListOf,
    MapOf,
    Scalar,
    ScalarKind,
    Shape,
    StructOf,
    arrow_schema,
    arrow_type,
)

Rows: TypeAlias = npt.NDArray[np.int64]
FieldValues = Callable[[Sequence[Any], int, Field], list[Any]]
"""The values of a field of some objects, by its position or its name; an object may be None."""

_COLON = ord(":")
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class ColumnBuilder:
    """Makes the columns of ``size`` rows.

    ``misfits`` has a reason for each row with a bad value. ``weights`` counts for each row the keys of its objects and
    the colons in its texts and keys, which tells ``json_bodies`` whether it has seen all of a body.
    """

    def __init__(self, size: int, field_values: FieldValues, *, weighs: bool = False) -> None:
        self._all = np.arange(size, dtype=np.int64)
        self._field_values = field_values
        self._weighs = weighs
        self.weights = np.zeros(size, np.int64)
        self.misfits: dict[int, str] = {}

    def arrays(self, struct: StructOf, objects: Sequence[Any]) -> list[pa.Array]:
        """The columns of the outermost objects."""
        return self._fields(struct, objects, self._all, "")

    def _fields(self, struct: StructOf, objects: Sequence[Any], rows: Rows, path: str) -> list[pa.Array]:
        arrays = []
        for index, field in enumerate(struct.fields):
            below = f"{path}.{field.key}" if path else field.key
            values = self._field_values(objects, index, field)
            array = self._array(field.shape, values, rows, below)
            if not field.accepts_null and array.null_count:
                self._refuse_raw_nulls(field.shape, values, rows, below)
            if self._weighs:
                self._weigh(rows, 1 if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False))
            arrays.append(array)
        return arrays

    def _refuse_raw_nulls(self, shape: Shape, values: list[Any], rows: Rows, path: str) -> None:
        """The nulls that msgspec does not see."""
        for row, value in zip(rows, values, strict=True):
            if isinstance(value, msgspec.Raw) and bytes(value) == b"null":
                self._misfit(row, path, f"expected {shape}, got null")

    def _weigh(self, rows: Rows, weights: Any) -> None:
        if rows is self._all:
            self.weights += weights
        else:
            np.add.at(self.weights, rows, weights)

    def _array(self, shape: Shape, values: list[Any], rows: Rows, path: str) -> pa.Array:
        match shape:
            case StructOf():
                arrays = self._fields(shape, values, rows, path)
                return pa.StructArray.from_arrays(arrays, fields=list(arrow_schema(shape)), mask=_nulls(values))
            case ListOf(element=element):
                offsets, inner_rows = _offsets(values, rows)
                inner = [item for value in values if value for item in value]
                array = self._array(element, inner, inner_rows, f"{path}[]")
                return pa.ListArray.from_arrays(offsets, array, type=arrow_type(shape), mask=_nulls(values))
            case MapOf(value=inner_shape):
                offsets, inner_rows = _offsets(values, rows)
                keys = pa.array([key for value in values if value for key in value], pa.string())
                if self._weighs and len(keys):
                    self._weigh(inner_rows, 1 + colons(keys))
                inner = [item for value in values if value for item in value.values()]
                array = self._array(inner_shape, inner, inner_rows, path)
                return pa.MapArray.from_arrays(offsets, keys, array, type=arrow_type(shape), mask=_nulls(values))
        return self._scalars(shape, values, rows, path)

    def _scalars(self, shape: Scalar, values: list[Any], rows: Rows, path: str) -> pa.Array:
        each = _EACH.get((shape.kind, shape.unit))
        if each is not None:
            kind = arrow_type(shape)
            return pa.array(self._convert(values, rows, path, lambda value: each(value, shape)), kind)
        if shape.kind is ScalarKind.TIMESTAMP or shape.kind is ScalarKind.DATE:
            return self._times(shape, values, rows, path)
        if shape.kind is ScalarKind.FLOAT and self._weighs:
            return self._floats(values, rows, path)
        try:
            array = pa.array(values, arrow_type(shape))
        except pa.ArrowInvalid:  # fastavro takes numbers of 64 bits for an int
            values = self._convert(values, rows, path, lambda value: _bounded(value, shape))
            array = pa.array(values, arrow_type(shape))
        if shape.kind is ScalarKind.STRING and self._weighs:
            self._weigh_texts(array, rows)
        return array

    def _weigh_texts(self, array: pa.Array, rows: Rows) -> None:
        counts = colons(array)
        if counts.any():
            self._weigh(rows, counts)

    def _floats(self, values: list[Any], rows: Rows, path: str) -> pa.Array:
        array = pa.array(values, pa.float64()).cast(pa.float32(), safe=False)
        for index in np.flatnonzero(pc.is_inf(array).fill_null(False).to_numpy(zero_copy_only=False)):
            self._misfit(rows[index], path, f"{values[index]} is out of range of FLOAT")
        return array

    def _times(self, shape: Scalar, values: list[Any], rows: Rows, path: str) -> pa.Array:
        """Timestamps and dates, of texts or of numbers since 1970."""
        array = pa.array(values, pa.int64() if shape.unit else pa.string())
        if self._weighs and not shape.unit:
            self._weigh_texts(array, rows)
        made = timestamps_or_dates(array, shape)
        if made is not None:
            return made
        convert = _time_converter(shape)
        return _dated(pa.array(self._convert(values, rows, path, convert), pa.int64()), shape.kind is ScalarKind.DATE)

    def _convert(self, values: list[Any], rows: Rows, path: str, convert: Callable[[Any], Any]) -> list[Any]:
        converted: list[Any] = []
        for index, value in enumerate(values):
            try:
                converted.append(None if value is None else convert(value))
            except ValueError as error:
                converted.append(None)
                self._misfit(rows[index], path, str(error))
        return converted

    def _misfit(self, row: Any, path: str, why: str) -> None:
        self.misfits.setdefault(int(row), str(MisfitError(path, why)))


def timestamps_or_dates(array: pa.Array, shape: Scalar) -> pa.Array | None:
    """Texts, or numbers since 1970, as timestamps or dates at once; None if there is one that does not fit."""
    is_date = shape.kind is ScalarKind.DATE
    low, high = (texts.MIN_DAYS, texts.MAX_DAYS) if is_date else (texts.MIN_TIMESTAMP_US, texts.MAX_TIMESTAMP_US)
    try:
        number = _units(array, shape.unit) if shape.unit else _casts(array, is_date)
    except pa.ArrowInvalid:
        return None
    bounds = pc.min_max(number).as_py()
    return _dated(number, is_date) if bounds["min"] is None or low <= bounds["min"] <= bounds["max"] <= high else None


def colons(array: pa.Array) -> npt.NDArray[np.int64]:
    """The number of colons of each text or body."""
    data = body_bytes(array)
    if not len(data):
        return np.zeros(len(array), np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    positions = np.flatnonzero(data == _COLON)
    if not len(positions):
        return np.zeros(len(array), np.int64)
    counts: npt.NDArray[np.int64] = np.diff(np.searchsorted(positions, offsets - offsets[0]))
    return counts


def body_bytes(array: pa.Array) -> npt.NDArray[np.uint8]:
    """All bytes of texts or bodies, without a copy."""
    _, offsets_buffer, data = array.buffers()
    if data is None or not len(array):
        return np.zeros(0, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _nulls(values: Sequence[Any]) -> pa.Array | None:
    nulls = [value is None for value in values]
    return pa.array(nulls, pa.bool_()) if any(nulls) else None


def _offsets(values: Sequence[Any], rows: Rows) -> tuple[pa.Array, Rows]:
    """The offsets of lists, and the row of each of their elements."""
    lengths = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return pa.array(offsets.astype(np.int32)), np.repeat(rows, lengths)


def _casts(array: pa.Array, is_date: bool) -> pa.Array:
    """Texts as numbers since 1970. Raises ArrowInvalid if there is a text that Arrow does not take."""
    if is_date:
        return array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    kind = pa.timestamp("us", "UTC")
    try:
        return array.cast(kind).cast(pa.int64())
    except pa.ArrowInvalid:  # digits after the sixth of a second
        short = pc.replace_substring_regex(array, pattern=r"(\.[0-9]{6})[0-9]{1,3}([Z+-])", replacement=r"\1\2")
        return short.cast(kind).cast(pa.int64())


def _units(array: pa.Array, unit: str) -> pa.Array:
    """Numbers since 1970 as microseconds, or days as they are."""
    if unit == "ms":
        return pc.multiply_checked(array, 1_000)
    if unit == "ns":
        return array.cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    return array


def _dated(numbers: pa.Array, is_date: bool) -> pa.Array:
    return numbers.cast(pa.int32()).cast(pa.date32()) if is_date else numbers.cast(pa.timestamp("us", "UTC"))


def _time_converter(shape: Scalar) -> Callable[[Any], int]:
    if shape.kind is ScalarKind.DATE:
        return _checked_days if shape.unit else texts.date_days
    if not shape.unit:
        return texts.timestamp_us
    factor = _PER_SECOND[shape.unit]
    return lambda value: texts.checked_timestamp_us(value * 1_000_000 // factor)


def _checked_days(value: int) -> int:
    if not texts.MIN_DAYS <= value <= texts.MAX_DAYS:
        raise ValueError("out of range: a date is within the years 1 to 9999")
    return value


def _bounded(value: int, shape: Scalar) -> int:
    if not shape.bounds[0] <= value <= shape.bounds[1]:
        raise ValueError(f"{value} is out of range of {shape}")
    return value


def _json_decimal(value: msgspec.Raw | Decimal, shape: Scalar) -> Decimal | None:
    if isinstance(value, Decimal):
        return value
    token = bytes(value)
    return None if token == b"null" else texts.json_number(token, shape)


def _json_text(value: msgspec.Raw | str) -> str | None:
    text = value if isinstance(value, str) else bytes(value).decode("utf-8")
    return None if text == "null" else text


def _bytes_decimal(value: bytes, shape: Scalar) -> Decimal:
    if len(value) > 20:
        raise ValueError(f"out of range: a decimal of {len(value)} bytes")
    number = int.from_bytes(value, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return texts.decimal_value(Decimal((int(number < 0), digits, -shape.scale)), shape)


_EACH: dict[tuple[ScalarKind, str], Callable[[Any, Scalar], Any]] = {
    (ScalarKind.BINARY, "base64"): lambda value, _: texts.base64_bytes(value),
    (ScalarKind.DECIMAL, "json"): _json_decimal,
    (ScalarKind.DECIMAL, "bytes"): _bytes_decimal,
    (ScalarKind.DECIMAL, "integer"): lambda value, _: Decimal(value),
    (ScalarKind.JSON, ""): lambda value, _: _json_text(value),
    (ScalarKind.STRING, "uuid"): lambda value, _: str(uuid.UUID(bytes=value)),
}
"""Conversions of single values, by kind and unit."""
