"""The properties of a record, and the CRC property that may be the last one.

========================  ==================================================================
bytes                     meaning
========================  ==================================================================
name, 0x01, value, 0x02   repeated; the last 0x02 may be missing (4.9.8 never writes it)
========================  ==================================================================

With ``enabledAppendPropCRC`` the last 20 bytes are one more property, ``__CRC32#`` 0x01, ten decimal digits with the
least significant first, 0x02; its number covers every byte of the record before them.

Source: MessageDecoder.string2messageProperties, messageProperties2String and createCrc32.
"""

from collections.abc import Mapping

from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.model.message import PROPERTY_CRC32

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
_SEPARATORS = b"\x01\x02"
CRC_PROPERTY_SIZE = 20
_CRC_DIGITS = 10


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of ``properties`` in their order, each entry with its trailing separator.

    Raises ValueError if a name or a value contains a separator, because it could not be read back.
    """
    text = ""
    for name, value in properties.items():  # faster than a join
        text += f"{name}\x01{value}\x02"
    encoded = encode_utf8(text)
    if len(encoded) - len(encoded.translate(None, _SEPARATORS)) != 2 * len(properties):
        _refuse_separators(properties)
    return encoded


def _refuse_separators(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name or PROPERTY_SEPARATOR in value:
            raise ValueError(f"property {name!r} holds a separator (0x01 or 0x02)")


def decode_properties(raw: bytes) -> dict[str, str]:
    """Decode properties from :func:`encode_properties` or from Java.

    As in Java an entry with an empty name or an empty value is dropped, and the last entry of a name wins.
    """
    entries = [entry.partition(NAME_VALUE_SEPARATOR) for entry in decode_utf8(raw).split(PROPERTY_SEPARATOR)]
    return {name: value for name, _, value in entries if name and value}


def encode_crc_property(crc: int) -> bytes:
    """The 20 bytes of the last property of a record whose other bytes have the CRC ``crc`` (31 bits)."""
    digits = f"{crc:0{_CRC_DIGITS}d}"[::-1]
    return f"{PROPERTY_CRC32}{NAME_VALUE_SEPARATOR}{digits}{PROPERTY_SEPARATOR}".encode("ascii")


def decode_crc_property(text: str) -> int:
    """The number in a ``__CRC32#`` property's value; -1 unless it is digits, at most ten without trailing zeros."""
    is_number = text.isascii() and text.isdigit() and not text[_CRC_DIGITS:].strip("0")
    return int(text[:_CRC_DIGITS][::-1]) if is_number else -1
