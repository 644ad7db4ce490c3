"""Schema registries: Confluent's and RocketMQ's, their clients and their framing of bodies.

=============  =========================================================================================
registry       a body begins with
=============  =========================================================================================
Confluent      a zero byte and the id in 4 bytes; Protobuf: then the path to the message in its file
RocketMQ       Avro: the record id as Avro's ``bytes`` of 8 (``0x10`` and 8 bytes); JSON: 8 bytes
=============  =========================================================================================

Source: org.apache.rocketmq.schema.registry.client.serde.avro.AvroSerializer, …json.JsonSerializer; the REST interface
of Confluent's Schema Registry 7.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from gantrymq.errors import GantrymqError
from gantrymq.tables.bodies.errors import MisfitError, SchemaError

AUTH_VARIABLE = "GANTRYMQ_REGISTRY_AUTH"
"""The environment variable with ``user:password`` for a registry. It is remembered nowhere."""

TIMEOUT_S = 10.0
_WAITS_S = (0.2, 0.5, 1.0)
_MAX_RESPONSE_BYTES = 16 << 20
_MAX_INDEXES = 16
_RECORD_ID_BYTES = 8

SchemaKey = tuple[int, tuple[int, ...]]
"""The id of a schema, and the path to a message of Protobuf in its file."""


class RegistryError(GantrymqError):
    """A registry does not answer, or with an error."""


class UnknownSchemaError(GantrymqError):
    """A registry has no schema with an id."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry, and how it frames bodies of one kind.

    ``url`` is ``http://host:port`` for Confluent's, ``rocketmq+http://host:port/subject`` for RocketMQ's, where
    the subject is usually the topic.

    Raises: SchemaError for another address.
    """

    url: str
    kind: str

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if not parts.hostname or parts.scheme.removeprefix("rocketmq+") not in {"http", "https"}:
            raise SchemaError(self.url, "no address of a registry, such as http://host:8081")
        if parts.username or parts.password:
            raise SchemaError(
                self.url.split("@")[-1], f"put the credentials into {AUTH_VARIABLE}, not into the address"
            )
        if self.is_rocketmq and (not parts.path.strip("/") or self.kind == "protobuf"):
            raise SchemaError(
                self.url, "RocketMQ's registry needs a subject, rocketmq+http://host:port/subject, and avro or json"
            )

    @property
    def is_rocketmq(self) -> bool:
        """Whether the registry is RocketMQ's."""
        return self.url.startswith("rocketmq+")

    def split(self, body: bytes) -> tuple[SchemaKey, bytes]:
        """The schema of a body, and its datum. Raises: MisfitError."""
        if self.is_rocketmq:
            prefix = b"\x10" if self.kind == "avro" else b""
            begin = len(prefix) + _RECORD_ID_BYTES
            if not body.startswith(prefix) or len(body) < begin:
                raise MisfitError("", "does not begin with the record id of RocketMQ's schema registry")
            return (int.from_bytes(body[len(prefix) : begin], "big"), ()), body[begin:]
        if len(body) < 5 or body[0] != 0:
            raise MisfitError("", "does not begin with a zero byte and the id of a schema")
        identity, datum = int.from_bytes(body[1:5], "big"), body[5:]
        if self.kind != "protobuf":
            return (identity, ()), datum
        indexes, datum = _indexes(datum)
        return (identity, indexes), datum

    def fetch(self, identity: int) -> str:
        """The text of a schema: of Protobuf the FileDescriptorSet in base64, its own file last.

        Raises: UnknownSchemaError; RegistryError after several tries.
        """
        if self.is_rocketmq:
            return self._fetch_rocketmq(identity)
        query = "?format=serialized" if self.kind == "protobuf" else ""
        answer = self._get(f"/schemas/ids/{identity}{query}")
        self._check_kind(identity, answer.get("schemaType", "AVRO"))
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryError(f"{self.url} answered for the schema {identity} without its text")
        references = answer.get("references") or []
        if self.kind == "protobuf":
            return self._descriptor_set(text, references)
        if references:
            raise UnknownSchemaError(
                f"the schema {identity} refers to other schemas, which is supported for protobuf only"
            )
        return text

    def _check_kind(self, identity: int, kind: object) -> None:
        if str(kind).lower() != self.kind:
            raise UnknownSchemaError(f"the schema {identity} is of the kind {kind}, not {self.kind}")

    def _fetch_rocketmq(self, identity: int) -> str:
        subject = urllib.parse.quote(urllib.parse.urlsplit(self.url).path.strip("/"), safe="")
        answer = self._get(f"/schema-registry/v1/subject/{subject}/recordId/{identity}/schema")
        self._check_kind(identity, answer.get("type") or "AVRO")
        # The registry looks up the version in the lower 14 bits, and ignores the rest of the id.
        if answer.get("recordId") not in (None, identity):
            raise UnknownSchemaError(f"the subject has no schema {identity}, only {answer['recordId']}")
        if not isinstance(answer.get("idl"), str):
            raise RegistryError(f"{self.url} answered for the schema {identity} without its text")
        return str(answer["idl"])

    def _descriptor_set(self, text: str, references: list[dict[str, Any]]) -> str:
        """A file of Protobuf with the files that it imports, each in front of those that import it."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        files = descriptor_pb2.FileDescriptorSet()
        seen: set[str] = set()

        def add(text: str, references: list[dict[str, Any]], name: str | None) -> None:
            for reference in references:
                inner = str(reference["name"])
                if inner not in seen:
                    seen.add(inner)
                    subject = urllib.parse.quote(str(reference["subject"]), safe="")
                    answer = self._get(f"/subjects/{subject}/versions/{int(reference['version'])}?format=serialized")
                    add(str(answer.get("schema")), answer.get("references") or [], inner)
            file = files.file.add()
            file.MergeFromString(base64.b64decode(text, validate=True))
            file.name = name or file.name or "body.proto"

        try:
            add(text, references, None)
        except (binascii.Error, DecodeError, KeyError, TypeError, ValueError) as error:
            raise RegistryError(
                f"{self.url} answered with no serialized file of Protobuf ({type(error).__name__})"
            ) from None
        return base64.b64encode(files.SerializeToString(deterministic=True)).decode("ascii")

    def _get(self, path: str) -> dict[str, Any]:
        parts = urllib.parse.urlsplit(self.url)
        base = f"{parts.scheme.removeprefix('rocketmq+')}://{parts.netloc}"
        base += "" if self.is_rocketmq else parts.path.rstrip("/")
        request = urllib.request.Request(base + path, headers={"Accept": "application/json, */*"})
        if credentials := os.environ.get(AUTH_VARIABLE):
            request.add_header("Authorization", "Basic " + base64.b64encode(credentials.encode()).decode())
        why = ""
        for wait_s in (*_WAITS_S, None):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                    answer = json.loads(response.read(_MAX_RESPONSE_BYTES))
                if isinstance(answer, dict):
                    return answer
                why = "no JSON object"
            except urllib.error.HTTPError as error:
                why = _http_error(error)
                if error.code == 404 or "not exist" in why:
                    raise UnknownSchemaError(f"the registry has no such schema ({why})") from None
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, ValueError) as error:
                why = str(getattr(error, "reason", error))
            if wait_s is not None:
                time.sleep(wait_s)
        raise RegistryError(f"the schema registry {base} does not serve {path}: {why}; check it, then run again")


def _http_error(error: urllib.error.HTTPError) -> str:
    """The status and the message of an answer, in one line."""
    try:
        message = json.loads(error.read(4096)).get("message", "")
    except (OSError, ValueError, AttributeError):
        message = ""
    return " ".join(f"HTTP {error.code} {message or error.reason}".split())[:200]


def _indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path to a message: a count and the indexes, in zigzag; a single zero stands for the first message."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= _MAX_INDEXES:
        raise MisfitError("", f"{count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise MisfitError("", "ends in the indexes of a message")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise MisfitError("", "an index of a message has more than 32 bits")
