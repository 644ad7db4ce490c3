"""JSON bodies become typed columns, or a reason that names the field."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantrymq.tables.bodies import ddl
from gantrymq.tables.bodies.json_bodies import RUN_ROWS, decode_json

EACH = ddl.parse(
    "i INT, l BIGINT, s SMALLINT, d DOUBLE, f FLOAT, b BOOLEAN, t STRING, v VARCHAR(3), ts TIMESTAMP, dt DATE, "
    "n DECIMAL(5,2), r BINARY, o STRUCT<x: INT, y: STRING>, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, BIGINT>",
    "each",
)


def decoded(schema: str, *bodies: bytes) -> list[Any]:
    """A row of values, or the reason, of each body."""
    result = decode_json(ddl.parse(schema, "schema"), pa.array(bodies, pa.binary()))
    result.columns.validate(full=True)
    rows = result.columns.to_pylist() if result.columns.num_columns else [{} for _ in bodies]
    assert all(set(row.values()) <= {None} for row, why in zip(rows, result.reasons, strict=True) if why)
    return [row if why is None else why for row, why in zip(rows, result.reasons, strict=True)]


def test_body_of_each_type_becomes_row() -> None:
    body = (
        b' {"i": -2147483648, "l": 9223372036854775807, "s": 7, "d": 3, "f": 0.5, "b": true, '
        b'"t": "\xc3\xa4:\\u00e4", '
        b'"v": "\xf0\x9f\x98\x80bc", "ts": "2026-11-29T09:30:00.5+01:00", "dt": "2026-11-29", "n": -123.4, '
        b'"r": "YQ==", "o": {"x": 1}, "a": [{"x": 1}, null], "m": {"k": null, "j": 2}} '
    )
    result = decode_json(EACH, pa.array([body]))
    assert result.reasons == [None]
    assert result.columns.to_pylist() == [
        {
            **{"i": -(2**31), "l": 2**63 - 1, "s": 7, "d": 3.0, "f": 0.5, "b": True, "t": "ä:ä", "v": "😀bc"},
            **{"ts": datetime(2026, 11, 29, 8, 30, 0, 500_000, UTC), "dt": date(2026, 11, 29), "n": Decimal("-123.40")},
            **{"r": b"a", "o": {"x": 1, "y": None}, "a": [{"x": 1}, None], "m": [("k", None), ("j", 2)]},
        }
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body: empty"),
        (b" ", "body: not one JSON value: "),
        (b"null", "body: expected one object, got null"),
        (b"[{}]", "body: expected one object, got an array"),
        (b"{}{}", "body: not one JSON value: Extra data at character 2"),
        (b"\xef\xbb\xbf{}", "body: not one JSON value: "),
        (b'{"z": "\xff"}', "body: not UTF-8 at byte 7"),
        (b'{"z": "\\ud800"}', "z: the text has half of a surrogate pair"),
        (b'{"z": "\\uDC00x"}', "z: the text has half of a surrogate pair"),
        (b'{"z": "a\nb"}', "body: not one JSON value: Invalid control character"),
        (b'{"z": {"y": [NaN]}}', "z.y[0]: NaN is no JSON"),
        (b'{"d": -Infinity}', "d: -Infinity is no JSON"),
        (b'{"d": 1e999}', "d: 1E+999 is out of range of DOUBLE"),
        (b'{"d": "1"}', "d: expected DOUBLE, got text"),
        (b'{"d": true}', "d: expected DOUBLE, got boolean"),
        (b'{"f": 1e39}', "f: 1E+39 is out of range of FLOAT"),
        (b'{"i": 2147483648}', "i: 2147483648 is out of range of INT"),
        (b'{"s": 32768}', "s: 32768 is out of range of SMALLINT"),
        (b'{"l": 9223372036854775808}', "l: 9223372036854775808 is out of range of BIGINT"),
        (b'{"l": 1' + b"0" * 9000 + b"}", "l: 100000000000000000000000000000000000000… is out of range of BIGINT"),
        (b'{"i": 1.5}', "i: expected INT, got a number with a fraction or an exponent: 1.5"),
        (b'{"i": 1.0}', "i: expected INT, got a number with a fraction or an exponent: 1.0"),
        (b'{"i": "1"}', "i: expected INT, got text"),
        (b'{"b": 1}', "b: expected BOOLEAN, got the number 1"),
        (b'{"t": 1}', "t: expected STRING, got the number 1"),
        (b'{"v": "abcd"}', "v: the text has 4 characters, VARCHAR(3) takes 3"),
        (b'{"ts": "2026-11-29T09:30:00"}', "ts: '2026-11-29T09:30:00' has no zone: end it with Z or an offset"),
        (b'{"ts": 1764408600}', "ts: expected TIMESTAMP, got the number 1764408600"),
        (b'{"ts": "2026-02-30T00:00:00Z"}', "ts: '2026-02-30T00:00:00Z' is no time of the calendar"),
        (b'{"ts": "0000-01-01T00:00:00Z"}', "ts: '0000-01-01T00:00:00Z' is no time of the calendar"),
        (b'{"ts": "0001-01-01T00:00:00+01:00"}', "ts: out of range: a timestamp is within the years 1 to 9999"),
        (b'{"dt": "2026-02-29"}', "dt: '2026-02-29' is no date of the calendar"),
        (b'{"dt": "0000-01-01"}', "dt: '0000-01-01' is no date of the calendar"),
        (b'{"n": "1.5"}', "n: expected DECIMAL(5,2), got text"),
        (b'{"n": 1.005}', "n: the number has more digits than DECIMAL(5,2) after the point"),
        (b'{"n": 1000}', "n: out of range: the number has more digits than DECIMAL(5,2) before the point"),
        (b'{"r": "YQ="}', "r: the text is not base64"),
        (b'{"o": {"x": "1"}}', "o.x: expected INT, got text"),
        (b'{"o": []}', "o: expected STRUCT<"),
        (b'{"a": [{"x": 1}, {"x": 1.5}]}', "a[1].x: expected INT, got a number with a fraction or an exponent: 1.5"),
        (b'{"m": {"k": false}}', "m.k: expected BIGINT, got boolean"),
        (b'{"i": 1, "i": 1}', "i: the key is there twice"),
        (b'{"m": {"k": 1, "k": 2}}', "m.k: the key is there twice"),
        (b'{"z": [{"y": 1, "\\u0079": 2}]}', "z[0].y: the key is there twice"),
        (b'{"t": "a:b", "z": "::", "z": ""}', "z: the key is there twice"),
        (b'{"t": "\\u003a", "t": ":"}', "t: the key is there twice"),
        (b'{"z": ' + b"[" * 100_000, "body: nested deeper than 100 levels"),
        (b'{"z": ' + b"[" * 100 + b"]" * 100 + b"}", "z" + "[0]" * 99 + ": nested deeper than 100 levels"),
        (b'{"i": 1,}', "body: not one JSON value: "),
        (b"{'i': 1}", "body: not one JSON value: "),
    ],
)
def test_body_that_does_not_fit_has_reason_with_field_name(body: bytes, reason: str) -> None:
    result = decode_json(EACH, pa.array([b'{"i": 1}', body, b'{"i": 2}']))
    assert result.reasons[0] is result.reasons[2] is None
    assert str(result.reasons[1]).startswith(reason)
    assert result.columns.column("i").to_pylist() == [1, None, 2]
    assert all(value is None for value in result.columns.to_pylist()[1].values())


def test_reason_of_long_value_stays_short() -> None:
    [reason] = decoded("i INT", b'{"' + b"k" * 5000 + b'": {"x": 1, "x": 2}}')
    assert len(reason) <= 400


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00:00z", 0),
        ("1970-01-01T01:00+01", 0),
        ("1969-12-31T23:00:00-0100", 0),
        ("1970-01-01T00:00:00,25Z", 250_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_timestamp_with_zone_is_moment(text: str, us: int) -> None:
    result = decode_json(ddl.parse("t TIMESTAMP", "x"), pa.array([json.dumps({"t": text}).encode()]))
    assert result.reasons == [None]
    assert result.columns.column(0).cast(pa.int64()).to_pylist() == [us]


def test_missing_field_and_null_are_null_unless_schema_forbids() -> None:
    assert decoded("a INT NOT NULL, n DECIMAL(3,1) NOT NULL, b STRUCT<c: INT NOT NULL>", b'{"a": 1, "n": 2}') == [
        {"a": 1, "n": Decimal("2.0"), "b": None}
    ]
    assert decoded("a INT NOT NULL", b"{}", b'{"a": null}') == [
        "a: missing, and the schema requires it",
        "a: expected INT, got null",
    ]
    assert decoded("n DECIMAL(3,1) NOT NULL", b'{"n": null}') == ["n: expected DECIMAL(3,1), got null"]
    assert decoded("b STRUCT<c: INT NOT NULL>", b'{"b": {}}') == ["b.c: missing, and the schema requires it"]


def test_number_beyond_2_to_53_becomes_nearest_double() -> None:
    assert decoded("d DOUBLE", b'{"d": 9007199254740993}') == [{"d": 9007199254740992.0}]


@pytest.mark.parametrize("more", ["", ", o STRUCT<x: INT>"])  # the ways of flat and of nested objects
def test_zero_with_any_exponent_is_decimal(more: str) -> None:
    bodies = [b'{"n": 0e999999999}', b'{"n": -0.0e-999999}', b'{"n": 0E9}']
    assert [row["n"] for row in decoded(f"n DECIMAL(5,2){more}", *bodies)] == [0, 0, 0]


def test_unknown_field_is_ignored() -> None:
    assert decoded("a INT", b'{"a": 1, "z": {"y": [1, {"x": null}]}, "q": "a:b", "A": 2, "e": 1e999}') == [{"a": 1}]


def test_field_named_like_message_column_becomes_column_of_other_name() -> None:
    assert decoded("topic STRING, Body INT, o STRUCT<topic: INT>", b'{"topic": "t", "Body": 1, "o": {"topic": 2}}') == [
        {"body_topic": "t", "body_Body": 1, "o": {"topic": 2}}
    ]


def test_key_that_msgspec_cannot_name_is_decoded_without_msgspec() -> None:
    assert decoded('`a"b` INT, `c d` INT', b'{"a\\"b": 1, "c d": 2}', b'{"a\\"b": "x"}') == [
        {'a"b': 1, "c_d": 2},
        'a"b: expected INT, got text',
    ]


def test_runs_are_joined_in_order() -> None:
    bodies = [b'{"a": %d, "t": ["x"]}' % n if n % 7 else b'{"a": "x"}' for n in range(2 * RUN_ROWS + 5)]
    result = decode_json(ddl.parse("a INT, t ARRAY<STRING>", "x"), pa.array([b"?", *bodies]).slice(1))
    result.columns.validate(full=True)
    assert result.columns.column("a").to_pylist() == [n if n % 7 else None for n in range(len(bodies))]
    assert [why is None for why in result.reasons] == [bool(n % 7) for n in range(len(bodies))]


def test_null_body_does_not_fit() -> None:
    assert decode_json(EACH, pa.array([None, b"{}"], pa.binary())).reasons == ["body: empty", None]


def test_body_of_4_mb_is_decoded() -> None:
    text = "x:" * (2 << 20)
    assert decoded("t STRING", json.dumps({"t": text}).encode(), b"[" * (4 << 20))[0] == {"t": text}


# The rules once more, by another parser and without Arrow or msgspec: what a body must become.

_FIELDS = {
    **{"i": "INT", "l": "BIGINT", "d": "DOUBLE", "f": "FLOAT", "b": "BOOLEAN", "t": "STRING", "ts": "TIMESTAMP"},
    **{"n": "DECIMAL(5,2)", "o": "STRUCT<i: INT, t: STRING>", "a": "ARRAY<DOUBLE>", "m": "MAP<STRING, STRING>"},
}
_FLAT = {name: kind for name, kind in _FIELDS.items() if name not in {"o", "a", "m"}} | {
    "k:": "STRING",
    "v": "VARCHAR(2)",
}


class Misfit(Exception):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Misfit
    return dict(pairs)


def _refuse(_: str) -> None:
    raise Misfit


def expected_row(body: bytes, fields: dict[str, str]) -> dict[str, Any] | None:
    """The row of a body with these fields, or None if it does not fit."""
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=Decimal)
        json.dumps(value, ensure_ascii=False, default=str).encode()  # half of a surrogate pair
        if not isinstance(value, dict) or _depth(value) > 100:
            raise Misfit
        return {name: expected(kind, value.get(name)) for name, kind in fields.items()}
    except (ValueError, RecursionError, Misfit, InvalidOperation):
        return None


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + max(map(_depth, inner), default=0)


def expected(kind: str, value: Any) -> Any:
    """A value of a column."""
    if value is None:
        return None
    if kind.startswith("STRUCT"):
        _check(isinstance(value, dict))
        return {"i": expected("INT", value.get("i")), "t": expected("STRING", value.get("t"))}
    if kind.startswith("ARRAY"):
        _check(isinstance(value, list))
        return [expected("DOUBLE", item) for item in value]
    if kind.startswith("MAP"):
        _check(isinstance(value, dict))
        return [(key, expected("STRING", item)) for key, item in value.items()]
    if kind in {"BOOLEAN", "STRING", "VARCHAR(2)"}:
        _check(type(value) is (bool if kind == "BOOLEAN" else str) and (kind != "VARCHAR(2)" or len(value) < 3))
        return value
    if kind == "TIMESTAMP":
        _check(type(value) is str and value[10:11] in {"T", "t", " "} and len(value) > 12)
        moment = datetime.fromisoformat(value.replace(" ", "T"))
        _check(moment.tzinfo is not None)
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            raise Misfit from None
    _check(type(value) in {int, Decimal})
    if kind in {"INT", "BIGINT"}:
        _check(type(value) is int and -(2 ** (limit := 31 if kind == "INT" else 63)) <= value < 2**limit)
        return value
    if kind.startswith("DECIMAL"):
        _check(abs(value) < 1000 and Decimal(value) * 100 == int(Decimal(value) * 100))
        return Decimal(value).quantize(Decimal("0.01"))
    try:
        number = float(value)
        number = struct.unpack("f", struct.pack("f", number))[0] if kind == "FLOAT" else number
    except OverflowError:
        raise Misfit from None
    _check(math.isfinite(number))
    return number


def _check(is_right: bool) -> None:
    if not is_right:
        raise Misfit


_TIMES = st.sampled_from(
    [
        "2026-11-29T08:30:00Z",
        "2026-11-29 08:30:00.25+08:00",
        "2026-11-29T08:30:00",
        "2026-02-30T08:30:00Z",
        "now",
        "a:b",
    ]
)
_NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63) - 1, 2**53 + 1, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1.5, 0.25, 999.99, 1000.0, 3.5e38, 1e39]),
)
_LEAVES = st.one_of(st.none(), st.booleans(), _NUMBERS, st.text(max_size=8), _TIMES)
_NAMES = st.sampled_from([*_FIELDS, "z", "I", "k:", "v"])
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=6
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects, mostly of the right types, with equal keys now and then, spaces, escapes, and damaged bytes."""
    right = {
        **{"i": st.integers(-9, 9), "l": st.integers(-(2**63), 2**63 - 1), "d": _NUMBERS, "f": st.floats(-9, 9)},
        **{"b": st.booleans(), "t": st.text(max_size=8), "ts": _TIMES, "n": st.sampled_from([1, 1.5, 12.25])},
        **{"o": st.fixed_dictionaries({"i": st.integers(0, 9), "t": _LEAVES}), "a": st.lists(_NUMBERS, max_size=3)},
        "m": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    }
    names = draw(st.lists(_NAMES, max_size=6))
    pairs = [(name, draw(right[name] if name in right and draw(st.booleans()) else _VALUES)) for name in names]
    is_ascii, space = draw(st.booleans()), draw(st.sampled_from(["", " ", "\n"]))
    inner = ",".join(f"{json.dumps(name)}{space}:{json.dumps(value, ensure_ascii=is_ascii)}" for name, value in pairs)
    text = f"{{{space}{inner}}}{space}".replace(":", draw(st.sampled_from([":", ":", ":", "\\u003a"])), 1)
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 4)) == 0:
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw)


@settings(max_examples=100, deadline=None)
@given(st.lists(bodies(), min_size=1, max_size=5))
@example([b'{"t":"\\u003a","t":"x"}', b'{"t":"::","z":"","z":""}', b'{"m":{"a":"b","a":"b"}}'])
@example(
    [
        b'{"i":1 ,"l":-0,"d":-0.0e-0,"b":true}',
        b'{"i":01}',
        b'{"i":1.}',
        b'{"i":-}',
        b'{"d":1e}',
        b'{"b":tru}',
        b'{"b":false',
    ]
)
@example(
    [
        b"{}",
        b" { } ",
        b"{",
        b"{,}",
        b'{"i":1,}',
        b'{"i":1 "l":1}',
        b'{"i" 1}',
        b'{"i":',
        b'{"i',
        b'{"z":1,"z":1}',
        b"{}x",
    ]
)
@example(
    [
        b'{"l":9223372036854775807}',
        b'{"l":9223372036854775808}',
        b'{"l":-9223372036854775808}',
        b'{"d":1e400}',
        b'{"f":3.4028235677973366e38}',
        b'{"v":"abc"}',
        b'{"v":"\xf0\x9f\x98\x80b"}',
        b'{"i":null,"ts":"2026-11-29T08:30:00.1234567Z"}',
    ]
)
@example(
    [
        b"{" + b",".join(b'"z%d":%d' % (n, n) for n in range(20)) + b"}",
        b'{"z":[1],"i":1}',
        b'{"t":"a\tb"}',
        b'{"t":"a\x1fb"}',
    ]
)
@example([b'{"d":1e400}', b'{"z":1e400}', b'{"d":-0}', b'{"f":3.4028235677973366e38}', b'{"z":"\\ud83d\\ude00"}'])
def test_decoder_agrees_with_rules_of_other_parser(raw: list[bytes]) -> None:
    for fields in (_FIELDS, _FLAT):  # the ways of nested and of flat objects
        schema = ddl.parse(", ".join(f"`{name}` {kind}" for name, kind in fields.items()), "property")
        result = decode_json(schema, pa.array(raw, pa.binary()))
        result.columns.validate(full=True)
        wanted = [expected_row(body, fields) for body in raw]
        assert [why is None for why in result.reasons] == [row is not None for row in wanted]
        nothing = dict.fromkeys(fields)
        assert result.columns.to_pylist() == [nothing if row is None else row for row in wanted]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_json_bytes_are_row_or_reason(raw: list[bytes]) -> None:
    assert len(decode_json(EACH, pa.array(raw, pa.binary())).reasons) == len(raw)
