"""Frames of HTTP/2: types, flags, error codes, and the bytes of those that a server sends.

Source: RFC 9113, sections 4, 6 and 7.
"""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = struct.Struct(">HBBBL")  # the length in two parts, the type, the flags, the stream
HEAD_BYTES = HEAD.size
MAX_FRAME_BYTES = 16_384  # of a received frame: the default of SETTINGS_MAX_FRAME_SIZE, which is not raised here
MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_WINDOW_BYTES = 65_535
STREAM_MASK = 2**31 - 1

# Flags are plain numbers: an operation of enum.IntFlag takes 2 µs, and each frame has several.
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_WORD = struct.Struct(">L")
_SETTING = struct.Struct(">HL")


class FrameType(IntEnum):
    """The types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """The identifiers of settings."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """The codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ProtocolFault(Exception):
    """A client breaks the protocol or a limit. ``code`` is the code of the frame that tells it."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code, self.reason = code, reason


class ConnectionFault(ProtocolFault):
    """The connection ends with GOAWAY."""


class StreamFault(ProtocolFault):
    """One stream ends with RST_STREAM."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """The bytes of a frame."""
    length = len(payload)
    return b"".join((HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id), payload))


def settings(values: dict[Setting, int]) -> bytes:
    """The bytes of a SETTINGS frame."""
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """The identifiers and values of a SETTINGS frame. Raises ConnectionFault for a part of a setting."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS with a part of a setting")
    return list(_SETTING.iter_unpack(payload))


def window_update(stream_id: int, increment_bytes: int) -> bytes:
    """The bytes of a WINDOW_UPDATE frame."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, _WORD.pack(increment_bytes))


def rst_stream(stream_id: int, code: int) -> bytes:
    """The bytes of a RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream_id, _WORD.pack(code))


def goaway(last_stream_id: int, code: int, reason: str) -> bytes:
    """The bytes of a GOAWAY frame."""
    return frame(FrameType.GOAWAY, 0, 0, _WORD.pack(last_stream_id) + _WORD.pack(code) + reason.encode()[:256])


def read_word(payload: bytes, begin: int = 0) -> int:
    """The 32-bit number at ``begin``. The caller has checked the length."""
    number: int = _WORD.unpack_from(payload, begin)[0]
    return number


def without_padding(payload: bytes, flags: int) -> bytes:
    """The content of a DATA or HEADERS frame. Raises ConnectionFault if the padding is longer than the frame."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
