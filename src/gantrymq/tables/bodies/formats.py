"""The format of a table's bodies: made of the options of a landing, or of what the table remembers.

Thread rule: values, which are pickled to Spark's executors. What a schema compiles to is made in each process.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

import pyarrow as pa

from gantrymq.errors import ConfigError, GantrymqError
from gantrymq.tables.bodies import ddl, inference
from gantrymq.tables.bodies.body_format import BodyFormat, DecodedBodies, GrowingFormat
from gantrymq.tables.bodies.errors import MisfitError, SchemaError
from gantrymq.tables.bodies.evolution import aligned, evolve
from gantrymq.tables.bodies.json_bodies import JsonCodec, batch_of, decode_json
from gantrymq.tables.bodies.registry import Registry, SchemaKey, UnknownSchemaError
from gantrymq.tables.bodies.schema_file import AVSC, DDL, DESCRIPTORS, JSON_SCHEMA, read_schema
from gantrymq.tables.bodies.shapes import StructOf, arrow_schema
from gantrymq.tables.bodies.shapes import ddl as ddl_of

INFER = "infer"
"""The value of ``--schema`` that infers the fields of JSON."""

TYPED_KINDS = ("json", "avro", "protobuf")
PLAIN_KINDS = ("raw", "text")
_REGISTRY = "registry"
_MODULES = {AVSC: "fastavro", DESCRIPTORS: "google.protobuf", JSON_SCHEMA: "jsonschema_rs"}
_REGISTRY_DIALECTS = {"avro": AVSC, "json": JSON_SCHEMA, "protobuf": DESCRIPTORS}


class MissingExtraError(GantrymqError):
    """A library for a format is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(f"this needs the module {module}: pip install 'gantrymq[typed]'")


class Codec(Protocol):
    """Decodes bodies by one schema.

    A codec of Protobuf has ``message_name``, and ``descriptors`` in base64 with the files that the message needs.
    """

    struct: StructOf
    message_name: str
    descriptors: str

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies."""
        ...


def body_format(
    kind: str,
    schema_file: str | None = None,
    message_name: str | None = None,
    remembered: Mapping[str, str] | None = None,
) -> BodyFormat:
    """The format of bodies.

    ``kind`` is the value of ``--body``. ``schema_file`` is a path, ``infer`` (JSON), or the address of a registry;
    without it the format is the remembered one. With both, the columns of the table evolve to those of the new schema.

    Raises: SchemaError, MissingExtraError.
    """
    is_file = schema_file is not None and schema_file != INFER and "://" not in schema_file
    if message_name is not None and not (kind == "protobuf" and is_file):
        raise ConfigError("--message", message_name, "only with --body protobuf and --schema FILE")
    if kind in PLAIN_KINDS:
        return _plain(kind, schema_file)
    if kind not in TYPED_KINDS:
        raise ConfigError("--body", kind, ", ".join((*PLAIN_KINDS, *TYPED_KINDS)))
    known = _remembered(kind, remembered) if remembered and remembered.get("body") == kind else None
    if schema_file is None:
        if known is None:
            raise ConfigError(
                "--body", kind, "with --schema: a file or a registry" + (", or infer" if kind == "json" else "")
            )
        return known
    if schema_file == INFER:
        return _inferring(kind, known)
    if "://" in schema_file:
        return _registered(Registry(schema_file, kind), known)
    return _filed(kind, schema_file, message_name, known)


def _inferring(kind: str, known: BodyFormat | None) -> BodyFormat:
    if kind != "json":
        raise ConfigError("--schema", INFER, "only with --body json")
    if known is not None and not isinstance(known, InferredBodies):
        raise ConfigError("--schema", INFER, "a file or a registry, because the table has the schema of one")
    return known or InferredBodies(StructOf(()))


def _registered(registry: Registry, known: BodyFormat | None) -> BodyFormat:
    _require(_REGISTRY_DIALECTS[registry.kind])
    if isinstance(known, RegistryBodies):
        return replace(known, registry=registry)
    return RegistryBodies(registry, columns=known.schema if known is not None else None)


def _filed(kind: str, path: str, message_name: str | None, known: BodyFormat | None) -> BodyFormat:
    schema = read_schema(path, kind)
    _require(schema.dialect)
    made = TypedBodies(kind, schema.dialect, schema.text, message_name, schema.source)
    codec = made.codec()
    if schema.dialect == DESCRIPTORS:
        made = replace(made, message=str(codec.message_name), text=str(codec.descriptors))
    if known is None or known.schema.equals(made.schema):
        return made
    return replace(made, columns=evolve(known.schema, made.schema, schema.source))


def _plain(kind: str, schema_file: str | None) -> BodyFormat:
    if schema_file is not None:
        raise ConfigError("--schema", schema_file, f"without --body {kind}, whose bodies have no fields")
    from importlib import import_module

    made: BodyFormat = import_module("gantrymq.tables.bodies.plain").PLAIN[kind]
    return made


def _require(dialect: str) -> None:
    module = _MODULES.get(dialect)
    try:
        if module is None or find_spec(module) is not None:
            return
    except ModuleNotFoundError:
        pass
    raise MissingExtraError(str(module))


@dataclass(frozen=True)
class TypedBodies:
    """Bodies in the schema of a file.

    ``columns`` are those of the table, if it had others before; a body's columns are put into their order.
    """

    kind: str
    dialect: str
    text: str
    message: str | None = None
    source: str = "the table's schema"
    columns: pa.Schema | None = None

    def codec(self) -> Codec:
        """The decoder of this process."""
        return _codec(self.dialect, self.text, self.message, self.source)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return arrow_schema(self.codec().struct) if self.columns is None else self.columns

    @property
    def version(self) -> str:
        """The name of this state of the schema."""
        return _version(self.kind, self.text, self.message or "", self.schema)

    @property
    def grows(self) -> bool:
        """A file does not change by itself."""
        return False

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies."""
        return _into(self.schema, self.codec().decode(bodies))

    def widened(self, bodies: pa.BinaryArray) -> TypedBodies:
        """The same format."""
        return self

    def joined(self, other: GrowingFormat) -> TypedBodies:
        """The same format."""
        return self

    def remembered(self) -> dict[str, str]:
        """What the table keeps."""
        message = {"message": self.message} if self.message else {}
        return {"body": self.kind, "schema": self.dialect, "text": self.text, **message, **_columns_text(self.columns)}


@dataclass(frozen=True)
class InferredBodies:
    """JSON bodies whose fields are inferred. New fields become columns, types stay."""

    struct: StructOf
    columns: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return arrow_schema(self.struct) if self.columns is None else self.columns

    @property
    def version(self) -> str:
        """The name of this state of the schema."""
        return _version("json", INFER, ddl_of(self.struct), self.schema)

    @property
    def grows(self) -> bool:
        """New fields become columns."""
        return True

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies. A body with a field that has no column does not fit."""
        decoded = decode_json(self.struct, bodies, self._unknown, checks_proved=False)
        return _into(self.schema, decoded)

    def _unknown(self, value: Any) -> MisfitError | None:
        return inference.unknown_field(value, self.struct)

    def widened(self, bodies: pa.BinaryArray) -> InferredBodies:
        """A format with the new fields of bodies."""
        if self.struct.fields:
            reasons = self.decode(bodies).reasons
            rows = [row for row, reason in enumerate(reasons) if reason is not None]
            if not rows:
                return self
            bodies = bodies.take(pa.array(rows, pa.int64()))
        return self._with(inference.inferred(bodies.to_pylist()))

    def joined(self, other: GrowingFormat) -> InferredBodies:
        """A format that also has the fields of another one."""
        return self._with(other.struct) if isinstance(other, InferredBodies) else self

    def _with(self, more: StructOf) -> InferredBodies:
        struct = inference.widened(self.struct, more)
        if struct == self.struct:
            return self
        columns = None if self.columns is None else evolve(self.columns, arrow_schema(struct), is_partial=True)
        return InferredBodies(struct, columns)

    def remembered(self) -> dict[str, str]:
        """What the table keeps: the fields as Spark's DDL."""
        return {"body": "json", "schema": INFER, "text": ddl_of(self.struct), **_columns_text(self.columns)}


@dataclass(frozen=True)
class RegistryBodies:
    """Bodies that name their schema in a registry.

    ``writers`` are the schemas that were seen, ``refused`` the ids whose bodies do not fit, with the reasons. A schema
    that the table cannot follow is refused; the registry is asked again for it after a restart.
    """

    registry: Registry
    writers: tuple[tuple[SchemaKey, str], ...] = ()
    refused: tuple[tuple[SchemaKey, str], ...] = ()
    columns: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of all schemas that were seen."""
        return pa.schema([]) if self.columns is None else self.columns

    @property
    def version(self) -> str:
        """The name of this state of the schema."""
        return _version(self.registry.kind, self.registry.url, repr([key for key, _ in self.writers]), self.schema)

    @property
    def grows(self) -> bool:
        """A body may name a new schema."""
        return True

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """The columns of bodies, each by the schema that it names."""
        reasons: list[str | None] = []
        groups: dict[SchemaKey, tuple[list[int], list[bytes]]] = {}
        for row, body in enumerate(bodies.to_pylist()):
            reasons.append(None)
            try:
                key, datum = self.registry.split(body or b"")
            except MisfitError as error:
                reasons[row] = str(error)
                continue
            rows, data = groups.setdefault(key, ([], []))
            rows.append(row)
            data.append(datum)
        texts, refused = dict(self.writers), dict(self.refused)
        batches: list[pa.RecordBatch] = []
        indices: list[int | None] = [None] * len(reasons)
        begin = 0
        for key, (rows, data) in groups.items():
            if key not in texts:
                for row in rows:
                    reasons[row] = f"body: {refused.get(key) or f'the schema {key[0]} is not known'}"
                continue
            decoded = _into(self.schema, self._codec(key, texts[key]).decode(pa.array(data, pa.binary())))
            for index, row in enumerate(rows):
                reasons[row] = decoded.reasons[index]
                indices[row] = None if reasons[row] else begin + index
            batches.append(decoded.columns)
            begin += len(rows)
        if not self.schema.names:
            return DecodedBodies(batch_of([], self.schema, len(reasons)), reasons)
        table = pa.Table.from_batches(batches, schema=self.schema).take(pa.array(indices, pa.int64()))
        return DecodedBodies(_one_batch(table), reasons)

    def widened(self, bodies: pa.BinaryArray) -> RegistryBodies:
        """A format that also has the schemas that bodies name. Raises: RegistryError."""
        known = {key for key, _ in (*self.writers, *self.refused)}
        new: dict[SchemaKey, None] = {}
        for body in bodies.to_pylist():
            try:
                key, _ = self.registry.split(body or b"")
            except MisfitError:
                continue
            if key not in known:
                new[key] = None
        made = self
        for key in new:
            try:
                made = made._with(key, self.registry.fetch(key[0]))
            except UnknownSchemaError as error:
                made = replace(made, refused=(*made.refused, (key, str(error))))
        return made

    def joined(self, other: GrowingFormat) -> RegistryBodies:
        """A format that also has the schemas of another one."""
        made = self
        if isinstance(other, RegistryBodies):
            for key, text in other.writers:
                made = made if key in dict(made.writers) else made._with(key, text)
            refused = {**dict(other.refused), **dict(made.refused)}
            known = dict(made.writers)
            made = replace(made, refused=tuple((key, why) for key, why in refused.items() if key not in known))
        return made

    def _with(self, key: SchemaKey, text: str) -> RegistryBodies:
        try:
            schema = arrow_schema(self._codec(key, text).struct)
            source = f"the schema {key[0]}"
            columns = schema if self.columns is None else evolve(self.columns, schema, source, is_partial=True)
        except (SchemaError, MisfitError) as error:
            why = error.why if isinstance(error, MisfitError) else str(error)
            return replace(self, refused=(*self.refused, (key, why)))
        return replace(self, writers=(*self.writers, (key, text)), columns=columns)

    def _codec(self, key: SchemaKey, text: str) -> Codec:
        identity, indexes = key
        message = None
        if self.registry.kind == "protobuf":
            from gantrymq.tables.bodies.protobuf_bodies import message_at

            message = message_at(base64.b64decode(text), indexes, f"the schema {identity}")
        return _codec(_REGISTRY_DIALECTS[self.registry.kind], text, message, f"the schema {identity}")

    def remembered(self) -> dict[str, str]:
        """What the table keeps: the address, and the schemas that were seen."""
        writers = [[identity, list(indexes), text] for (identity, indexes), text in self.writers]
        return {
            "body": self.registry.kind,
            "schema": _REGISTRY,
            "registry": self.registry.url,
            "text": json.dumps(writers, ensure_ascii=False),
            **_columns_text(self.columns),
        }


def _codec(dialect: str, text: str, message: str | None, source: str) -> Codec:
    """The decoder of a schema. Compiled schemas are cached by their text."""
    if dialect == AVSC:
        from gantrymq.tables.bodies.avro_bodies import avro_schema

        return avro_schema(text, source)
    if dialect == DESCRIPTORS:
        from gantrymq.tables.bodies.protobuf_bodies import protobuf_schema

        return protobuf_schema(text, message, source)
    return _json_codec(dialect, text, source)


def _json_codec(dialect: str, text: str, source: str) -> Codec:
    if dialect == DDL:
        return JsonCodec(_parsed_ddl(text, source))
    from gantrymq.tables.bodies.json_schema import json_schema

    schema = json_schema(text, source)
    return JsonCodec(schema.struct, schema.misfit if schema.has_constraints else None)


@lru_cache(64)
def _parsed_ddl(text: str, source: str) -> StructOf:
    return ddl.parse(text, source)


def _into(schema: pa.Schema, decoded: DecodedBodies) -> DecodedBodies:
    """Decoded bodies with the columns of the table."""
    return DecodedBodies(aligned(decoded.columns, schema), decoded.reasons)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [
        pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns
    ]
    return batch_of(arrays, table.schema, table.num_rows)


def _version(kind: str, text: str, more: str, columns: pa.Schema) -> str:
    """A name for a state of a schema, which is the same in every process."""
    digest = hashlib.sha256(f"{text}\0{more}\0".encode("utf-8", "surrogatepass"))
    digest.update(columns.serialize().to_pybytes())
    return f"{kind}:{digest.hexdigest()[:12]}"


def _columns_text(columns: pa.Schema | None) -> dict[str, str]:
    return {} if columns is None else {"columns": base64.b64encode(columns.serialize().to_pybytes()).decode("ascii")}


def _remembered(kind: str, remembered: Mapping[str, str]) -> BodyFormat:
    """The format that a table remembers. Raises: SchemaError if the table's text is damaged."""
    source = "the table's schema"
    try:
        encoded = remembered.get("columns")
        columns = None if encoded is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
        dialect, text = remembered["schema"], remembered["text"]
        if dialect == INFER:
            return InferredBodies(ddl.parse(text, source, renames_doubles=True) if text else StructOf(()), columns)
        if dialect == _REGISTRY:
            _require(_REGISTRY_DIALECTS[kind])
            writers = tuple(((int(key), tuple(indexes)), schema) for key, indexes, schema in json.loads(text))
            return RegistryBodies(Registry(remembered["registry"], kind), writers, columns=columns)
        _require(dialect)
        made = TypedBodies(kind, dialect, text, remembered.get("message"), source, columns)
        made.codec()
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        raise SchemaError(source, f"the properties of the table are damaged ({type(error).__name__})") from None
    return made
