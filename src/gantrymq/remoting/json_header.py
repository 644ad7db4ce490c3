"""The JSON form of a frame's header: an object with RocketMQ's names, in which extFields is an object of texts.

Headers of other clients are read as fastjson does: numbers and booleans in extFields become texts, keys may have no
quotes, strings may contain control characters. A standard header is decoded straight into the struct.

Source: RemotingCommand, RemotingSerializable.
"""

import json
from typing import Any

import msgspec
import orjson
from msgspec import Raw, Struct

from gantrymq.errors import RemotingCommandError
from gantrymq.model import fastjson
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.remoting.binary_header import MAX_EXT_FIELDS
from gantrymq.remoting.codes import LanguageCode
from gantrymq.remoting.header import Int

LANGUAGES = {code.name: int(code) for code in LanguageCode}
LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}


class JsonHeader(Struct, rename="camel", gc=False):
    """A header as it is in the frame. ``ext_fields`` is not decoded."""

    code: Int = 0
    language: str | None = "JAVA"
    version: Int = 0
    opaque: Int = 0
    flag: Int = 0
    remark: str | None = None
    ext_fields: Raw = Raw(b"")


_decode = msgspec.json.Decoder(JsonHeader).decode
_decode_texts = msgspec.json.Decoder(dict[str, str] | None).decode
MAX_LENIENT_BYTES = 64 * 1024  # limit for a nonstandard header, which needs a slow decoder
_NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_json_header(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, ext_fields: dict[str, str]
) -> bytes:
    """Encode a header in the JSON form."""
    value: dict[str, Any] = {
        "code": code,
        "flag": flag,
        "language": LANGUAGE_NAMES.get(language, "OTHER"),
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if ext_fields:
        value["extFields"] = ext_fields
    if remark is not None:
        value["remark"] = remark
    try:
        return orjson.dumps(value)
    except TypeError:  # an unpaired surrogate, which Java writes as a question mark
        return encode_utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def decode_json_header(raw: bytes) -> JsonHeader:
    """Decode a header. Raises RemotingCommandError unless ``raw`` is a JSON object with valid numbers."""
    try:
        return _decode(raw)
    except _NOT_JSON:
        return _decode_leniently(raw)


def decode_json_ext_fields(raw: Raw | bytes) -> dict[str, str]:
    """The extFields as texts. Fields that are null are left out."""
    try:
        fields = _decode_texts(raw) or {}
    except _NOT_JSON:
        return _texts(_loads(bytes(raw)))
    _check_count(fields)
    return fields


def _decode_leniently(raw: bytes) -> JsonHeader:
    value = _loads(raw)
    if not isinstance(value, dict):
        raise RemotingCommandError("the header is JSON, but no object")
    fields = value.pop("extFields", None)
    try:
        header = msgspec.convert(
            {name: one for name, one in value.items() if one is not None}, JsonHeader, strict=False
        )
    except msgspec.MsgspecError as error:
        raise RemotingCommandError(f"the header is JSON, but no command: {error}") from error
    header.ext_fields = Raw(json.dumps(_texts(fields)).encode())
    return header


def _loads(raw: bytes) -> Any:
    if len(raw) > MAX_LENIENT_BYTES:
        raise RemotingCommandError(f"the header of {len(raw)} bytes is no JSON object of texts")
    try:
        return fastjson.loads(decode_utf8(raw))
    except ValueError as error:
        raise RemotingCommandError(f"the header is no JSON: {error}") from error


def _texts(fields: Any) -> dict[str, str]:
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise RemotingCommandError("the header's extFields are no object")
    _check_count(fields)
    return {key: _text(value) for key, value in fields.items() if value is not None}


def _check_count(fields: dict[str, Any]) -> None:
    if len(fields) > MAX_EXT_FIELDS:
        raise RemotingCommandError(f"the header has {len(fields)} extFields, more than {MAX_EXT_FIELDS}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
