"""The input of ``ingest``: lines as they come in, and the message that a line means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Annotated

import msgspec

from gantrymq.model.message import Message

_READ_BYTES = 1 << 20
_TOO_LONG = b"\0"  # stands for a line whose bytes were not kept; no JSON begins with it


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One line's object. A field that is null counts as absent."""

    topic: str
    body: str | None = None
    body_base64: bytes | None = None
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)] | None = None
    tags: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    delay_level: Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)] | None = None


_decoder = msgspec.json.Decoder(_Line)


def read_message(line: bytes) -> Message:
    """The message that ``line`` means; raises ValueError, whose text says what is wrong with it."""
    if line.startswith(_TOO_LONG):
        raise ValueError("the line is too long for any message")
    if not line or line.isspace():
        raise ValueError("the line is empty")
    given = _decoder.decode(line)
    if given.body_base64 is not None:
        body = given.body_base64
        if given.body is not None:
            raise ValueError("body and bodyBase64 exclude each other")
    elif given.body is not None:
        body = given.body.encode()
    else:
        raise ValueError("either body or bodyBase64 must be there")
    return Message(
        given.topic,
        body,
        given.queue_id or 0,
        given.tags or "",
        given.keys or (),
        given.properties or {},
        given.delay_level or 0,
    )


def read_lines(stream: BufferedReader, longest: int, waiting: Callable[[bool], None]) -> Iterator[list[bytes]]:
    """The lines of ``stream`` in lists: whatever has come in, without waiting for more.

    ``waiting(True)`` is called before each wait for input and ``waiting(False)`` behind it. Of a line longer than
    ``longest`` bytes nothing is kept, so that input without an end takes no memory without an end.
    """
    begin: list[bytes] = []
    length = 0
    while True:
        waiting(True)
        data = stream.read1(_READ_BYTES)
        waiting(False)
        if not data:
            break
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            yield b"".join([*begin, head]).split(b"\n")
            begin, length = [], 0
        length += len(tail)
        if length > longest:
            begin = [_TOO_LONG]
        elif tail:
            begin.append(tail)
    if begin:
        yield [b"".join(begin)]
