"""Files of schemas, inferred schemas, and how a table's columns follow a changed schema."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gantrymq.errors import ConfigError
from gantrymq.tables.bodies import ddl, formats, inference
from gantrymq.tables.bodies.body_format import GrowingFormat
from gantrymq.tables.bodies.errors import SchemaError
from gantrymq.tables.bodies.evolution import aligned, evolve
from gantrymq.tables.bodies.formats import InferredBodies, MissingExtraError, TypedBodies, body_format
from gantrymq.tables.bodies.json_schema import JsonSchema
from gantrymq.tables.bodies.shapes import arrow_schema
from gantrymq.tables.bodies.shapes import ddl as ddl_of


def columns(text: str) -> pa.Schema:
    return arrow_schema(ddl.parse(text, "x.ddl"))


def typed(*arguments: Any) -> GrowingFormat:
    """The format of these options."""
    made = body_format(*arguments)
    assert isinstance(made, GrowingFormat)
    return made


def rows(made: Any, *bodies: bytes) -> list[Any]:
    """A row of values, or the reason, of each body."""
    result = made.decode(pa.array(bodies, pa.binary()))
    assert result.columns.schema.equals(made.schema)
    result.columns.validate(full=True)
    return [row if why is None else why for row, why in zip(result.columns.to_pylist(), result.reasons, strict=True)]


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


# DDL


def test_ddl_is_read_with_comments_and_quotes_and_in_any_case() -> None:
    text = """a int Not Null comment 'x', `b c` STRUCT<d: array<DECIMAL(10,2)>, `e`: map<string, float>>, -- the end
    date DATE, comment VARCHAR(5),"""
    struct = ddl.parse(text, "x.ddl")
    assert ddl_of(struct) == (
        "`a` INT NOT NULL, `b c` STRUCT<`d`: ARRAY<DECIMAL(10,2)>, `e`: MAP<STRING, FLOAT>>, `date` DATE, "
        "`comment` VARCHAR(5)"
    )
    assert ddl.parse(ddl_of(struct), "again") == struct
    assert arrow_schema(struct).names == ["a", "b_c", "date", "comment"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a INT b", "line 1, column 7: not a schema in Spark's DDL"),
        ("a INT,\n\n, b INT", "line 3, column 1: not a schema in Spark's DDL"),
        ("a", "at the end: not a schema in Spark's DDL"),
        ("a FOO", "line 1, column 3: the type FOO of the field a is not supported"),
        ("a INT,\nb STRUCT<c: TIMESTAMP_NTZ>", "line 2, column 13: the type TIMESTAMP_NTZ of the field b.c is not"),
        ("a DECIMAL(39)", "line 1, column 3: DECIMAL(39,0) of the field a is not within (38,38)"),
        ("a MAP<INT, INT>", "line 1, column 3: MAP of the field a must be"),
        ("a INT, A INT", "the fields 'a' and 'A' differ by case only"),
        ("b STRUCT<a: INT, A: INT>", "the fields 'a' and 'A' of b differ by case only"),
        ("topic INT, body_topic INT", "the fields 'topic' and 'body_topic' land under one column"),
        ("`a b` INT, `a;b` INT", "the fields 'a b' and 'a;b' land under one column"),
        ("a INT, a INT", "the schema has the field 'a' twice"),
        ("a " + "ARRAY<" * 40 + "INT" + ">" * 40, "line 1, column 195: the field a is nested deeper than 32 levels"),
    ],
)
def test_bad_ddl_is_error_with_its_position(text: str, error: str) -> None:
    with pytest.raises(SchemaError) as caught:
        ddl.parse(text, "x.ddl")
    assert str(caught.value).startswith(f"x.ddl: {error}")
    assert isinstance(caught.value, ConfigError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# JSON Schema

_ADDRESS = {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]+$"}}, "required": ["zip"]}
_NODE = {"type": "object", "properties": {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}
_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "name": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "home": {"$ref": "#/$defs/address"},
        "any": {},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "node": {"$ref": "#/$defs/node"},
        "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "color": {"enum": ["red", "blue"]},
    },
    "required": ["id"],
    "$defs": {"address": _ADDRESS, "node": _NODE},
}


def test_json_schema_becomes_columns() -> None:
    shown = ddl_of(JsonSchema(json.dumps(_SCHEMA), "x.json").struct).replace("`", "")
    assert shown == (
        "id BIGINT NOT NULL, name STRING, at TIMESTAMP, day DATE, tags ARRAY<STRING>, "
        "home STRUCT<zip: STRING NOT NULL>, any JSON, "
        "map MAP<STRING, BIGINT>, node STRUCT<x: BIGINT, next: JSON>, maybe DOUBLE, either JSON, color STRING"
    )


def test_body_that_breaks_json_schema_constraint_does_not_fit(tmp_path: Path) -> None:
    made = typed("json", written(tmp_path / "x.json", json.dumps(_SCHEMA)))
    accepted = [
        b'{"id": 1}',
        b'{"id": 2, "name": null, "tags": [], "home": {"zip": "1"}, "any": {"a": [1, 2.50]}, "map": {"k": 1}, '
        b'"node": {"x": 1, "next": {"x": 2}}, "maybe": 1, "either": 7, "color": "red", "more": 1}',
    ]
    refused = {
        b'{"id": 0}': "id: 0 is less than the minimum of 1",
        b'{"id": 1.0}': "id: expected BIGINT, got a number with a fraction or an exponent: 1.0",
        b"{}": "id: missing, and the schema requires it",
        b'{"id": 1, "home": {"zip": "x"}}': 'home.zip: "x" does not match "^[0-9]+$"',
        b'{"id": 1, "home": {}}': "home.zip: missing, and the schema requires it",
        b'{"id": 1, "tags": ["a", null]}': "tags[1]: expected STRING, got null",
        b'{"id": 1, "either": true}': 'either: true is not of types "integer", "string"',
        b'{"id": 1, "color": "green"}': 'color: "green" is not one of "red" or "blue"',
        b'{"id": 1, "node": {"next": {"x": "1"}}}': 'node.next.x: "1" is not of type "integer"',
        b'{"id": 1, "at": "2026-11-29T08:30:00"}': "at: '2026-11-29T08:30:00' has no zone: end it with Z or an "
        "offset such as +08:00",
    }
    result = rows(made, *accepted, *refused)
    assert {name: value for name, value in result[1].items() if value is not None} == {
        **{"id": 2, "body_tags": [], "home": {"zip": "1"}, "any": '{"a": [1, 2.50]}', "map": [("k", 1)]},
        **{"node": {"x": 1, "next": '{"x": 2}'}, "maybe": 1.0, "either": "7", "color": "red"},
    }
    assert result[0]["id"] == 1
    assert result[2:] == list(refused.values())


def test_pattern_that_never_ends_is_reason(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|a)*(?=b)$"}}}
    made = typed("json", written(tmp_path / "x.json", json.dumps(schema)))
    [reason] = rows(made, b'{"a": "' + b"a" * 60 + b'c"}')
    assert reason.startswith("a: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{\n "type": }', "line 2, column 10: Expecting value"),
        ("[]", "a JSON Schema is an object"),
        ('{"type": "array"}', 'the schema must be that of an object with "properties"'),
        ('{"type": "objekt"}', "no valid JSON Schema at type: "),
        (
            '{"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}',
            "no valid JSON Schema: Resource 'http://127.0.0.1:9/x'",
        ),
        ('{"properties": {"a": {"$ref": "#/$defs/x"}}}', "no valid JSON Schema: "),
        ('{"properties": {"a": {"pattern": "("}}}', "no valid JSON Schema at properties/a/pattern: "),
        ('{"properties": {"a": {}, "A": {}}}', "the fields 'a' and 'A' differ by case only"),
    ],
)
def test_bad_json_schema_is_error(text: str, error: str) -> None:
    with pytest.raises(SchemaError) as caught:
        JsonSchema(text, "x.json")
    assert str(caught.value).startswith(f"x.json: {error}")
    assert "\n" not in str(caught.value)


# Files


@pytest.mark.parametrize(
    ("kind", "name", "content", "error"),
    [
        (
            "json",
            "x.avsc",
            '{"type": "record", "name": "R", "fields": []}',
            "--body json takes Spark's DDL or a JSON Schema",
        ),
        (
            "json",
            "x.json",
            '{"type": "record", "name": "R", "fields": []}',
            "--body json takes Spark's DDL or a JSON Schema",
        ),
        (
            "json",
            "x.desc",
            b"\n\x01\0",
            "--body json takes Spark's DDL or a JSON Schema, and this is a FileDescriptorSet",
        ),
        ("avro", "x.ddl", "a INT", "--body avro takes an Avro schema, and this is Spark's DDL"),
        ("avro", "x.avsc", "{", "line 1, column 2: Expecting property name"),
        ("protobuf", "x.proto", 'syntax = "proto3";', "--body protobuf takes a FileDescriptorSet"),
        ("json", "x.ddl", "", "the file is empty"),
        ("json", "x.ddl", b"a \xff", "not UTF-8 at byte 2"),
        ("protobuf", "x.desc", b"\xff\xff", "no FileDescriptorSet: make it with protoc --include_imports -o FILE"),
    ],
)
def test_file_of_other_kind_is_one_clear_error(
    tmp_path: Path, kind: str, name: str, content: str | bytes, error: str
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(SchemaError) as caught:
        typed(kind, path)
    assert str(caught.value).startswith(f"{path}: {error}")


def test_missing_file_is_error(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read: No such file or directory"):
        typed("json", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("xml",), "--body='xml' is not allowed: raw, text, json, avro, protobuf"),
        (("json",), "--body='json' is not allowed: with --schema: a file or a registry, or infer"),
        (("avro", "infer"), "--schema='infer' is not allowed: only with --body json"),
        (("raw", "x.ddl"), "--schema='x.ddl' is not allowed: without --body raw, whose bodies have no fields"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(arguments: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        typed(*arguments)
    assert str(caught.value) == error


def test_missing_library_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs the module fastavro: pip install 'gantrymq\[typed\]'"):
        typed("avro", written(tmp_path / "x.avsc", "{}"))


# Inferred schemas


def test_inferred_fields_become_columns_of_most_frequent_type() -> None:
    struct = inference.inferred(
        [
            b'{"a": 1, "o": {"x": "t", "n": null}, "l": [{"y": 1}, {"z": true}], "e": [], "ID": 1, "id": 2}',
            b'{"a": "x", "d": 1, "big": 18446744073709551615, "topic": "t"}',
            b'{"a": 2, "d": 1.5, "big": 1, "a b": "2026-11-29T08:30:00Z"}',
            b"no JSON",
            b"[1]",
        ]
    )
    assert ddl_of(struct) == (
        "`a` BIGINT, `o` STRUCT<`x`: STRING>, `l` ARRAY<STRUCT<`y`: BIGINT, `z`: BOOLEAN>>, `ID` BIGINT, `id` BIGINT, "
        "`d` DOUBLE, `big` BIGINT, `topic` STRING, `a b` STRING"
    )
    assert arrow_schema(struct).names == ["a", "o", "l", "ID", "id_2", "d", "big", "body_topic", "a_b"]
    assert ddl.parse(ddl_of(struct), "again", renames_doubles=True) == struct


def test_numbers_of_64_unsigned_bits_are_inferred_as_decimals() -> None:
    made = typed("json", "infer").widened(pa.array([b'{"u": 18446744073709551615}']))
    assert made.schema.field("u").type == pa.decimal128(38, 0)
    assert rows(made, b'{"u": 18446744073709551615}')[0]["u"] == 2**64 - 1


def test_new_field_widens_inferred_schema_and_other_type_is_dead() -> None:
    first = typed("json", "infer")
    assert (first.schema.names, first.grows) == ([], True)
    assert rows(first, b"{}") == [{}]
    assert rows(first, b'{"a": 1}') == ["a: the inferred schema has no column for it"]
    made = first.widened(pa.array([b'{"a": 1, "o": {"x": 1}, "l": [{"y": 1}]}']))
    same = made.widened(pa.array([b'{"a": 5, "o": null}', b'{"n": null, "e": [], "m": {}}', b"no JSON"]))
    assert same is made
    again = made.widened(pa.array([b'{"a": "x", "b": "y"}', b'{"o": {"x": 1, "z": 2.5}, "l": [{"q": true}]}']))
    assert evolve(made.schema, again.schema) == again.schema
    assert again.schema.names == ["a", "o", "l", "b"]
    assert rows(again, b'{"a": "x", "b": "y"}', b'{"b": "y", "o": {"z": 1}, "l": [{"q": true}]}', b'{"c": 1}') == [
        "a: expected BIGINT, got text",
        {"a": None, "o": {"x": None, "z": 1.0}, "l": [{"y": None, "q": True}], "b": "y"},
        "c: the inferred schema has no column for it",
    ]
    assert again.version != made.version


def test_inferred_schemas_of_two_executors_are_joined() -> None:
    first = typed("json", "infer").widened(pa.array([b'{"a": 1}']))
    left = first.widened(pa.array([b'{"b": 1, "c": "x"}']))
    right = pickle.loads(pickle.dumps(first)).widened(pa.array([b'{"c": 1, "d": 1}']))
    joined = left.joined(right)
    assert joined.schema.names == ["a", "b", "c", "d"]
    assert joined.schema.field("c").type == pa.string()


def test_objects_whose_keys_are_data_do_not_become_columns_without_end() -> None:
    many = json.dumps({f"k{n}": n for n in range(inference.MAX_FIELDS + 1)}).encode()
    made = typed("json", "infer").widened(pa.array([b'{"a": 1}'])).widened(pa.array([many]))
    assert len(made.schema) == inference.MAX_FIELDS
    assert rows(made, many)[0].endswith("the inferred schema has no column for it")


# Evolution


def test_file_may_add_fields_anywhere_and_widen_numbers() -> None:
    old = columns("a INT, o STRUCT<x: FLOAT>, l ARRAY<STRUCT<p: INT>>, m MAP<STRING, INT>")
    new = columns(
        "z STRING, m MAP<STRING, BIGINT>, l ARRAY<STRUCT<q: INT, p: BIGINT>>, o STRUCT<w: INT, x: DOUBLE>, a BIGINT"
    )
    assert evolve(old, new) == columns(
        "a BIGINT, o STRUCT<x: DOUBLE, w: INT>, l ARRAY<STRUCT<p: BIGINT, q: INT>>, m MAP<STRING, BIGINT>, z STRING"
    )


@pytest.mark.parametrize(
    ("new", "error"),
    [
        ("a STRING, o STRUCT<x: FLOAT>", "the field a is INT and cannot become STRING"),
        ("a INT, o STRUCT<x: INT>", "the field o.x is FLOAT and cannot become INT"),
        ("a SMALLINT, o FLOAT", "the field o is STRUCT<x: FLOAT> and cannot become FLOAT"),
        ("a INT", "the field o is missing: a table keeps its columns, so add it"),
        ("a INT, o STRUCT<y: FLOAT>", "the field o.x is missing: a table keeps its columns, so add it"),
    ],
)
def test_other_changes_of_schema_are_refused(new: str, error: str) -> None:
    with pytest.raises(SchemaError) as caught:
        evolve(columns("a INT, o STRUCT<x: FLOAT>"), columns(new), "new.ddl")
    assert str(caught.value) == f"new.ddl: {error}"


def test_columns_of_changed_schema_keep_order_of_table() -> None:
    new = ddl.parse(
        "z STRING, m MAP<STRING, STRUCT<r: INT, q: INT>>, l ARRAY<STRUCT<q: INT, p: BIGINT>>, a BIGINT", "x"
    )
    target = evolve(columns("a INT, l ARRAY<STRUCT<p: INT>>, m MAP<STRING, STRUCT<q: INT>>"), arrow_schema(new))
    made = TypedBodies("json", "ddl", ddl_of(new), columns=target)
    body = b'{"a": 1, "z": "x", "m": {"k": {"r": 1, "q": 2}}, "l": [null, {"q": 3, "p": 4}]}'
    row = {"a": 1, "l": [None, {"p": 4, "q": 3}], "m": [("k", {"q": 2, "r": 1})], "z": "x"}
    assert rows(made, body, b"{}", body) == [row, dict.fromkeys(row), row]
    batch = TypedBodies("json", "ddl", ddl_of(new)).decode(pa.array([b"{}", body, body])).columns
    for begin in range(3):  # slices, whose children are not sliced
        part = aligned(batch.slice(begin, 1), target)
        part.validate(full=True)
        assert part.to_pylist() == [row if begin else dict.fromkeys(row)]


# What a table remembers


def test_format_comes_back_from_properties_of_table(tmp_path: Path) -> None:
    path = written(tmp_path / "a.ddl", "a INT, b STRING")
    first = typed("json", path)
    again = typed("json", None, None, first.remembered())
    assert (again.schema, again.version) == (first.schema, first.version)
    path = written(tmp_path / "b.ddl", "c DOUBLE, b STRING, a BIGINT")
    second = typed("json", path, None, first.remembered())
    assert second.schema.names == ["a", "b", "c"]
    assert second.version != first.version
    restored = pickle.loads(pickle.dumps(typed("json", None, None, second.remembered())))
    assert (restored.schema, restored.version) == (second.schema, second.version)
    assert rows(restored, b'{"a": 4294967296}') == [{"a": 2**32, "b": None, "c": None}]
    with pytest.raises(SchemaError, match="the field a is BIGINT and cannot become INT"):
        typed("json", written(tmp_path / "c.ddl", "a INT, b STRING, c DOUBLE"), None, second.remembered())


def test_inferred_schema_is_remembered_as_ddl() -> None:
    made = typed("json", "infer").widened(pa.array([b'{"a b": 1, "A B": 2, "o": {"`x": "y"}}']))
    assert made.remembered() == {
        "body": "json",
        "schema": "infer",
        "text": "`a b` BIGINT, `A B` BIGINT, `o` STRUCT<```x`: STRING>",
    }
    again = typed("json", "infer", None, made.remembered())
    assert isinstance(again, InferredBodies)
    assert (again.schema, again.version, again.grows) == (made.schema, made.version, True)
    assert again.schema.names == ["a_b", "A_B_2", "o"]


def test_file_after_inferred_schema_evolves_it(tmp_path: Path) -> None:
    made = typed("json", "infer").widened(pa.array([b'{"a": 1, "b": "x"}']))
    filed = typed("json", written(tmp_path / "x.ddl", "n DATE, b STRING, a BIGINT"), None, made.remembered())
    assert (filed.schema.names, filed.grows) == (["a", "b", "n"], False)


def test_damaged_properties_of_table_are_one_error() -> None:
    for broken in ({"body": "json"}, {"body": "json", "schema": "ddl", "text": "a INT", "columns": "AAAA"}):
        with pytest.raises(SchemaError, match="the table's schema: "):
            typed("json", None, None, broken)
