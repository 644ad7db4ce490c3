"""The ROCKETMQ form of a frame's header.

======  ==============  =========================================================
bytes   field           remark
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

Source: RocketMQSerializable.
"""

import struct

from gantrymq.errors import RemotingCommandError
from gantrymq.model.java import decode_utf8, encode_utf8

MAX_CODE = 0x7FFF
MAX_EXT_FIELDS = 4096  # more than any header has; bounds the work that one request can cause

_FIXED = struct.Struct(">hBhiii")
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_unpack_u32 = _U32.unpack_from


def encode_binary_header(
    code: int, language: int, version: int, opaque: int, flag: int, remark: str | None, ext_fields: dict[str, str]
) -> bytes:
    """Encode a header in the ROCKETMQ form."""
    said = encode_utf8(remark) if remark else b""
    fields = encode_ext_fields(ext_fields)
    return b"".join(
        (_FIXED.pack(code, language, version, opaque, flag, len(said)), said, _U32.pack(len(fields)), fields)
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
