"""Flat JSON bodies as columns, without an object for any body or value.

A kernel finds the values (:mod:`gantrymq.kernels.json_fields`), copies them behind one another, and Arrow converts them
at once. Bodies that the kernel does not read, and values that Arrow does not convert, are left to ``json_bodies``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gantrymq.kernels import codes
from gantrymq.kernels.api import gather, json_fields
from gantrymq.kernels.arrays import read_only
from gantrymq.tables.bodies import values
from gantrymq.tables.bodies.columns import body_bytes, timestamps_or_dates
from gantrymq.tables.bodies.shapes import Scalar, ScalarKind, StructOf

Mask = npt.NDArray[np.bool_]

_ACCEPTED: dict[ScalarKind, set[int]] = {
    ScalarKind.BOOLEAN: {codes.JSON_FALSE, codes.JSON_TRUE},
    ScalarKind.INTEGER: {codes.JSON_INTEGER},
    **{
        kind: {codes.JSON_INTEGER, codes.JSON_FRACTION}
        for kind in (ScalarKind.FLOAT, ScalarKind.DOUBLE, ScalarKind.DECIMAL)
    },
    **{
        kind: {codes.JSON_TEXT}
        for kind in (ScalarKind.STRING, ScalarKind.BINARY, ScalarKind.DATE, ScalarKind.TIMESTAMP)
    },
}


class FlatReader:
    """Reads the flat bodies of one shape, whose fields are all scalars."""

    def __init__(self, struct: StructOf) -> None:
        self._fields = [(field, field.shape) for field in struct.fields if isinstance(field.shape, Scalar)]
        keys = [field.key.encode("utf-8", "surrogatepass") for field in struct.fields]
        self._keys = read_only(b"".join(keys) + bytes(8))
        self._key_offsets = np.concatenate(([0], np.cumsum([len(key) for key in keys], dtype=np.int64)))
        self._accepted = [
            self._lookup(shape.kind, field.accepts_null, field.is_required) for field, shape in self._fields
        ]

    @staticmethod
    def is_for(struct: StructOf) -> bool:
        """Whether all fields are scalars."""
        return bool(struct.fields) and all(
            isinstance(field.shape, Scalar) and field.shape.kind in _ACCEPTED for field in struct.fields
        )

    @staticmethod
    def _lookup(kind: ScalarKind, accepts_null: bool, is_required: bool) -> Mask:
        """Which kinds of values a field takes."""
        accepted = np.zeros(codes.JSON_TEXT + 1, bool)
        accepted[list(_ACCEPTED[kind])] = True
        accepted[codes.JSON_NULL] = accepts_null
        accepted[codes.JSON_MISSING] = not is_required
        return accepted

    def read(self, bodies: pa.BinaryArray, *, accepts_unknown: bool) -> tuple[list[pa.Array], Mask]:
        """The columns, and the rows that they hold; other rows have any values. The bodies must be UTF-8."""
        size = len(bodies)
        data = read_only(body_bytes(bodies).data) if len(body_bytes(bodies)) else read_only(bytes(8))
        offsets = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset : bodies.offset + size + 1].astype(
            np.int64
        )
        offsets -= offsets[0]
        shape = (len(self._fields), size)
        kinds, at, length = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape, np.int64)
        states, scratch = np.empty(size, np.int64), np.empty((2, codes.MAX_UNKNOWN_KEYS), np.int64)
        json_fields(data, offsets, size, self._keys, self._key_offsets, kinds, at, length, states, scratch)
        is_read = states > 0 if accepts_unknown else states == 1
        arrays = []
        for index in range(len(self._fields)):
            is_read &= self._accepted[index][kinds[index]]
        for index, (_, scalar) in enumerate(self._fields):
            has_value = is_read & (kinds[index] > codes.JSON_NULL)
            if scalar.kind is ScalarKind.BOOLEAN:
                arrays.append(pa.array(kinds[index] == codes.JSON_TRUE, mask=~has_value))
                continue
            texts = _texts(data, at[index], np.where(has_value, length[index], -1), has_value)
            array, is_good = _CONVERT[scalar.kind](texts, scalar)
            is_read &= is_good
            arrays.append(array)
        return arrays, is_read


def _texts(data: Any, at: Any, length: Any, has_value: Mask) -> pa.StringArray:
    size = len(at)
    out = np.empty(max(int(np.maximum(length, 0).sum()), 1), np.uint8)
    offsets = np.empty(size + 1, np.int32)
    gather(data, at, length, 0, size, out, offsets)
    validity = None if has_value.all() else pa.py_buffer(np.packbits(has_value, bitorder="little"))
    return pa.StringArray.from_buffers(size, pa.py_buffer(offsets), pa.py_buffer(out), validity)


def _mask(array: pa.Array) -> Mask:
    """A boolean array as a mask; null is True."""
    mask: Mask = array.fill_null(True).to_numpy(zero_copy_only=False)
    return mask


def _integers(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    try:
        numbers = texts.cast(pa.int64())
        is_good: Any = True
    except pa.ArrowInvalid:  # out of range
        is_good = _mask(pc.less(pc.binary_length(texts), 19))
        numbers = _where(texts, is_good).cast(pa.int64())
    if scalar.bits == 64:
        return numbers, is_good
    low, high = scalar.bounds
    is_good = is_good & _mask(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)))
    return _where(numbers, is_good).cast(pa.int32()), is_good


def _doubles(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    try:
        numbers = texts.cast(pa.float64())
    except pa.ArrowInvalid:  # out of range
        return pa.nulls(len(texts), pa.float64() if scalar.kind is ScalarKind.DOUBLE else pa.float32()), _mask(
            texts.is_null()
        )
    if scalar.kind is ScalarKind.FLOAT:
        numbers = numbers.cast(pa.float32(), safe=False)
    return numbers, _mask(pc.is_finite(numbers))


def _strings(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    if scalar.max_length is None:
        return texts, True
    return texts, _mask(pc.less_equal(pc.utf8_length(texts), scalar.max_length))


def _times(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    array = timestamps_or_dates(texts, scalar)
    if array is not None:
        return array, True
    convert = values.date_days if scalar.kind is ScalarKind.DATE else values.timestamp_us
    numbers, is_good = _each(texts, convert)
    if scalar.kind is ScalarKind.DATE:
        return pa.array(numbers, pa.int32()).cast(pa.date32()), is_good
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC")), is_good


def _decimals(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    numbers, is_good = _each(texts, lambda text: values.json_number(text.encode(), scalar))
    return pa.array(numbers, pa.decimal128(scalar.precision, scalar.scale)), is_good


def _binaries(texts: pa.StringArray, scalar: Scalar) -> tuple[pa.Array, Any]:
    data, is_good = _each(texts, values.base64_bytes)
    return pa.array(data, pa.binary()), is_good


def _each(texts: pa.StringArray, convert: Callable[[str], Any]) -> tuple[list[Any], Mask]:
    """The values of texts, and which of them could be converted."""
    is_good = np.ones(len(texts), bool)
    made: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            made.append(None if text is None else convert(text))
        except ValueError:
            made.append(None)
            is_good[row] = False
    return made, is_good


def _where(array: pa.Array, mask: Mask) -> pa.Array:
    return pc.if_else(pa.array(mask), array, pa.scalar(None, array.type))


_CONVERT: dict[ScalarKind, Callable[[pa.StringArray, Scalar], tuple[pa.Array, Any]]] = {
    ScalarKind.INTEGER: _integers,
    ScalarKind.FLOAT: _doubles,
    ScalarKind.DOUBLE: _doubles,
    ScalarKind.DECIMAL: _decimals,
    ScalarKind.STRING: _strings,
    ScalarKind.BINARY: _binaries,
    ScalarKind.DATE: _times,
    ScalarKind.TIMESTAMP: _times,
}
