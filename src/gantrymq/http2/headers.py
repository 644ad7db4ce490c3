"""Header blocks: requests as they are received, responses as they are sent.

HPACK is the library hpack, written in Python: a block of 15 fields takes 50 µs. A client repeats itself, so a reader
keeps the requests of blocks that it has decoded. The obvious key of that cache is the block. It fails: a block refers
to entries of the dynamic table, which other blocks change. A block has the meaning that it had before exactly while the
table is the same. Therefore blocks that change the table are not kept, and each change clears the cache:

| block | table | cache |
|---|---|---|
| the same as before | was not changed since | answers |
| new, adds no entry | is not changed | keeps it |
| adds an entry, or changes the size | is changed | is cleared |

The blocks that a server sends refer to the static table only. So they are constants, and in any order.

Source: RFC 9113, section 8; RFC 7541.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpack import Decoder, Encoder, HPACKError, NeverIndexedHeaderTuple, OversizedHeaderListError

from gantrymq.http2.frames import ConnectionFault, ErrorCode, StreamFault

_MAX_BLOCKS, _MAX_BLOCK_BYTES = 64, 1 << 10
_MAX_TEXTS, _MAX_TEXT_BYTES = 128, 256
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]")  # spaces at the ends are invalid, too, but gRPC's libraries send and take them
_OF_CONNECTIONS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"),
)
_PSEUDO = frozenset((":method", ":scheme", ":path", ":authority"))
_NEEDED = (":method", ":scheme", ":path")
_MAX_LENGTH_DIGITS = 18

Field = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Request:
    """The header of a request. ``fields`` are its regular fields; of a name that comes twice, the last value.

    Fields of bytes, whose names end in ``-bin``, are left out. ``content_length_bytes`` is None if none is declared.
    """

    method: str
    path: str
    fields: dict[str, str]
    content_length_bytes: int | None


class HeaderReader:
    """Decodes the header blocks of one connection, in the order in which they arrive."""

    def __init__(self, max_header_bytes: int) -> None:
        self._decoder = Decoder(max_header_bytes)
        self._requests: dict[bytes, Request] = {}
        self._texts: dict[Field, tuple[str, str]] = {}

    def read_request(self, block: bytes) -> Request:
        """The request of a block.

        Raises ConnectionFault if the block cannot be decoded, StreamFault if it is no request.
        """
        known = self._requests.get(block)
        if known is not None:
            return known
        fields, is_table_same = self._decode(block)
        request = _request_of(self._texts_of(fields))
        if is_table_same and len(block) <= _MAX_BLOCK_BYTES:
            if len(self._requests) >= _MAX_BLOCKS:
                self._requests.clear()
            self._requests[block] = request
        return request

    def read_trailers(self, block: bytes) -> None:
        """Decode a block after the body. Raises as :meth:`read_request` does. The fields mean nothing to gRPC."""
        fields, _ = self._decode(block)
        if any(name[0] == ":" for name, _ in self._texts_of(fields)):
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a pseudo-header field in trailers")

    def skip(self, block: bytes) -> None:
        """Decode a block whose fields are not used: it may change the table. Raises ConnectionFault."""
        self._decode(block)

    def _decode(self, block: bytes) -> tuple[list[Field], bool]:
        """The fields of a block, and whether the table is the same as before. A change of it clears the cache."""
        before = self._table_state()
        try:
            fields: Iterable[Field] = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError as error:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "the header is too long") from error
        except HPACKError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "the header cannot be decoded") from error
        is_table_same = _is_same(before, self._table_state())
        if not is_table_same:
            self._requests.clear()
        return list(fields), is_table_same

    def _texts_of(self, header: list[Field]) -> list[tuple[str, str]]:
        """The fields as text. Raises StreamFault for an invalid one. Those of earlier blocks are not checked again."""
        texts = []
        for field in header:
            text = self._texts.get(field)
            if text is None:
                text = _text(*field)
                if len(field[1]) <= _MAX_TEXT_BYTES:
                    if len(self._texts) >= _MAX_TEXTS:
                        self._texts.clear()
                    self._texts[field] = text
            texts.append(text)
        return texts

    def _table_state(self) -> tuple[int, int, Field | None]:
        """The size of the dynamic table, and its newest entry."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return table.maxsize, len(entries), entries[0] if entries else None


def _is_same(before: tuple[int, int, Field | None], after: tuple[int, int, Field | None]) -> bool:
    """Whether a block has left the table as it was. An added entry is a new object, whatever its text."""
    return before[:2] == after[:2] and before[2] is after[2]


def _text(name: bytes, value: bytes) -> tuple[str, str]:
    """A field as text. Raises StreamFault for one that no HTTP/2 message may have."""
    if not _NAME.fullmatch(name.removeprefix(b":")):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a field name with upper case or invalid characters")
    if _BAD_VALUE.search(value):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a field value with invalid characters")
    if name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a field of connections")
    return name.decode("ascii"), value.decode("utf-8", "replace")


def _request_of(header: list[tuple[str, str]]) -> Request:
    pseudo: dict[str, str] = {}
    fields: dict[str, str] = {}
    has_regular = False
    for name, value in header:
        if name[0] != ":":
            has_regular = True
            if not name.endswith("-bin"):
                fields[name] = value
        elif has_regular or name in pseudo or name not in _PSEUDO:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a pseudo-header field that is unknown, repeated or late")
        else:
            pseudo[name] = value
    if not all(pseudo.get(name) for name in _NEEDED):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a request without :method, :scheme or :path")
    declared = fields.get("content-length")
    if declared is not None and not (
        declared.isascii() and declared.isdecimal() and len(declared) <= _MAX_LENGTH_DIGITS
    ):
        raise StreamFault(ErrorCode.PROTOCOL_ERROR, "content-length is no number")
    return Request(
        pseudo[":method"],
        pseudo[":path"],
        fields,
        None if declared is None else int(declared),
    )


def encode(*fields: tuple[str, str]) -> bytes:
    """A header block that leaves the client's dynamic table as it is."""
    block: bytes = Encoder().encode([NeverIndexedHeaderTuple(name, value) for name, value in fields])
    return block
