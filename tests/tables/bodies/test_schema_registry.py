"""Bodies that name their schema in Confluent's registry or in RocketMQ's; a server speaks their protocols."""

from __future__ import annotations

import base64
import io
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from gantrymq.tables.bodies import registry
from gantrymq.tables.bodies.body_format import GrowingFormat
from gantrymq.tables.bodies.errors import SchemaError
from gantrymq.tables.bodies.formats import body_format
from gantrymq.tables.bodies.registry import RegistryError

V1 = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "tag", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "added", "type": ["null", "string"], "default": None}, {"name": "id", "type": "long"}],
}
BROKEN = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}


class Server:
    """A registry on 127.0.0.1: answers by path, and the paths that were asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.failures: list[int] = []
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(handler.path)
        self.asked.append(path)
        self.authorizations.add(handler.headers.get("Authorization"))
        if self.failures:
            status, value = self.failures.pop(), {"error_code": 50001, "message": "busy"}
        elif path in self.answers:
            status, value = self.answers[path] if isinstance(self.answers[path], tuple) else (200, self.answers[path])
        else:
            status, value = 404, {"error_code": 40403, "message": "Schema 9 not found"}
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(registry, "_WAITS_S", (0.0, 0.0))
    made = Server()
    made.answers = {
        "/schemas/ids/1": {"schema": json.dumps(V1)},
        "/schemas/ids/2": {"schema": json.dumps(V2), "schemaType": "AVRO"},
        "/schemas/ids/3": {"schema": json.dumps(BROKEN)},
    }
    yield made
    made.close()


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(identity: int, datum: bytes) -> bytes:
    return b"\0" + identity.to_bytes(4, "big") + datum


def typed(*arguments: Any) -> GrowingFormat:
    """The format of these options."""
    made = body_format(*arguments)
    assert isinstance(made, GrowingFormat)
    return made


def rows(made: Any, bodies: pa.Array) -> list[Any]:
    result = made.decode(bodies)
    assert result.columns.schema.equals(made.schema)
    result.columns.validate(full=True)
    values = result.columns.to_pylist() or [{}] * len(bodies)
    return [row if why is None else why for row, why in zip(values, result.reasons, strict=True)]


def test_bodies_of_two_registry_schemas_share_columns(server: Server) -> None:
    first = typed("avro", server.url)
    assert first.schema.names == []
    bodies = pa.array(
        [
            framed(1, avro(V1, {"id": 1, "tag": "a"})),
            framed(2, avro(V2, {"added": "x", "id": 1 << 40})),
            framed(3, b"\x02a"),
            framed(9, b""),
            b"plain",
            framed(1, b"\x02"),
            framed(1, avro(V1, {"id": 3, "tag": "c"})),
        ]
    )
    made = first.widened(bodies)
    assert rows(made, bodies) == [
        {"id": 1, "tag": "a", "added": None},
        {"id": 1 << 40, "tag": None, "added": "x"},
        "body: the schema 3: the field id is BIGINT and cannot become STRING",
        "body: the registry has no such schema (HTTP 404 Schema 9 not found)",
        "body: does not begin with a zero byte and the id of a schema",
        "tag: the body ends in a number",
        {"id": 3, "tag": "c", "added": None},
    ]
    assert server.asked == [f"/schemas/ids/{identity}" for identity in (1, 2, 3, 9)]
    assert made.widened(bodies) is made
    assert len(server.asked) == 4
    assert rows(first, pa.array([framed(1, b"")])) == ["body: the schema 1 is not known"]


def test_registry_format_comes_back_without_registry(server: Server) -> None:
    bodies = pa.array([framed(1, avro(V1, {"id": 1, "tag": "a"})), framed(2, avro(V2, {"added": "x", "id": 2}))])
    made = typed("avro", server.url).widened(bodies)
    server.asked.clear()
    again = pickle.loads(pickle.dumps(typed("avro", None, None, made.remembered())))
    assert (again.schema, again.version) == (made.schema, made.version)
    assert rows(again, bodies) == rows(made, bodies)
    assert server.asked == []


def test_schemas_of_two_executors_are_joined(server: Server) -> None:
    first = typed("avro", server.url)
    left = first.widened(pa.array([framed(1, b"")]))
    right = first.widened(pa.array([framed(2, b""), framed(9, b"")]))
    joined = left.joined(right)
    assert joined.schema.names == ["id", "tag", "added"]
    assert rows(joined, pa.array([framed(2, avro(V2, {"added": None, "id": 5}))])) == [
        {"id": 5, "tag": None, "added": None}
    ]


def test_registry_after_file_keeps_columns_of_table(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.avsc").write_text(json.dumps(V2))
    filed = typed("avro", str(tmp_path / "x.avsc"))
    made = typed("avro", server.url, None, filed.remembered()).widened(pa.array([framed(1, b"")]))
    assert made.schema.names == ["added", "id", "tag"]


def test_busy_registry_is_asked_again(server: Server) -> None:
    server.failures = [503, 500]
    assert typed("avro", server.url).widened(pa.array([framed(1, b"")])).schema.names == ["id", "tag"]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("failures", "error"), [([503] * 3, "HTTP 503 busy"), ([401], "HTTP 401 busy"), (None, "Connection refused")]
)
def test_registry_that_does_not_answer_is_one_error(server: Server, failures: list[int] | None, error: str) -> None:
    url = server.url
    if failures is None:
        other = Server()
        url = other.url
        other.close()
    server.failures = failures or []
    with pytest.raises(RegistryError) as caught:
        typed("avro", url).widened(pa.array([framed(1, b"")]))
    assert str(caught.value).startswith(f"the schema registry {url} does not serve /schemas/ids/1: ")
    assert error in str(caught.value)
    assert str(caught.value).endswith("; check it, then run again")


def test_credentials_of_registry_come_from_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.AUTH_VARIABLE, "user:secret")
    made = typed("avro", server.url).widened(pa.array([framed(1, b"")]))
    assert server.authorizations == {"Basic " + base64.b64encode(b"user:secret").decode()}
    assert "secret" not in json.dumps(made.remembered())
    with pytest.raises(SchemaError, match="put the credentials into GANTRYMQ_REGISTRY_AUTH"):
        typed("avro", "http://user:secret@127.0.0.1:9")


def test_json_bodies_of_registry_have_its_json_schema(server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}}
    server.answers["/schemas/ids/7"] = {"schema": json.dumps(schema), "schemaType": "JSON"}
    bodies = pa.array([framed(7, b'{"a": 1}'), framed(7, b'{"a": 10}'), framed(1, b"{}"), b'{"a": 1}'])
    made = typed("json", server.url).widened(bodies)
    assert rows(made, bodies) == [
        {"a": 1},
        "a: 10 is greater than the maximum of 9",
        "body: the schema 1 is of the kind AVRO, not json",
        "body: does not begin with a zero byte and the id of a schema",
    ]


def _message(name: str, *fields: FieldDescriptorProto) -> DescriptorProto:
    return DescriptorProto(name=name, field=fields)


def _field(name: str, number: int, kind: int, type_name: str | None = None) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=kind, label=1, type_name=type_name)


def test_protobuf_bodies_of_registry_name_message_in_their_file(server: Server) -> None:
    imported = FileDescriptorProto(
        name="x", syntax="proto3", package="p", message_type=[_message("Tag", _field("t", 1, 9))]
    )
    outer = _message("Outer", _field("tag", 1, 11, ".p.Tag"), _field("at", 2, 11, ".google.protobuf.Timestamp"))
    outer.nested_type.append(_message("Inner", _field("n", 1, 5)))
    file = FileDescriptorProto(
        **{
            "name": "default",
            "syntax": "proto3",
            "package": "p",
            "message_type": [_message("First", _field("f", 1, 8)), outer],
        },
        dependency=["tag.proto", "google/protobuf/timestamp.proto"],
    )
    references = [{"name": "tag.proto", "subject": "tag/s", "version": 3}]
    server.answers = {
        "/schemas/ids/5?format=serialized": {
            "schema": base64.b64encode(file.SerializeToString()).decode(),
            "schemaType": "PROTOBUF",
            "references": references,
        },
        "/subjects/tag/s/versions/3?format=serialized": {
            "schema": base64.b64encode(imported.SerializeToString()).decode(),
            "schemaType": "PROTOBUF",
        },
    }
    at = timestamp_pb2.Timestamp(seconds=5).SerializeToString()
    bodies = pa.array(
        [
            framed(5, b"\x00\x08\x01"),  # First
            framed(5, b"\x02\x02" + b"\x0a\x03\x0a\x01x" + b"\x12\x02" + at),  # Outer
            framed(5, b"\x04\x02\x00\x08\x07"),  # Outer.Inner
            framed(5, b"\x02\x08"),
            framed(5, b"\x41"),
            framed(5, b"\xff\xff\xff\xff\xff\xff"),
            framed(5, b""),
        ]
    )
    made = typed("protobuf", server.url).widened(bodies)
    assert made.schema.names == ["f", "tag", "at", "n"]
    result = rows(made, bodies)
    assert [row if isinstance(row, str) else {k: v for k, v in row.items() if v is not None} for row in result[1:]] == [
        {"tag": {"t": "x"}, "at": result[1]["at"]},
        {"n": 7},
        "body: the schema 5 has no message 4",
        "body: -33 indexes of a message",
        "body: an index of a message has more than 32 bits",
        "body: ends in the indexes of a message",
    ]
    assert result[0]["f"] is True
    assert result[1]["at"].timestamp() == 5
    assert rows(typed("protobuf", None, None, made.remembered()), bodies)[2]["n"] == 7


@pytest.mark.parametrize(
    "answer",
    [[], {"schemaType": "AVRO"}, b"<html>", {"schema": "????", "schemaType": "PROTOBUF", "references": [{}]}],
)
def test_registry_with_unreadable_answer_is_one_error(server: Server, answer: Any) -> None:
    kind = "protobuf" if isinstance(answer, dict) and "schema" in answer else "avro"
    server.answers = {"/schemas/ids/1": answer, "/schemas/ids/1?format=serialized": answer}
    with pytest.raises(RegistryError):
        typed(kind, server.url).widened(pa.array([framed(1, b"\0")]))


def rocketmq_path(identity: int) -> str:
    return f"/schema-registry/v1/subject/TopicA/recordId/{identity}/schema"


def test_bodies_of_rocketmq_registry_become_rows(server: Server) -> None:
    """The schema's version is in the lower 14 bits of a record id, and the registry looks up only those."""
    first, second = 5 << 14 | 1, 5 << 14 | 2
    answer = {"subjectFullName": "default/TopicA", "schemaFullName": "R", "dependency": None, "type": "AVRO"}
    server.answers = {
        rocketmq_path(first): {**answer, "version": 1, "recordId": first, "idl": json.dumps(V1)},
        rocketmq_path(second): {**answer, "version": 2, "recordId": second, "idl": json.dumps(V2)},
        rocketmq_path(1): {**answer, "version": 1, "recordId": first, "idl": json.dumps(V1)},
    }
    bodies = pa.array(
        [
            b"\x10" + first.to_bytes(8, "big") + avro(V1, {"id": 1, "tag": "a"}),
            b"\x10" + second.to_bytes(8, "big") + avro(V2, {"added": None, "id": 2}),
            b"\x10" + (1).to_bytes(8, "big") + avro(V1, {"id": 1, "tag": "a"}),
            b"\x10\x00",
        ]
    )
    made = typed("avro", f"rocketmq+{server.url}/TopicA").widened(bodies)
    assert rows(made, bodies) == [
        {"id": 1, "tag": "a", "added": None},
        {"id": 2, "tag": None, "added": None},
        f"body: the subject has no schema 1, only {first}",
        "body: does not begin with the record id of RocketMQ's schema registry",
    ]


def test_rocketmq_registry_answers_500_for_missing_schema(server: Server) -> None:
    server.answers = {rocketmq_path(0): (500, {"status": 50001, "message": "Schema: default/TopicA/0 not exist"})}
    made = typed("avro", f"rocketmq+{server.url}/TopicA").widened(pa.array([b"\x10" + bytes(8)]))
    assert rows(made, pa.array([b"\x10" + bytes(8)]))[0].startswith("body: the registry has no such schema")


@pytest.mark.parametrize(
    ("kind", "url", "error"),
    [
        ("avro", "http://", "no address of a registry, such as http://host:8081"),
        ("avro", "rocketmq+http://127.0.0.1:8080", "RocketMQ's registry needs a subject"),
        ("protobuf", "rocketmq+http://127.0.0.1:8080/T", "RocketMQ's registry needs a subject"),
        ("avro", "ftp://127.0.0.1", "no address of a registry, such as http://host:8081"),
    ],
)
def test_invalid_registry_address_is_refused(kind: str, url: str, error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        typed(kind, url)
