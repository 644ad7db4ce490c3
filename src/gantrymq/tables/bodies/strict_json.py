"""Strict JSON, slowly: the rules for a body, told once, with a reason that names the field.

``json_bodies`` decodes most bodies faster. It asks this module about each body that it cannot prove to fit, and a test
compares both with a third implementation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from gantrymq.tables.bodies import values
from gantrymq.tables.bodies.errors import MisfitError
from gantrymq.tables.bodies.shapes import Field, ListOf, MapOf, Scalar, ScalarKind, Shape, StructOf

MAX_LEVELS = 100
"""A body with more levels of objects and arrays does not fit, so that no recursion is deep."""

_MAX_INT_DIGITS = 4_000
_FLOAT_MAX = Decimal(2**128 - 2**103)  # from here a number becomes infinity as a float of 32 bits
_NAMES = {bool: "boolean", str: "text", dict: "an object", list: "an array", type(None): "null"}


class _Object(dict[str, Any]):
    """An object of a body; ``double`` is a key that it has twice."""

    double: str | None = None


class _Constant(str):
    """NaN or an infinity, which are no JSON."""

    __slots__ = ()


def parse(body: bytes) -> dict[str, Any]:
    """The one object of a body. Numbers with a fraction or an exponent are Decimal, as exact as in the body.

    Raises: MisfitError.
    """
    if not body:
        raise MisfitError("", "empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MisfitError("", f"not UTF-8 at byte {error.start}") from None
    doubles: list[_Object] = []
    constants: list[str] = []
    decoder = json.JSONDecoder(
        object_pairs_hook=lambda pairs: _object(pairs, doubles),
        parse_float=_decimal,
        parse_int=lambda digits: int(digits) if len(digits) < _MAX_INT_DIGITS else _decimal(digits),
        parse_constant=lambda name: _constant(name, constants),
    )
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise MisfitError("", f"not one JSON value: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise MisfitError("", f"nested deeper than {MAX_LEVELS} levels") from None
    if not isinstance(value, dict):
        raise MisfitError("", f"expected one object, got {type_name(value)}")
    is_suspect = bool(doubles or constants) or "\\ud" in text or "\\uD" in text
    for path, level, item in _items(value):
        _check_item(path, level, item, is_suspect=is_suspect)
    return value


def _constant(name: str, constants: list[str]) -> _Constant:
    constants.append(name)
    return _Constant(name)


def _object(pairs: list[tuple[str, Any]], doubles: list[_Object]) -> _Object:
    value = _Object(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        value.double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        doubles.append(value)
    return value


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise MisfitError("", f"the number {values.shown(text)} is out of range") from None


def _check_item(path: str, level: int, item: Any, *, is_suspect: bool) -> None:
    """Refuse what is wrong anywhere in a body, in unknown fields too."""
    if level > MAX_LEVELS:
        raise MisfitError(path, f"nested deeper than {MAX_LEVELS} levels")
    if not is_suspect:
        return
    if isinstance(item, _Constant):
        raise MisfitError(path, f"{item} is no JSON")
    if isinstance(item, _Object) and item.double is not None:
        raise MisfitError(_below(path, item.double), "the key is there twice")
    for text in item if isinstance(item, dict) else [item] if isinstance(item, str) else []:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise MisfitError(path, "the text has half of a surrogate pair")


def _items(value: Any) -> Iterator[tuple[str, int, Any]]:
    """All values, the outer ones first: path, level, value."""
    waiting = [("", 1, value)]
    for path, level, item in waiting:  # the list grows
        yield path, level, item
        if isinstance(item, dict):
            waiting += [(_below(path, key), level + 1, inner) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(f"{path}[{index}]", level + 1, inner) for index, inner in enumerate(item)]


def _below(path: str, key: str) -> str:
    key = key.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{path}.{key}" if path else key


def type_name(value: object) -> str:
    """The word for a value's type in a reason."""
    return _NAMES.get(type(value)) or ("an object" if isinstance(value, dict) else f"the number {_number(value)}")


def _number(value: object) -> str:
    text = str(value) if not isinstance(value, int) or value.bit_length() < 200 else f"of {value.bit_length()} bits"
    return text if len(text) <= 40 else text[:39] + "…"


MakeObject = Callable[[StructOf, list[Any]], Any]
"""Makes the object of a shape from the values of its fields."""


def fit(shape: Shape, value: Any, path: str, make: MakeObject) -> Any:
    """A value of :func:`parse` as ``columns`` takes it. Raises MisfitError."""
    match shape:
        case StructOf():
            if not isinstance(value, dict):
                raise _other(shape, value, path)
            return make(shape, [_field_value(field, value, path, make) for field in shape.fields])
        case ListOf(element=inner, accepts_null=accepts_null):
            if not isinstance(value, list):
                raise _other(shape, value, path)
            return [_inner(inner, item, f"{path}[{n}]", accepts_null, make) for n, item in enumerate(value)]
        case MapOf(value=inner, accepts_null=accepts_null):
            if not isinstance(value, dict):
                raise _other(shape, value, path)
            return {key: _inner(inner, item, _below(path, key), accepts_null, make) for key, item in value.items()}
    try:
        return _scalar(shape, value)
    except ValueError as error:
        raise MisfitError(path, str(error)) from None
    except TypeError:
        raise _other(shape, value, path) from None


def _field_value(field: Field, value: dict[str, Any], path: str, make: MakeObject) -> Any:
    if field.key not in value:
        if field.is_required:
            raise MisfitError(_below(path, field.key), "missing, and the schema requires it")
        return None
    return _inner(field.shape, value[field.key], _below(path, field.key), field.accepts_null, make)


def _inner(shape: Shape, value: Any, path: str, accepts_null: bool, make: MakeObject) -> Any:
    if value is None:
        if not accepts_null:
            raise MisfitError(path, f"expected {shape}, got null")
        return None
    return fit(shape, value, path, make)


def _other(shape: Shape, value: Any, path: str) -> MisfitError:
    return MisfitError(path, f"expected {shape}, got {type_name(value)}")


def _scalar(shape: Scalar, value: Any) -> Any:
    """A scalar. Raises ValueError with the reason, or TypeError if the value is of another type."""
    match shape.kind, value:
        case ScalarKind.JSON, _:
            return json_text(value)
        case ScalarKind.BOOLEAN, bool():
            return value
        case ((ScalarKind.INTEGER | ScalarKind.FLOAT | ScalarKind.DOUBLE | ScalarKind.DECIMAL), bool()):
            raise TypeError
        case ScalarKind.INTEGER, int():
            if not shape.bounds[0] <= value <= shape.bounds[1]:
                raise ValueError(f"{_number(value)} is out of range of {shape}")
            return value
        case ScalarKind.INTEGER, Decimal():
            if value.adjusted() > 30:
                raise ValueError(f"{_number(value)} is out of range of {shape}")
            raise ValueError(f"expected {shape}, got a number with a fraction or an exponent: {_number(value)}")
        case ((ScalarKind.FLOAT | ScalarKind.DOUBLE), (int() | Decimal())):
            return _float(shape, value)
        case ScalarKind.DECIMAL, (int() | Decimal()):
            return values.decimal_value(value, shape)
        case ScalarKind.STRING, str():
            if shape.max_length is not None and len(value) > shape.max_length:
                raise ValueError(f"the text has {len(value)} characters, {shape} takes {shape.max_length}")
            return value
        case ScalarKind.BINARY, str():
            values.base64_bytes(value)
            return value
        case ScalarKind.DATE, str():
            values.date_days(value)
            return value
        case ScalarKind.TIMESTAMP, str():
            values.timestamp_us(value)
            return value
    raise TypeError


def _float(shape: Scalar, value: int | Decimal) -> float:
    """The nearest number of a column, which is none for a number beyond the largest."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = float("inf")
    if nearest in (float("inf"), float("-inf")) or (shape.kind is ScalarKind.FLOAT and abs(nearest) >= _FLOAT_MAX):
        raise ValueError(f"{_number(value)} is out of range of {shape}")
    return nearest


def json_text(value: Any) -> str:
    """A value of :func:`parse` as JSON again; numbers keep their digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{json_text(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value of :func:`parse` with floats in place of Decimal."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value
