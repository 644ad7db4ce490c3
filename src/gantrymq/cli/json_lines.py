"""Output for programs: one JSON object per line on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import orjson

_FLUSH_AT_BYTES = 1 << 18


def json_line(fields: Mapping[str, object]) -> bytes:
    r"""One object as a line. A byte of a file name that is not UTF-8 is written as ``\xe9``."""
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # such names are rare, so the normal path does not check for them
        return orjson.dumps(_with_utf8(fields), option=orjson.OPT_APPEND_NEWLINE)


def _with_utf8(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        case Mapping():
            return {_with_utf8(name): _with_utf8(item) for name, item in value.items()}
        case list() | tuple():
            return [_with_utf8(item) for item in value]
    return value


class StdoutPieces:
    """Writes bytes to stdout in large pieces. :meth:`flush` writes what is buffered, as does leaving the context."""

    def __init__(self) -> None:
        self._stream = sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._waiting = 0

    def write_piece(self, piece: bytes) -> None:
        """Write bytes as they are. Raises BrokenPipeError if the reader of stdout is gone."""
        self._pieces.append(piece)
        self._waiting += len(piece)
        if self._waiting >= _FLUSH_AT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything that is buffered to stdout."""
        pieces, self._pieces, self._waiting = self._pieces, [], 0
        rest = memoryview(b"".join(pieces))
        while rest:
            # With PYTHONUNBUFFERED the stream is the bare descriptor, whose write may be partial after a signal.
            rest = rest[self._stream.write(rest) :]
        self._stream.flush()

    def __enter__(self) -> Self:
        """Return this writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, also after an error; but not after a broken pipe."""
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.flush()


class JsonLines(StdoutPieces):
    """Writes JSON objects to stdout, one a line."""

    def write(self, fields: Mapping[str, object]) -> None:
        """Write one object. Raises BrokenPipeError if the reader of stdout is gone."""
        self.write_piece(json_line(fields))
