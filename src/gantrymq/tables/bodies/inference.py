"""The fields of JSON bodies, inferred.

A number is BIGINT, or DOUBLE if one of the numbers has a fraction, or DECIMAL(38,0) if all are beyond 64 bits. A text
stays a text. If a field has several types, the most frequent is its type. A field without a value other than null and
without the elements of a list has no column yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gantrymq.tables.bodies.errors import MisfitError
from gantrymq.tables.bodies.names import MAX_NAME_CHARACTERS, column_names
from gantrymq.tables.bodies.shapes import Field, ListOf, Scalar, ScalarKind, Shape, StructOf, fields_below

MAX_FIELDS = 1_000
"""Fields of an inferred schema. Bodies with more are objects whose keys are data: their rows do not fit."""
_MAX_LEVELS = 16
_LONG = Scalar(ScalarKind.INTEGER, 64)
_HUGE_LIMIT = 10**38


class _Sample:
    """What the values of one field look like."""

    __slots__ = ("counts", "element", "fields", "numbers")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.numbers: set[ScalarKind] = set()
        self.fields: dict[str, _Sample] = {}
        self.element: _Sample | None = None

    def add(self, value: Any, level: int) -> None:
        """Count one value."""
        if value is None or level > _MAX_LEVELS:
            return
        match value:
            case dict():
                self.counts["object"] += 1
                for key, inner in value.items():
                    if 0 < len(key) <= MAX_NAME_CHARACTERS:
                        self.fields.setdefault(key, _Sample()).add(inner, level + 1)
            case list():
                self.counts["array"] += 1
                self.element = self.element or _Sample()
                for inner in value:
                    self.element.add(inner, level + 1)
            case bool():
                self.counts["boolean"] += 1
            case str():
                self.counts["text"] += 1
            case _:
                self.counts["number"] += 1
                self.numbers.add(_number_kind(value))

    def shape(self, path: str) -> Shape | None:
        """The shape of the most frequent type, or None without one."""
        if not self.counts:
            return None
        match max(self.counts, key=lambda name: (self.counts[name], name)):
            case "object":
                fields = [(key, sample.shape(f"{path}.{key}" if path else key)) for key, sample in self.fields.items()]
                return struct_of([(key, shape) for key, shape in fields if shape is not None], path)
            case "array":
                element = self.element.shape(f"{path}[]") if self.element else None
                return None if element is None else ListOf(element)
            case "boolean":
                return Scalar(ScalarKind.BOOLEAN)
            case "text":
                return Scalar(ScalarKind.STRING)
        if ScalarKind.DOUBLE in self.numbers:
            return Scalar(ScalarKind.DOUBLE)
        return (
            _LONG
            if ScalarKind.INTEGER in self.numbers
            else Scalar(ScalarKind.DECIMAL, precision=38, scale=0, unit="json")
        )


def _number_kind(value: int | float) -> ScalarKind:
    if isinstance(value, float) or not -_HUGE_LIMIT < value < _HUGE_LIMIT:
        return ScalarKind.DOUBLE
    low, high = _LONG.bounds
    return ScalarKind.INTEGER if low <= value <= high else ScalarKind.DECIMAL


def struct_of(fields: list[tuple[str, Shape]], path: str) -> StructOf | None:
    """An object with these fields, whose columns may get numbers; None without a field."""
    columns = column_names([key for key, _ in fields], path, "the inferred schema", renames_doubles=True)
    made = (Field(key, column, shape) for (key, shape), column in zip(fields, columns, strict=True))
    return StructOf(tuple(made)) if fields else None


def inferred(bodies: Iterable[bytes | None]) -> StructOf:
    """The fields of bodies. Bodies that are no JSON objects do not count."""
    sample = _Sample()
    for body in bodies:
        try:
            value = msgspec.json.decode(body or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            sample.add(value, 0)
    shape = sample.shape("") if sample.counts else None
    return shape if isinstance(shape, StructOf) else StructOf(())


def widened(old: StructOf, new: StructOf) -> StructOf:
    """The old fields with the new ones behind them, at each level. The old types stay.

    The order of the old fields stays, and so do the names of their columns. Fields beyond MAX_FIELDS are left out.
    """
    room = MAX_FIELDS - sum(1 for _ in fields_below(old))
    return _joined(old, new, "", [max(room, 0)])


def _joined(old: StructOf, new: StructOf, path: str, room: list[int]) -> StructOf:
    fields: dict[str, Shape] = {field.key: field.shape for field in old.fields}
    for field in new.fields:
        below = f"{path}.{field.key}" if path else field.key
        known = fields.get(field.key)
        if known is not None:
            fields[field.key] = _joined_shape(known, field.shape, below, room)
            continue
        size = 1 + sum(1 for _ in fields_below(field.shape))
        if size <= room[0]:
            room[0] -= size
            fields[field.key] = field.shape
    return struct_of(list(fields.items()), path) or StructOf(())


def _joined_shape(old: Shape, new: Shape, path: str, room: list[int]) -> Shape:
    match old, new:
        case StructOf(), StructOf():
            return _joined(old, new, path, room)
        case ListOf(element=element), ListOf(element=other):
            return ListOf(_joined_shape(element, other, f"{path}[]", room))
    return old


def unknown_field(value: Any, shape: Shape, path: str = "") -> MisfitError | None:
    """The first field of a decoded body that has a value and no column, as a reason."""
    match shape, value:
        case StructOf(fields=fields), dict():
            shapes = {field.key: field.shape for field in fields}
            for key, inner in value.items():
                below = f"{path}.{key}" if path else key
                if key not in shapes:
                    if _has_value(inner):
                        return MisfitError(below, "the inferred schema has no column for it")
                elif (misfit := unknown_field(inner, shapes[key], below)) is not None:
                    return misfit
        case ListOf(element=element), list():
            for index, inner in enumerate(value):
                if (misfit := unknown_field(inner, element, f"{path}[{index}]")) is not None:
                    return misfit
    return None


def _has_value(value: Any) -> bool:
    """Whether a value has more than nulls and empty lists and objects."""
    waiting = [value]
    for item in waiting:  # the list grows
        if isinstance(item, (dict, list)):
            waiting += item.values() if isinstance(item, dict) else item
        elif item is not None:
            return True
    return False
