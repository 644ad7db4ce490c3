"""The client's side of HTTP/2 as bytes, for tests of the server: nothing here checks what it sends."""

from __future__ import annotations

from typing import NamedTuple

from hpack import Decoder

from gantrymq.http2 import frames
from gantrymq.http2.frames import END_HEADERS, END_STREAM, HEAD, HEAD_BYTES, FrameType, frame
from gantrymq.http2.headers import encode

GREETING = frames.PREFACE + frames.settings({})
CALL = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/x/Echo"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def read_frames(data: bytes) -> list[Frame]:
    """The frames of a server's bytes, which end with a whole frame."""
    result, position = [], 0
    while position < len(data):
        high, low, kind, flags, stream_id = HEAD.unpack_from(data, position)
        begin = position + HEAD_BYTES
        position = begin + (high << 8 | low)
        result.append(Frame(kind, flags, stream_id, data[begin:position]))
    return result


def block(*extra: tuple[str, str], **changes: str) -> bytes:
    """The header block of a call, which leaves the dynamic table as it is. ``changes`` are of the fields of CALL."""
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    return encode(*((name, changed.get(name.lstrip(":"), value)) for name, value in CALL), *extra)


def headers(stream_id: int, *extra: tuple[str, str], end: bool = False, **changes: str) -> bytes:
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(FrameType.HEADERS, flags, stream_id, block(*extra, **changes))


def data(stream_id: int, body: bytes, *, end: bool = False) -> bytes:
    return frame(FrameType.DATA, END_STREAM if end else 0, stream_id, body)


def message(body: bytes) -> bytes:
    """A message of gRPC that is not compressed."""
    return b"\0" + len(body).to_bytes(4, "big") + body


def fields_of(received: Frame) -> dict[str, str]:
    return dict(Decoder().decode(received.payload))
