"""A JSON Schema as the columns of a body, and its constraints.

Types become columns. What has no type of a column (several types, an object without properties, a recursion) becomes a
text with its JSON. Constraints beyond types are checked by jsonschema-rs, only if the schema has any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from gantrymq.tables.bodies.errors import MisfitError, SchemaError
from gantrymq.tables.bodies.names import column_names
from gantrymq.tables.bodies.shapes import MAX_DEPTH, Field, ListOf, MapOf, Scalar, ScalarKind, Shape, StructOf

Schema: TypeAlias = Mapping[str, Any]

# What the shapes hold themselves, and what holds nothing. Every other word needs the validator.
_HELD = {"type", "properties", "items", "required", "$ref", "$defs", "definitions", "$schema", "$id", "$comment"}
_HELD |= {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$anchor"}
_FORMATS = {"date-time": Scalar(ScalarKind.TIMESTAMP), "date": Scalar(ScalarKind.DATE)}
_SCALARS = {
    "boolean": Scalar(ScalarKind.BOOLEAN),
    "integer": Scalar(ScalarKind.INTEGER, 64),
    "number": Scalar(ScalarKind.DOUBLE),
    "string": Scalar(ScalarKind.STRING),
}
_JSON = Scalar(ScalarKind.JSON)
_PYTHON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BACKTRACK_LIMIT = 100_000


class JsonSchema:
    """A parsed schema.

    ``struct`` has the columns. ``has_constraints`` tells whether :meth:`misfit` can refuse a body that fits them.

    Raises: SchemaError.
    """

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        try:
            self._root = json.loads(text)
        except json.JSONDecodeError as error:
            raise SchemaError(source, f"line {error.lineno}, column {error.colno}: {error.msg}") from None
        except RecursionError:
            raise SchemaError(source, "the JSON is nested too deep") from None
        if not isinstance(self._root, dict):
            raise SchemaError(source, "a JSON Schema is an object")
        self.has_constraints = False
        self._validator = self._make_validator()
        shape = self._shape(self._root, "", (), 0)
        if not isinstance(shape, StructOf):
            raise SchemaError(source, 'the schema must be that of an object with "properties"')
        self.struct = shape

    def misfit(self, value: Any) -> MisfitError | None:
        """Why a decoded body breaks a constraint, or None."""
        try:
            if self._validator.is_valid(value):
                return None
            error = next(iter(self._validator.iter_errors(value)))
        except ValueError as failure:
            return MisfitError("", f"the constraints cannot be checked: {failure}")
        path = ""
        for step in error.instance_path:
            path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
        return MisfitError(path, error.message)

    def _make_validator(self) -> Any:
        import jsonschema_rs

        try:
            return jsonschema_rs.validator_for(
                self._root,
                validate_formats=True,
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            where = "/".join(map(str, getattr(error, "instance_path", ()) or ()))
            why = " ".join(str(getattr(error, "message", error)).split())
            raise SchemaError(self._source, f"no valid JSON Schema{f' at {where}' if where else ''}: {why}") from None
        except ValueError as error:
            raise SchemaError(self._source, f"no valid JSON Schema: {' '.join(str(error).split())}") from None

    def _shape(self, schema: Any, path: str, references: tuple[str, ...], depth: int) -> Shape:
        if depth > MAX_DEPTH:
            raise SchemaError(self._source, f"the field {path} is nested deeper than {MAX_DEPTH} levels")
        schema, references = self._resolved(schema, references)
        if not schema or schema is True:
            return _JSON
        if schema is False or references[-1:] == ("",):  # a recursion
            self.has_constraints = True
            return _JSON
        self.has_constraints |= not schema.keys() <= _HELD and not self._is_held(schema)
        match _type_of(schema):
            case "object":
                return self._object(schema, path, references, depth)
            case "array" if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
                items = schema["items"]
                element = self._shape(items, f"{path}[]", references, depth + 1)
                return ListOf(element, self._accepts_null(items, references) or element == _JSON)
            case "string" if schema.get("format") in _FORMATS:
                return _FORMATS[schema["format"]]
            case str(name) if name in _SCALARS:
                return _SCALARS[name]
        choice = self._choice(schema, path, references, depth)
        self.has_constraints = True
        return choice or _JSON

    @staticmethod
    def _is_held(schema: Schema) -> bool:
        """Whether the only other words are a format that is a type of a column, or open further properties."""
        others = schema.keys() - _HELD
        is_format = schema.get("format") in _FORMATS or "format" not in schema
        is_open = schema.get("additionalProperties", True) is True or "properties" not in schema
        return others <= {"format", "additionalProperties"} and is_format and is_open

    def _object(self, schema: Schema, path: str, references: tuple[str, ...], depth: int) -> Shape:
        properties: dict[str, Any] = dict(schema.get("properties") or {})
        required = set(schema.get("required") or ())
        for part in schema.get("allOf") or ():
            resolved, _ = self._resolved(part, references)
            if isinstance(resolved, dict):
                properties = {**(resolved.get("properties") or {}), **properties}
        if not properties:
            values = schema.get("additionalProperties")
            self.has_constraints |= bool(required)
            if isinstance(values, dict) and not schema.get("patternProperties"):
                value = self._shape(values, f"{path}[]", references, depth + 1)
                return MapOf(value, self._accepts_null(values, references) or value == _JSON)
            return _JSON
        self.has_constraints |= not required <= properties.keys()
        columns = column_names(list(properties), path, self._source)
        fields = []
        for (key, inner), column in zip(properties.items(), columns, strict=True):
            below = f"{path}.{key}" if path else key
            shape = self._shape(inner, below, references, depth + 1)
            accepts_null = shape == _JSON or self._accepts_null(inner, references)
            fields.append(Field(key, column, shape, accepts_null, key in required))
        return StructOf(tuple(fields))

    def _choice(self, schema: Schema, path: str, references: tuple[str, ...], depth: int) -> Shape | None:
        """The shape that all choices but null have, or None."""
        choices = [part for word in ("anyOf", "oneOf") for part in schema.get(word) or ()]
        others = [part for part in choices if self._resolved(part, references)[0] != {"type": "null"}]
        shapes = [self._shape(part, path, references, depth + 1) for part in others]
        if not shapes and len(schema.get("allOf") or ()) == 1:
            shapes = [self._shape(schema["allOf"][0], path, references, depth + 1)]
        if not shapes or any(shape != shapes[0] for shape in shapes):
            return None
        return shapes[0]

    def _accepts_null(self, schema: Any, references: tuple[str, ...]) -> bool:
        """Whether a value may be null, as far as its type tells; the validator decides about the rest."""
        resolved, _ = self._resolved(schema, references)
        if not isinstance(resolved, dict):
            return True
        types = resolved.get("type")
        return types is None or types == "null" or (isinstance(types, list) and "null" in types)

    def _resolved(self, schema: Any, references: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """A schema with its local references replaced. A recursion ends with the reference ""."""
        while isinstance(schema, dict) and "$ref" in schema:
            name = str(schema["$ref"])
            if name in references:
                return schema, (*references, "")
            references = (*references, name)
            rest = {word: value for word, value in schema.items() if word != "$ref"}
            target = self._target(name)
            schema = {**target, **rest} if isinstance(target, dict) else target
        return schema, references

    def _target(self, name: str) -> Any:
        target: Any = self._root
        if not name.startswith("#"):
            raise SchemaError(self._source, f"the reference {name!r} leads to another file: only #/… is supported")
        for step in name[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(step)] if isinstance(target, list) else target[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise SchemaError(self._source, f"the reference {name!r} leads nowhere") from None
        return target


def _type_of(schema: Schema) -> str | None:
    """The one type of a schema besides null."""
    types = schema.get("type")
    if isinstance(types, list):
        names = [name for name in types if name != "null"]
        if set(names) == {"integer", "number"}:
            return "number"
        return str(names[0]) if len(names) == 1 else None
    if types is not None:
        return str(types)
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    names = list({_PYTHON_TYPES.get(type(value)) for value in values if value is not None})
    if len(names) == 1 and names[0] is not None:
        return str(names[0])
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else None


@lru_cache(32)
def json_schema(text: str, source: str) -> JsonSchema:
    """The schema of a text; each process makes it once."""
    return JsonSchema(text, source)
