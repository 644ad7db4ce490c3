"""Output for programs: one JSON object a line on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType

import orjson

_FLUSH_AT_BYTES = 1 << 18


class JsonLines:
    """Writes lines in large pieces; :meth:`flush` hands over what has gathered, as does leaving the context."""

    def __init__(self) -> None:
        self._stream = sys.stdout.buffer
        self._lines: list[bytes] = []
        self._waiting = 0

    def write(self, fields: Mapping[str, object]) -> None:
        """One object. Raises BrokenPipeError where nobody reads any more."""
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= _FLUSH_AT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything over to whoever reads stdout."""
        lines, self._lines, self._waiting = self._lines, [], 0
        rest = memoryview(b"".join(lines))
        while rest:
            # With PYTHONUNBUFFERED this is the bare descriptor, and a signal may end a write half-way.
            rest = rest[self._stream.write(rest) :]
        self._stream.flush()

    def __enter__(self) -> JsonLines:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush, also what was found before an error; not into a pipe that broke."""
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.flush()
