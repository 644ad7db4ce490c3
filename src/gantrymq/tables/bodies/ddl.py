"""Spark's DDL as a schema of bodies: ``a INT NOT NULL, b STRUCT<c: STRING, d: ARRAY<DECIMAL(10,2)>>``.

Names of types and key words ignore case, names of fields do not. ``CREATE TABLE`` and defaults are not understood.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from gantrymq.tables.bodies.errors import SchemaError
from gantrymq.tables.bodies.names import column_names
from gantrymq.tables.bodies.shapes import MAX_DEPTH, Field, ListOf, MapOf, Scalar, ScalarKind, Shape, StructOf

_GRAMMAR = r"""
start: field ("," field)* ","?
field: name ":"? type option*
name: WORD | QUOTED
option: "NOT"i "NULL"i -> required
    | "COMMENT"i TEXT -> comment
type: WORD ["(" NUMBER ("," NUMBER)* ")"] -> scalar
    | WORD "<" _part ("," _part)* ">" -> nested
_part: field | type
WORD: /[^\W\d]\w*/
QUOTED: /`(?:[^`]|``)+`/
TEXT: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/
NUMBER: /\d{1,9}/
%ignore /\s+/
%ignore /--[^\n]*/
"""

_SCALARS = {
    "BOOLEAN": Scalar(ScalarKind.BOOLEAN),
    **dict.fromkeys(("TINYINT", "BYTE"), Scalar(ScalarKind.INTEGER, 8)),
    **dict.fromkeys(("SMALLINT", "SHORT"), Scalar(ScalarKind.INTEGER, 16)),
    **dict.fromkeys(("INT", "INTEGER"), Scalar(ScalarKind.INTEGER, 32)),
    **dict.fromkeys(("BIGINT", "LONG"), Scalar(ScalarKind.INTEGER, 64)),
    **dict.fromkeys(("FLOAT", "REAL"), Scalar(ScalarKind.FLOAT)),
    "DOUBLE": Scalar(ScalarKind.DOUBLE),
    "STRING": Scalar(ScalarKind.STRING),
    "BINARY": Scalar(ScalarKind.BINARY, unit="base64"),
    "DATE": Scalar(ScalarKind.DATE),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), Scalar(ScalarKind.TIMESTAMP)),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_TEXTS = ("VARCHAR", "CHAR", "CHARACTER")


def parse(text: str, source: str, *, renames_doubles: bool = False) -> StructOf:
    """The fields of a DDL. ``source`` names the file in errors.

    Raises: SchemaError with line and column.
    """
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        where = f"line {error.line}, column {error.column}: " if getattr(error, "line", -1) > 0 else ""
        token = getattr(error, "token", None)
        if isinstance(token, Token) and token.type == "$END":
            where = "at the end: "
        raise SchemaError(source, f"{where}not a schema in Spark's DDL (as a INT, b STRUCT<c: STRING>)") from None
    return _Reader(source, renames_doubles).struct(tree.children, "", 0)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


class _Reader:
    """Makes shapes of the tree."""

    def __init__(self, source: str, renames_doubles: bool) -> None:
        self._source = source
        self._renames_doubles = renames_doubles

    def struct(self, trees: list[Any], path: str, depth: int) -> StructOf:
        """The fields of one object."""
        keys = [_name(tree.children[0].children[0]) for tree in trees]
        columns = column_names(keys, path, self._source, renames_doubles=self._renames_doubles)
        fields = []
        for tree, key, column in zip(trees, keys, columns, strict=True):
            shape = self._shape(tree.children[1], f"{path}.{key}" if path else key, depth + 1)
            is_required = any(option.data == "required" for option in tree.children[2:])
            fields.append(Field(key, column, shape, not is_required, is_required))
        return StructOf(tuple(fields))

    def _shape(self, tree: Tree[Any], path: str, depth: int) -> Shape:
        children: list[Any] = [part for part in tree.children if part is not None]
        word, *parts = children
        if depth > MAX_DEPTH:
            raise self._error(word, f"the field {path} is nested deeper than {MAX_DEPTH} levels")
        name = word.upper()
        if tree.data == "scalar":
            return self._scalar(word, name, [int(part) for part in parts], path)
        if name == "STRUCT" and all(part.data == "field" for part in parts):
            return self.struct(parts, path, depth)
        if any(part.data == "field" for part in parts):
            raise self._error(word, f"{word} of the field {path} takes types, not fields")
        inner = [self._shape(part, path, depth + 1) for part in parts]
        match name, inner:
            case "ARRAY", [element]:
                return ListOf(element)
            case "MAP", [Scalar(kind=ScalarKind.STRING), value]:
                return MapOf(value)
        raise self._error(word, f"{word} of the field {path} must be ARRAY<type>, MAP<STRING, type> or STRUCT<a: type>")

    def _scalar(self, word: Token, name: str, numbers: list[int], path: str) -> Scalar:
        if name in _SCALARS and not numbers:
            return _SCALARS[name]
        if name in _TEXTS and len(numbers) == 1 and numbers[0] > 0:
            return Scalar(ScalarKind.STRING, max_length=numbers[0])
        if name in _DECIMALS and len(numbers) <= 2:
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])
            if not 1 <= precision <= 38 or scale > precision:
                raise self._error(word, f"{name}({precision},{scale}) of the field {path} is not within (38,38)")
            return Scalar(ScalarKind.DECIMAL, precision=precision, scale=scale, unit="json")
        advice = ": use TIMESTAMP, whose values have a zone, or STRING" if name == "TIMESTAMP_NTZ" else ""
        raise self._error(word, f"the type {name} of the field {path} is not supported{advice}")

    def _error(self, token: Token, text: str) -> SchemaError:
        return SchemaError(self._source, f"line {token.line}, column {token.column}: {text}")


def _name(token: Token) -> str:
    return token[1:-1].replace("``", "`") if token.type == "QUOTED" else str(token)
