"""Avro and Protobuf bodies become typed columns, or a reason."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from gantrymq.tables.bodies.avro_bodies import AvroSchema
from gantrymq.tables.bodies.body_format import GrowingFormat
from gantrymq.tables.bodies.errors import SchemaError
from gantrymq.tables.bodies.formats import body_format
from gantrymq.tables.bodies.protobuf_bodies import ProtobufSchema

_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "topic", "type": ["null", "string"], "default": None},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ns", "type": ["null", {"type": "long", "logicalType": "timestamp-nanos"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw_uuid", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 3}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "n", "type": "int"}, {"name": "color", "type": "Color"}],
                },
            },
        },
        {"name": "first", "type": ["null", "Item"]},
        {"name": "notes", "type": {"type": "map", "values": ["double", "null"]}},
        {"name": "count", "type": ["int", "long"]},
        {"name": "rate", "type": "float"},
        {"name": "ok", "type": "boolean"},
        {"name": "nothing", "type": "null"},
    ],
}
_VALUE = {
    **{"id": 5, "topic": "t", "color": "BLUE", "ms": datetime(2026, 11, 29, tzinfo=UTC), "local": 0},
    **{
        "us": datetime(1969, 1, 1, microsecond=1, tzinfo=UTC),
        "ns": 1_700_000_000_123_456_789,
        "day": date(2026, 11, 29),
    },
    **{"price": Decimal("-1.50"), "uuid": "550e8400-e29b-41d4-a716-446655440000", "raw_uuid": bytes(range(16))},
    **{"hash": b"abc", "items": [{"n": 1, "color": "RED"}], "first": {"n": -1, "color": "BLUE"}, "notes": {"k": None}},
    **{"count": 1 << 40, "rate": 1.5, "ok": True, "nothing": None},
}
_ROW = {
    **{"id": 5, "body_topic": "t", "color": "BLUE", "ms": datetime(2026, 11, 29, tzinfo=UTC), "local": 0},
    **{"us": datetime(1969, 1, 1, microsecond=1, tzinfo=UTC), "ns": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)},
    **{"day": date(2026, 11, 29), "price": Decimal("-1.50"), "uuid": "550e8400-e29b-41d4-a716-446655440000"},
    **{"raw_uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f", "hash": b"abc", "items": [{"n": 1, "color": "RED"}]},
    **{"first": {"n": -1, "color": "BLUE"}, "notes": [("k", None)], "count": 1 << 40, "rate": 1.5, "ok": True},
}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def typed(*arguments: Any) -> GrowingFormat:
    """The format of these options."""
    made = body_format(*arguments)
    assert isinstance(made, GrowingFormat)
    return made


def rows(made: Any, *bodies: bytes) -> list[Any]:
    """A row of values, or the reason, of each body."""
    result = made.decode(pa.array(bodies, pa.binary()))
    result.columns.validate(full=True)
    return [row if why is None else why for row, why in zip(result.columns.to_pylist(), result.reasons, strict=True)]


def record(*fields: tuple[str, Any]) -> AvroSchema:
    described = [{"name": name, "type": kind} for name, kind in fields]
    return AvroSchema(json.dumps({"type": "record", "name": "R", "fields": described}), "x.avsc")


def test_avro_datum_becomes_row(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(_ORDER))
    made = pickle.loads(pickle.dumps(typed("avro", str(path))))
    [row] = rows(made, avro(_ORDER, _VALUE))
    assert row == _ROW
    restored = typed("avro", None, None, made.remembered())
    assert (restored.schema, restored.version) == (made.schema, made.version)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("long", b"", "a: the body ends in a number"),
        ("long", b"\x02\x02", "body: 1 bytes behind the Avro record"),
        ("long", b"\xff" * 9 + b"\x7f", "a: a number of more than 64 bits"),
        ("long", b"\xff" * 20 + b"\x01", "a: a number of more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x20", "a: 4294967296 is out of range of INT"),
        ("boolean", b"\x02", "a: 2 is no boolean"),
        ("string", b"\x04a", "a: 2 bytes are announced, and 1 bytes are left"),
        ("string", b"\x01a", "a: -1 bytes are announced, and 1 bytes are left"),
        (
            "string",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fa",
            "a: 4611686018427387903 bytes are announced, and 1 bytes are left",
        ),
        ("string", b"\x02\xff", "a: not UTF-8 at byte 0 of the text"),
        (["null", "string"], b"\x01\x02a", "a: a union of 2 types has no type -1"),
        (["null", "string"], b"\x04", "a: a union of 2 types has no type 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "a: the enum has no symbol -1"),
        (
            {"type": "array", "items": "boolean"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x01",
            "a: 4611686018427387903 items",
        ),
        ({"type": "array", "items": "int"}, b"\x04\x02\x80\x80\x80\x80\x20", "a[1]: "),
        ({"type": "map", "values": "int"}, b"\x04\x02k\x02\x02k\x04\x00", "a.k: the key is there twice"),
        (
            {"type": "int", "logicalType": "date"},
            b"\xfe\xff\xff\xff\x0f",
            "a: out of range: a date is within the years",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe" + b"\xff" * 8 + b"\x01",
            "a: out of range: a timestamp",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x02\x64",
            "a: out of range: the number has more digits",
        ),
    ],
)
def test_avro_that_does_not_fit_has_reason(kind: Any, body: bytes, reason: str) -> None:
    made = record(("a", kind))
    result = made.decode(pa.array([body], pa.binary()))
    assert str(result.reasons[0]).startswith(reason)
    assert result.columns.column(0).null_count == 1


def test_avro_array_in_several_blocks_fits() -> None:
    made = record(("a", {"type": "array", "items": "int"}))
    assert rows(made, b"\x02\x02\x03\x04\x04\x06\x00") == [{"a": [1, 2, 3]}]


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", "line 1, column 2: Expecting property name enclosed in double quotes"),
        ('"long"', "the Avro schema of a body must be a record with at least one field"),
        (
            json.dumps(_ORDER | {"fields": [{"name": "o", "type": ["null", "Order"]}]}),
            "the field o contains itself (shop.Order)",
        ),
        ([("u", ["int", "string"])], "the field u is a union of int, string: only null and one type"),
        ([("a", {"type": "array", "items": "null"})], "the elements of the field a have no value"),
        ([("a", "Foo")], "no valid Avro schema: UnknownType"),
        ([("a", "int"), ("A", "int")], "the fields 'a' and 'A' differ by case only"),
        (
            [("d", {"type": "bytes", "logicalType": "decimal", "precision": 39})],
            "the decimal of the field d has more than 38",
        ),
    ],
)
def test_avro_schema_without_columns_is_refused(schema: Any, error: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroSchema(schema, "x.avsc") if isinstance(schema, str) else record(*schema)
    assert str(caught.value).startswith(f"x.avsc: {error}")


_AVRO = AvroSchema(json.dumps(_ORDER), "order.avsc")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 200), st.integers(0, 255))
def test_any_bytes_are_avro_row_or_reason(raw: bytes, at: int, byte: int) -> None:
    damaged = bytearray(avro(_ORDER, _VALUE))
    damaged[at % len(damaged)] = byte
    for row in rows(_AVRO, raw, bytes(damaged)):
        assert isinstance(row, str) or row.keys() == _ROW.keys()


# Protobuf

_PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { RED = 0; BLUE = 1; }
message Item { string sku = 1; optional int32 count = 2; uint64 big = 3; }
message Order {
  int64 id = 1; string topic = 2; Color color = 3; repeated Item items = 4; map<int32, Item> by_line = 5;
  google.protobuf.Timestamp at = 6; google.protobuf.StringValue note = 7; google.protobuf.Struct extra = 8;
  oneof pay { string card = 9; Item voucher = 10; google.protobuf.Empty cash = 11; }
  uint32 small = 12; bytes raw = 13; float rate = 14; bool ok = 15; repeated Color colors = 16;
  message Inner { sint32 x = 1; }
  Inner inner = 17; map<bool, string> flags = 18; google.protobuf.UInt64Value maybe = 19;
}
message Node { Node next = 1; }
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, bytes]:
    """The FileDescriptorSet with and without the imported files."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "shop.proto").write_text(_PROTO)
    made = {}
    well_known = str(Path(protoc.__file__).parent / "_proto")
    for with_imports in (True, False):
        arguments = ["", f"-I{folder}", f"-I{well_known}", f"-o{folder / 'out.desc'}", "shop.proto"]
        assert protoc.main([*arguments, *(["--include_imports"] if with_imports else [])]) == 0
        made[with_imports] = (folder / "out.desc").read_bytes()
    return made


def message_class(descriptors: bytes, name: str) -> Any:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def order(descriptors: dict[bool, bytes]) -> Any:
    return message_class(descriptors[True], "shop.Order")()


def test_protobuf_message_becomes_row(tmp_path: Path, descriptors: dict[bool, bytes]) -> None:
    message = order(descriptors)
    message.id, message.topic, message.color, message.small, message.raw = -1, "t", 1, 2**32 - 1, b"\xff"
    message.items.add(sku="a", count=0, big=2**64 - 1)
    message.by_line[-3].sku = "b"
    message.at.seconds, message.at.nanos = 1_700_000_000, 123_456_789
    message.note.value = ""
    message.extra.update({"a": [1, None]})
    message.cash.SetInParent()
    message.colors.extend([0, 7])
    message.inner.x = -5
    message.flags[True] = "yes"
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptors[False])  # Google's files come from the runtime
    made = pickle.loads(pickle.dumps(typed("protobuf", str(path), "shop.Order")))
    item = {"sku": "b", "count": None, "big": Decimal(0)}
    filled, empty = rows(made, message.SerializeToString(), b"")
    assert filled == {
        **{
            "id": -1,
            "body_topic": "t",
            "color": "BLUE",
            "items": [{"sku": "a", "count": 0, "big": Decimal(2**64 - 1)}],
        },
        **{"by_line": [("-3", item)], "at": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC), "note": ""},
        **{"extra": '{"a": [1.0, null]}', "card": None, "voucher": None, "cash": True, "small": 2**32 - 1},
        **{"raw": b"\xff", "rate": 0.0, "ok": False, "colors": ["RED", "7"], "inner": {"x": -5}},
        **{"flags": [("true", "yes")], "maybe": None},
    }
    assert (empty["id"], empty["color"], empty["body_topic"], empty["items"]) == (0, "RED", "", [])
    assert {empty[name] for name in ("at", "note", "card", "cash", "inner")} == {None}
    restored = typed("protobuf", None, None, made.remembered())
    assert (restored.schema, restored.version) == (made.schema, made.version)


def test_protobuf_that_does_not_fit_has_reason(descriptors: dict[bool, bytes]) -> None:
    made = ProtobufSchema(descriptors[True], "shop.Order", "shop.desc")
    late, odd = order(descriptors), order(descriptors)
    late.at.seconds, odd.at.nanos = 10**15, -1
    deep = b""
    for _ in range(200):  # a list in a list, in google.protobuf.Struct
        deep = b"\x32" + _length(b"\x0a" + _length(deep))
    deep = b"\x42" + _length(b"\x0a" + _length(b"\x0a\x01k\x12" + _length(deep)))
    assert rows(
        made,
        b"\x08",
        b"\x12\x01\xff",
        b"\x22\xff\xff\xff\xff\x07",
        late.SerializeToString(),
        odd.SerializeToString(),
        deep,
    ) == [
        *["body: no valid message shop.Order"] * 3,
        "at: out of range: a timestamp is within the years 1 to 9999",
        "at: -1 are no nanoseconds of a second",
        "body: no valid message shop.Order",
    ]


def _length(data: bytes) -> bytes:
    """The data behind its length."""
    count, out = len(data), bytearray()
    while count > 127:
        out.append(count & 127 | 128)
        count >>= 7
    return bytes([*out, count]) + data


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("shop.Node", "the field next contains itself (shop.Node), so it has no columns"),
        (None, "name the type of the message: the file has shop.Item, shop.Order, shop.Node"),
        ("shop.No", "no message shop.No: the file has google.protobuf.Empty, "),
    ],
)
def test_protobuf_message_without_columns_is_refused(
    descriptors: dict[bool, bytes], name: str | None, error: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        ProtobufSchema(descriptors[True], name, "shop.desc")
    assert str(caught.value).startswith(f"shop.desc: {error}")


def test_protobuf_file_without_imported_file_says_how_to_make_it(descriptors: dict[bool, bytes]) -> None:
    files = FileDescriptorSet.FromString(descriptors[False])
    files.file[0].dependency[0] = "other.proto"
    with pytest.raises(SchemaError, match=r"other\.proto is imported and missing: make the file with protoc --include"):
        ProtobufSchema(files.SerializeToString(), "shop.Order", "shop.desc")


def test_any_bytes_are_protobuf_row_or_reason(descriptors: dict[bool, bytes]) -> None:
    made = ProtobufSchema(descriptors[True], "shop.Order", "shop.desc")
    message = order(descriptors)
    message.at.seconds, message.topic = 5, "topic"
    message.extra.update({"a": [1, {"b": "c"}]})
    good = message.SerializeToString()

    @settings(max_examples=60, deadline=None)
    @given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
    def check(raw: bytes, at: int, byte: int) -> None:
        damaged = bytearray(good)
        damaged[at % len(damaged)] = byte
        assert len(rows(made, raw, bytes(damaged))) == 2

    check()
