"""Header blocks: requests as they are received, responses as they are sent.

The obvious decoder is hpack's. It fails: it makes and checks each field again, so a block of 16 fields takes 60 µs. A
cache of blocks does not help, because the SDK for Java puts the id and the deadline of each call into the dynamic
table, so that no block comes twice. Here a field is checked and becomes text when it is received as text. An index of
a table is then one look-up, and the block takes 16 µs. Huffman's code and the encoder are hpack's.

The blocks that a server sends refer to the static table only. So they are constants, and in any order.

Source: RFC 9113, section 8; RFC 7541.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hpack import Encoder, HPACKDecodingError, NeverIndexedHeaderTuple
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from gantrymq.http2.frames import ConnectionFault, ErrorCode, StreamFault

_MAX_TABLE_BYTES = 4096  # the default of SETTINGS_HEADER_TABLE_SIZE, which is not changed here
_OVERHEAD_BYTES = 32  # of a field, besides its name and its value (RFC 7541, 4.1)
_MAX_SHIFT = 28
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]")  # spaces at the ends are invalid, too, but gRPC's libraries send and take them
_OF_CONNECTIONS = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_NEEDED = (":method", ":scheme", ":path")
_PSEUDO = frozenset((b":authority", *(name.encode() for name in _NEEDED)))
_MAX_LENGTH_DIGITS = 18


class Request(NamedTuple):
    """The header of a request. ``fields`` are its regular fields; of a name that comes twice, the last value.

    ``content_length_bytes`` is None if none is declared.
    """

    method: str
    path: str
    fields: dict[str, str]
    content_length_bytes: int | None


class _Field(NamedTuple):
    """A field that is checked. ``wrong`` says why no HTTP/2 message may have it."""

    raw_name: bytes
    name: str
    value: str
    size_bytes: int
    is_pseudo: bool
    wrong: str


def _checked(name: bytes, value: bytes) -> _Field:
    wrong, is_pseudo = "", name.startswith(b":")
    if not _NAME.fullmatch(name):
        wrong = "a field name with upper case or invalid characters"
    elif _BAD_VALUE.search(value):
        wrong = "a field value with invalid characters"
    elif name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
        wrong = "a field of connections"
    elif is_pseudo and name not in _PSEUDO:
        wrong = "a pseudo-header field that is unknown"
    size_bytes = _OVERHEAD_BYTES + len(name) + len(value)
    return _Field(name, name.decode("latin-1"), value.decode("utf-8", "replace"), size_bytes, is_pseudo, wrong)


_STATIC = tuple(_checked(name, value) for name, value in HeaderTable.STATIC_TABLE)
_STATIC_COUNT = len(_STATIC)


class HeaderReader:
    """Decodes the header blocks of one connection, in the order in which they arrive."""

    def __init__(self, max_header_bytes: int) -> None:
        self._max_header_bytes = max_header_bytes
        self._entries: list[_Field] = []  # the dynamic table, the newest entry last
        self._table_bytes, self._max_table_bytes = 0, _MAX_TABLE_BYTES

    def read_request(self, block: bytes) -> Request:
        """The request of a block.

        Raises ConnectionFault if the block cannot be decoded, StreamFault if it is no request.
        """
        return _request_of(self._decode(block))

    def read_trailers(self, block: bytes) -> None:
        """Decode a block after the body. Raises as :meth:`read_request` does. The fields mean nothing to gRPC."""
        for field in self._decode(block):
            if field.wrong or field.is_pseudo:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, field.wrong or "a pseudo-header field in trailers")

    def skip(self, block: bytes) -> None:
        """Decode a block whose fields are not used: it may change the table. Raises ConnectionFault."""
        self._decode(block)

    def _decode(self, block: bytes) -> list[_Field]:
        try:
            return self._fields(block)
        except (IndexError, HPACKDecodingError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "the header cannot be decoded") from error

    def _fields(self, block: bytes) -> list[_Field]:
        fields: list[_Field] = []
        left_bytes, position, end = self._max_header_bytes, 0, len(block)
        while position < end:
            first = block[position]
            if first >= 0x80:
                if first < 0xFF:
                    index, position = first & 0x7F, position + 1
                else:
                    index, position = _integer(block, position, 0x7F)
                field = self._field(index)
            elif first >= 0x40:
                field, position = self._literal(block, position, 0x3F)
                self._entries.append(field)
                self._table_bytes += field.size_bytes
                self._evict()
            elif first >= 0x20:
                size_bytes, position = _integer(block, position, 0x1F)
                if fields or size_bytes > _MAX_TABLE_BYTES:
                    raise HPACKDecodingError("the table's size is too large, or changed after a field")
                self._max_table_bytes = size_bytes
                self._evict()
                continue
            else:
                field, position = self._literal(block, position, 0x0F)
            fields.append(field)
            left_bytes -= field.size_bytes
            if left_bytes < 0:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "the header is too long")
        return fields

    def _field(self, index: int) -> _Field:
        """The field with an index of both tables. Raises IndexError."""
        if index > _STATIC_COUNT:
            return self._entries[_STATIC_COUNT - index]
        if not index:
            raise IndexError
        return _STATIC[index - 1]

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[_Field, int]:
        """The field whose value is at ``block[position:]``, and maybe its name, and the position behind it."""
        index, position = _integer(block, position, mask)
        if index:
            name = self._field(index).raw_name
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        return _checked(name, value), position

    def _evict(self) -> None:
        while self._table_bytes > self._max_table_bytes:
            self._table_bytes -= self._entries.pop(0).size_bytes


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """An integer in the lower bits of a byte and the bytes after it, and the position behind it. Raises IndexError."""
    number = block[position] & mask
    position += 1
    if number < mask:
        return number, position
    for shift in range(0, _MAX_SHIFT + 1, 7):
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise HPACKDecodingError("an integer of too many bytes")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    length, begin = _integer(block, position, 0x7F)
    end = begin + length
    if end > len(block):
        raise HPACKDecodingError("a string ends behind its block")
    raw = block[begin:end]
    return decode_huffman(raw) if block[position] & 0x80 else raw, end


def _request_of(header: list[_Field]) -> Request:
    pseudo: dict[str, str] = {}
    fields: dict[str, str] = {}
    has_regular = False
    for _, name, value, _, is_pseudo, wrong in header:
        if wrong:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, wrong)
        if not is_pseudo:
            has_regular = True
            fields[name] = value
        elif has_regular or name in pseudo:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a pseudo-header field that is repeated or late")
        else:
            pseudo[name] = value
    if not all(map(pseudo.get, _NEEDED)):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a request without :method, :scheme or :path")
    declared = fields.get("content-length")
    if declared is not None and not (
        declared.isascii() and declared.isdecimal() and len(declared) <= _MAX_LENGTH_DIGITS
    ):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "content-length is no number")
    length_bytes = None if declared is None else int(declared)
    return Request(pseudo[":method"], pseudo[":path"], fields, length_bytes)


def encode(*fields: tuple[str, str]) -> bytes:
    """A header block that leaves the client's dynamic table as it is."""
    block: bytes = Encoder().encode([NeverIndexedHeaderTuple(name, value) for name, value in fields])
    return block
