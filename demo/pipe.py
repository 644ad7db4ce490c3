"""The messages that the writer sends over its pipe, one JSON line each. A kill does not lose a written line.

Times are seconds of the monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import msgspec


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The store is open. The first row to store is ``first_row``."""

    at_s: float
    first_row: int


class Acknowledged(msgspec.Struct, tag="acknowledged", frozen=True):
    """The rows [first_row, end_row) are stored: put_batch returned PUT_OK for them, none was rejected."""

    at_s: float
    first_row: int
    end_row: int
    end_phy_offset: int


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """The last row is stored. The store is still open: the writer waits for a line on its standard input."""

    at_s: float
    end_row: int


class Closed(msgspec.Struct, tag="closed", frozen=True):
    """Everything is dispatched and flushed, the checkpoint is written, and ``abort`` is removed."""

    at_s: float


Word = Ready | Acknowledged | Finished | Closed
_DECODER = msgspec.json.Decoder(Word)
_ENCODER = msgspec.json.Encoder()


def encode(word: Word) -> bytes:
    """Encode a line. It is shorter than PIPE_BUF, so it is written to the pipe atomically."""
    return _ENCODER.encode(word) + b"\n"


def decode(line: bytes) -> Word:
    """Decode a line. Raises msgspec.DecodeError."""
    word: Word = _DECODER.decode(line)
    return word
