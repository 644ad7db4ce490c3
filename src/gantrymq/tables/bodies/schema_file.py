"""The files of schemas: which kind a file is, by its content, and its text."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from gantrymq.tables.bodies.errors import SchemaError

MAX_FILE_BYTES = 16 << 20

DDL, JSON_SCHEMA, AVSC, DESCRIPTORS = "ddl", "json-schema", "avsc", "descriptors"
_OF_BODIES = {"json": (DDL, JSON_SCHEMA), "avro": (AVSC,), "protobuf": (DESCRIPTORS,)}
_NAMES = {
    DDL: "Spark's DDL",
    JSON_SCHEMA: "a JSON Schema",
    AVSC: "an Avro schema",
    DESCRIPTORS: "a FileDescriptorSet of Protobuf (protoc --include_imports -o FILE)",
}
_BINARY_SUFFIXES = {".desc", ".pb", ".bin", ".protoset", ".fds"}
_AVRO_TYPES = {"record", "error", "enum", "array", "map", "fixed"}


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The content of a file: its kind, and its text, in base64 for a FileDescriptorSet."""

    dialect: str
    text: str
    source: str


def read_schema(path: str, kind: str) -> SchemaText:
    """The schema of a file for bodies of a kind. Raises: SchemaError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SchemaError(path, f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise SchemaError(path, f"larger than {MAX_FILE_BYTES >> 20} MiB, which is no schema")
    if not content.strip():
        raise SchemaError(path, "the file is empty")
    dialect = _dialect(content, Path(path).suffix.lower(), kind)
    if dialect not in _OF_BODIES[kind]:
        wanted = " or ".join(_NAMES[name] for name in _OF_BODIES[kind])
        raise SchemaError(path, f"--body {kind} takes {wanted}, and this is {_NAMES[dialect]}")
    if dialect == DESCRIPTORS:
        return SchemaText(dialect, base64.b64encode(content).decode("ascii"), path)
    try:
        return SchemaText(dialect, content.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise SchemaError(path, f"not UTF-8 at byte {error.start}") from None


def _dialect(content: bytes, suffix: str, kind: str) -> str:
    """The kind of a file. A suffix that says nothing leaves it to the content."""
    if suffix in _BINARY_SUFFIXES or b"\0" in content or content[:1] == b"\n":
        return DESCRIPTORS
    if suffix == ".avsc":
        return AVSC
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in {b"{", b"[", b'"'}:
        return DESCRIPTORS if kind == "protobuf" and suffix != ".proto" and not content.isascii() else DDL
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return AVSC if kind == "avro" else JSON_SCHEMA  # their parsers name the line
    is_avro = not isinstance(value, dict) or ("$schema" not in value and value.get("type") in _AVRO_TYPES - {"array"})
    return AVSC if is_avro else JSON_SCHEMA
