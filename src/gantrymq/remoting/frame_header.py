"""The two forms of a frame's header: ROCKETMQ, which is binary, and JSON.

======  ==============  =========================================================
bytes   ROCKETMQ field  remark
======  ==============  =========================================================
2       code            signed; a code above 32767 cannot be written in this form
1       language
2       version
4       opaque
4       flag
4, n    remark          UTF-8; no remark has length 0
4, n    extFields       entries of ``key length 2 | key | value length 4 | value``
======  ==============  =========================================================

An empty value is read as no value, as RocketMQ does. Every length is checked before it is used.

The JSON form is an object with RocketMQ's names, in which extFields is an object of texts. Headers of other clients are
read as fastjson does: numbers and booleans in extFields become texts, keys may have no quotes, strings may contain
control characters. A standard header is decoded straight into the struct.

Source: RocketMQSerializable, RemotingCommand, RemotingSerializable.
"""

import json
import struct
from typing import Any

import msgspec
import orjson
from msgspec import Raw, Struct

from gantrymq.errors import RemotingCommandError
from gantrymq.model import fastjson
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.remoting.codes import LanguageCode
from gantrymq.remoting.header import Int

MAX_CODE = 0x7FFF
MAX_EXT_FIELDS = 4096  # more than any header has; bounds the work that one request can cause

_FIXED = struct.Struct(">hBhiii")
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_unpack_u32 = _U32.unpack_from
MAX_LENIENT_BYTES = 64 * 1024  # limit for a nonstandard header, which needs a slow decoder
_NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_binary_header(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, ext_fields: dict[str, str]
) -> bytes:
    """Encode a header in the ROCKETMQ form."""
    remark_bytes = encode_utf8(remark) if remark else b""
    fields = encode_ext_fields(ext_fields)
    return b"".join(
        (
            _FIXED.pack(code, language, version, opaque, flag, len(remark_bytes)),
            remark_bytes,
            _U32.pack(len(fields)),
            fields,
        )
    )


def encode_ext_fields(fields: dict[str, str]) -> bytes:
    """Encode the entries of a map."""
    parts: list[bytes] = []
    for key, value in fields.items():
        raw_key, raw_value = encode_utf8(key), encode_utf8(value)
        parts += (_U16.pack(len(raw_key)), raw_key, _U32.pack(len(raw_value)), raw_value)
    return b"".join(parts)


def decode_binary_header(header: bytes) -> tuple[int, int, int, int, int, str | None, bytes]:
    """(code, language, version, opaque, flag, remark, the undecoded entries of extFields).

    Raises RemotingCommandError if a length points outside the header.
    """
    size = len(header)
    if size < _FIXED.size + 4:
        raise RemotingCommandError(f"a header of {size} bytes is too short")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    remark_end = _FIXED.size + remark_length
    if remark_length < 0 or remark_end + 4 > size:
        raise RemotingCommandError(f"a remark of {remark_length} bytes in a header of {size}")
    remark = decode_utf8(header[_FIXED.size : remark_end]) if remark_length else None
    (fields_length,) = _unpack_u32(header, remark_end)
    fields_at = remark_end + 4
    if fields_at + fields_length > size:
        raise RemotingCommandError(f"extFields of {fields_length} bytes in a header of {size}")
    return code, language, version, opaque, flag, remark, header[fields_at : fields_at + fields_length]


def decode_ext_fields(raw: bytes) -> dict[str, str]:
    """Decode the entries of a map. Raises RemotingCommandError if a length points outside ``raw``."""
    fields: dict[str, str] = {}
    text = raw.decode("ascii") if raw.isascii() else None
    position, size = 0, len(raw)
    try:
        while position < size:
            key_end = position + 2 + (raw[position] << 8 | raw[position + 1])
            value_at = key_end + 4
            value_end = value_at + _unpack_u32(raw, key_end)[0]
            if value_end > size or len(fields) > MAX_EXT_FIELDS:
                raise RemotingCommandError(f"extFields of {size} bytes hold a value that ends at {value_end}")
            if value_end > value_at:
                if text is None:
                    fields[decode_utf8(raw[position + 2 : key_end])] = decode_utf8(raw[value_at:value_end])
                else:
                    fields[text[position + 2 : key_end]] = text[value_at:value_end]
            position = value_end
    except (IndexError, struct.error) as error:
        raise RemotingCommandError(f"extFields of {size} bytes end within an entry") from error
    return fields


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
            {name: field_value for name, field_value in value.items() if field_value is not None},
            JsonHeader,
            strict=False,
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
