"""Messages in the bodies of HTTP/2 requests, and the statuses of calls.

Five bytes precede a message: whether it is compressed, and its length. A client that sends slowly leaves messages
unfinished, so their sizes are bounded. The obvious bound is the window of a stream. It fails: a window of 64 KiB delays
each large message by a round trip for each 64 KiB, and one of 32 MiB lets each of 4,096 streams hold as much. So the
window is small, and :class:`Grants` extends it to the length of a message that has begun, from a budget of the
connection. Messages beyond the budget wait for earlier ones.

Source: doc/PROTOCOL-HTTP2.md and doc/compression.md of gRPC.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from urllib.parse import quote

from gantrymq.http2.headers import encode

_PREFIX = struct.Struct(">BL")
_WBITS = {"gzip": 31, "deflate": 15}
IDENTITY = "identity"
ENCODINGS = (IDENTITY, *_WBITS)
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])", re.ASCII)
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TEXT = 1_024
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

_ACCEPTED = ("grpc-accept-encoding", ",".join(ENCODINGS))
_BEGIN = ((":status", "200"), ("content-type", "application/grpc"), _ACCEPTED)
BEGIN = encode(*_BEGIN)
SUCCESS = encode(("grpc-status", "0"))


class GrpcStatus(IntEnum):
    """The statuses that this server sends."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallAborted(Exception):
    """A call ends with this status."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def trailers(status: GrpcStatus, text: str, *, is_only: bool) -> bytes:
    """The header block that ends a call. With ``is_only`` it is the whole response."""
    fields = ("grpc-status", str(int(status))), ("grpc-message", quote(text[:_MAX_TEXT], safe=_PRINTABLE))
    return encode(*_BEGIN, *fields) if is_only else encode(*fields)


def refusal(http_status: int) -> bytes:
    """The header block of a response to a request that is not gRPC."""
    return encode((":status", str(http_status)), ("content-type", "text/plain"))


def prefixed(message: bytes) -> bytes:
    """A message as it is sent: not compressed."""
    return _PREFIX.pack(0, len(message)) + message


def timeout_s(text: str) -> float | None:
    """The seconds of ``grpc-timeout``. None without a deadline, or if the text is none."""
    parsed = _TIMEOUT.fullmatch(text)
    return None if parsed is None else int(parsed[1]) * _UNITS_S[parsed[2]]


class Inbox:
    """The received body of one call. Whole messages stay as bytes until they are read, so that its size is its cost."""

    __slots__ = ("_body", "_encoding", "_max_bytes")

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._encoding, self._max_bytes = encoding, max_bytes
        self._body = bytearray()

    def __len__(self) -> int:
        """The size in bytes."""
        return len(self._body)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._body += data

    def missing_bytes(self) -> int:
        """How much of the next message has not come; 0 if that is unknown.

        Raises CallAborted if the message is longer than allowed.
        """
        if len(self._body) < _PREFIX.size:
            return 0
        length: int = _PREFIX.unpack_from(self._body)[1]
        if length > self._max_bytes:
            text = f"gRPC message exceeds maximum size {self._max_bytes}: {length}"  # gRPC's text in Java
            raise CallAborted(GrpcStatus.RESOURCE_EXHAUSTED, text)
        return max(_PREFIX.size + length - len(self._body), 0)

    def next(self) -> bytes | None:
        """Remove the next message; None if it has not come whole. Raises CallAborted if it cannot be decoded."""
        if len(self._body) < _PREFIX.size or self.missing_bytes():
            return None
        flag, length = _PREFIX.unpack_from(self._body)
        end = _PREFIX.size + length
        message = bytes(self._body[_PREFIX.size : end])
        del self._body[:end]
        return self._decompressed(message) if flag else message

    def _decompressed(self, message: bytes) -> bytes:
        if self._encoding == IDENTITY:
            raise CallAborted(GrpcStatus.INTERNAL, "a compressed message without grpc-encoding")
        reader = zlib.decompressobj(_WBITS[self._encoding])
        try:
            plain = reader.decompress(message, self._max_bytes + 1)
        except zlib.error:
            raise CallAborted(GrpcStatus.INTERNAL, f"a message is not {self._encoding}") from None
        if len(plain) > self._max_bytes:
            raise CallAborted(GrpcStatus.RESOURCE_EXHAUSTED, f"Decompressed gRPC message exceeds {self._max_bytes}")
        if not reader.eof:
            raise CallAborted(GrpcStatus.INTERNAL, f"a part of a {self._encoding} message")
        return plain


class Grants:
    """What the streams of a connection may send beyond their windows, ``max_bytes`` in all."""

    def __init__(self, max_bytes: int) -> None:
        self._free_bytes = max_bytes
        self._waiting: dict[int, int] = {}
        self._granted: dict[int, int] = {}

    def request(self, stream_id: int, size_bytes: int) -> Iterator[tuple[int, int]]:
        """Ask for a stream. Yields the streams whose windows are to be opened now, and by how much."""
        self._waiting[stream_id] = size_bytes
        return self._grant()

    def release(self, stream_id: int) -> Iterator[tuple[int, int]]:
        """End the grants of a stream. Yields as :meth:`request` does."""
        self._waiting.pop(stream_id, None)
        self._free_bytes += self._granted.pop(stream_id, 0)
        return self._grant()

    def _grant(self) -> Iterator[tuple[int, int]]:
        while self._waiting:
            stream_id, size_bytes = next(iter(self._waiting.items()))
            if size_bytes > self._free_bytes:
                return
            del self._waiting[stream_id]
            self._free_bytes -= size_bytes
            self._granted[stream_id] = self._granted.get(stream_id, 0) + size_bytes
            yield stream_id, size_bytes
