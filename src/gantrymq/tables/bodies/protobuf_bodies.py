"""Protobuf bodies as columns: one message a body, of a type in a FileDescriptorSet (``protoc --include_imports``).

A field without presence has the default of its type, as in every language of Protobuf. A field with presence
(``optional``, a message, a member of a ``oneof``) is null when it is not set. An empty body is a valid message.

Thread rule: a format is a value, its classes are made in each process.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from gantrymq.tables.bodies.avro_bodies import from_dicts
from gantrymq.tables.bodies.body_format import DecodedBodies
from gantrymq.tables.bodies.errors import MisfitError, SchemaError
from gantrymq.tables.bodies.names import column_names
from gantrymq.tables.bodies.shapes import Field, ListOf, MapOf, Scalar, ScalarKind, Shape, StructOf
from gantrymq.tables.bodies.values import checked_timestamp_us

Convert = Callable[[Any], Any]

_INT, _LONG = Scalar(ScalarKind.INTEGER, 32), Scalar(ScalarKind.INTEGER, 64)
_UNSIGNED_LONG = Scalar(ScalarKind.DECIMAL, precision=20, scale=0, unit="integer")
# By the numbers of FieldDescriptorProto.Type.
_SCALARS: dict[int, Scalar] = {
    1: Scalar(ScalarKind.DOUBLE),
    2: Scalar(ScalarKind.FLOAT),
    **dict.fromkeys((3, 16, 18), _LONG),  # int64, sfixed64, sint64
    **dict.fromkeys((4, 6), _UNSIGNED_LONG),  # uint64, fixed64
    **dict.fromkeys((5, 15, 17), _INT),  # int32, sfixed32, sint32
    **dict.fromkeys((7, 13), _LONG),  # fixed32, uint32
    8: Scalar(ScalarKind.BOOLEAN),
    9: Scalar(ScalarKind.STRING),
    12: Scalar(ScalarKind.BINARY),
}
_ENUM, _MESSAGES = 14, (10, 11)
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON_MESSAGES = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_WELL_KNOWN_FILES = "any api descriptor duration empty field_mask source_context struct timestamp type wrappers"


class ProtobufSchema:
    """A message type: its columns, and the decoder of its bodies. Raises: SchemaError."""

    def __init__(self, descriptors: bytes, message_name: str | None, source: str) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._source = source
        self._descriptor, needed = _message_type(descriptors, message_name, source)
        self.descriptors = base64.b64encode(needed).decode("ascii")
        self.message_name = str(self._descriptor.full_name)
        self._class = GetMessageClass(self._descriptor)
        shape, self._convert = self._message(self._descriptor, "", ())
        if not isinstance(shape, StructOf):
            raise SchemaError(source, f"the message {self.message_name} has no fields that could be columns")
        self.struct = shape

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies."""
        reasons: list[str | None] = []
        rows: list[dict[str, Any]] = []
        for body in bodies.to_pylist():
            try:
                rows.append(self._row(body or b""))
                reasons.append(None)
            except MisfitError as error:
                rows.append({})
                reasons.append(str(error))
        return from_dicts(self.struct, rows, reasons)

    def _row(self, body: bytes) -> dict[str, Any]:
        from google.protobuf.message import DecodeError

        try:
            message = self._class.FromString(body)
        except DecodeError:
            raise MisfitError("", f"no valid message {self.message_name}") from None
        if not message.IsInitialized():
            missing = message.FindInitializationErrors()[0]
            raise MisfitError(missing, "missing, and the schema requires it")
        try:
            return self._convert(message)  # type: ignore[no-any-return]
        except MisfitError:
            raise
        except Exception as error:  # texts of proto2 that are not UTF-8, and what else the runtime raises late
            raise MisfitError("", f"no valid message {self.message_name}: {error}") from None

    def _message(self, descriptor: Any, path: str, names: tuple[str, ...]) -> tuple[Shape, Convert]:
        """The shape of a message, and what makes its value."""
        name = descriptor.full_name
        if name == "google.protobuf.Timestamp":
            return Scalar(ScalarKind.TIMESTAMP, unit="us"), lambda message: _timestamp_us(message, path)
        if name in _JSON_MESSAGES:
            return Scalar(ScalarKind.JSON), lambda message: _json(message, path)
        if name in _WRAPPERS:
            return _SCALARS[descriptor.fields_by_name["value"].type], lambda message: message.value
        if name in names:
            raise SchemaError(self._source, f"the field {path} contains itself ({name}), so it has no columns")
        if not descriptor.fields:
            return Scalar(ScalarKind.BOOLEAN), lambda message: True
        columns = column_names([field.name for field in descriptor.fields], path, self._source)
        fields, converts = [], []
        for field, column in zip(descriptor.fields, columns, strict=True):
            shape, convert = self._field(field, f"{path}.{field.name}" if path else field.name, (*names, name))
            fields.append(Field(field.name, column, shape))
            converts.append((field.name, convert))
        return StructOf(tuple(fields)), lambda message: {key: convert(message) for key, convert in converts}

    def _field(self, field: Any, path: str, names: tuple[str, ...]) -> tuple[Shape, Convert]:
        """The shape of a field, and what takes its value from the message."""
        key = field.name
        if field.type in _MESSAGES and field.message_type.GetOptions().map_entry:
            by_name = field.message_type.fields_by_name
            shape, convert = self._value(by_name["value"], path, names)
            return MapOf(shape), lambda message: {_key(k): convert(v) for k, v in getattr(message, key).items()}
        shape, convert = self._value(field, path, names)
        if field.is_repeated:
            return ListOf(shape), lambda message: [convert(value) for value in getattr(message, key)]
        if field.has_presence:
            return shape, lambda message: convert(getattr(message, key)) if message.HasField(key) else None
        return shape, lambda message: convert(getattr(message, key))

    def _value(self, field: Any, path: str, names: tuple[str, ...]) -> tuple[Shape, Convert]:
        if field.type in _MESSAGES:
            return self._message(field.message_type, path, names)
        if field.type == _ENUM:
            numbers = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return Scalar(ScalarKind.STRING), lambda number: numbers.get(number) or str(number)
        return _SCALARS[field.type], lambda value: value


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _timestamp_us(message: Any, path: str) -> int:
    if not 0 <= message.nanos < 1_000_000_000:
        raise MisfitError(path, f"{message.nanos} are no nanoseconds of a second")
    try:
        return checked_timestamp_us(int(message.seconds * 1_000_000 + message.nanos // 1_000))
    except ValueError as error:
        raise MisfitError(path, str(error)) from None


def _json(message: Any, path: str) -> str:
    from google.protobuf.json_format import MessageToJson

    try:
        return str(MessageToJson(message, indent=None, ensure_ascii=False))
    except ValueError as error:
        raise MisfitError(path, f"no JSON: {error}") from None


def _message_type(descriptors: bytes, message_name: str | None, source: str) -> tuple[Any, bytes]:
    """The descriptor of a message, and the smallest set of files that it needs."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        raise SchemaError(source, "no FileDescriptorSet: make it with protoc --include_imports -o FILE") from None
    by_name = {file.name: file for file in files}
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        _add_file(pool, by_name, file.name, source, [])
    names = [f"{file.package}.{message.name}".lstrip(".") for file in files for message in file.message_type]
    if message_name is None:
        names = [name for name in names if not name.startswith("google.protobuf.")]
        if len(names) != 1:
            some = ", ".join(names[:8]) or "none"
            raise SchemaError(source, f"name the type of the message: the file has {some}")
        message_name = names[0]
    try:
        descriptor = pool.FindMessageTypeByName(message_name.lstrip("."))
    except KeyError:
        raise SchemaError(source, f"no message {message_name}: the file has {', '.join(names[:8]) or 'none'}") from None
    needed = descriptor_pb2.FileDescriptorSet()
    _copy_files(descriptor.file, needed, set())
    return descriptor, needed.SerializeToString(deterministic=True)


def _add_file(pool: Any, by_name: dict[str, Any], name: str, source: str, importing: list[str]) -> None:
    """Add a file behind the files that it imports. The runtime has Google's own."""
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    if name in importing:
        raise SchemaError(source, f"{name} imports itself")
    file = by_name.get(name) or _well_known_file(name)
    if file is None:
        raise SchemaError(source, f"{name} is imported and missing: make the file with protoc --include_imports")
    for imported in file.dependency:
        _add_file(pool, by_name, imported, source, [*importing, name])
    try:
        pool.Add(file)
        pool.FindFileByName(name)
    except (TypeError, KeyError) as error:
        raise SchemaError(source, f"{name} is no valid file of Protobuf: {' '.join(str(error).split())}") from None


def _well_known_file(name: str) -> Any:
    from importlib import import_module

    from google.protobuf import descriptor_pb2

    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if name != f"google/protobuf/{stem}.proto" or stem not in _WELL_KNOWN_FILES.split():
        return None
    file = descriptor_pb2.FileDescriptorProto()
    import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(file)
    return file


def _copy_files(file: Any, into: Any, seen: set[str]) -> None:
    """Copy a file and those that it imports, imports first, without comments and positions."""
    if file.name in seen:
        return
    seen.add(file.name)
    for imported in file.dependencies:
        _copy_files(imported, into, seen)
    copy = into.file.add()
    file.CopyToProto(copy)
    copy.ClearField("source_code_info")


def message_at(descriptors: bytes, indexes: Sequence[int], source: str) -> str:
    """The full name of the message at a path of indexes in the last file of a set. Raises: MisfitError."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[-1]
    messages, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise MisfitError("", f"{source} has no message {'/'.join(map(str, indexes))}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


@lru_cache(64)
def protobuf_schema(text: str, message_name: str | None, source: str) -> ProtobufSchema:
    """The schema of a FileDescriptorSet in base64; each process makes it once."""
    try:
        descriptors = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SchemaError(source, "the FileDescriptorSet is not base64") from None
    return ProtobufSchema(descriptors, message_name, source)
