"""Prints the messages that ``consume`` gets: by a format, or as JSON lines in the shape of ``admin message``."""

from __future__ import annotations

import re

from gantrymq.cli.json_lines import StdoutPieces, json_line
from gantrymq.cli.streams.formats import Piece, Ready
from gantrymq.cli.streams.sources import Arrived
from gantrymq.cli.terminal import warn
from gantrymq.format.message_json import is_body_whole, message_fields
from gantrymq.format.packed_body import decompress
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import StoredMessage

_WARNINGS = 10
# Characters that are valid in JSON and that a terminal may act on.
_NOT_FOR_A_TERMINAL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Printer:
    """Prints messages with ``line``. ``damaged`` counts bodies that do not have the CRC of their record."""

    def __init__(self, out: StdoutPieces, line: Piece, max_body_bytes: int) -> None:
        self.damaged = self.printed = 0
        self._out, self._line, self._max_body_bytes = out, line, max_body_bytes
        self._packed = 0

    def print(self, arrived: Arrived) -> None:
        """Print one message. Raises BrokenPipeError."""
        if not is_body_whole(arrived.message):
            self._damaged(arrived.message)
        self._out.write_piece(self._line(Ready(arrived, self._body(arrived.message))))
        self.printed += 1

    def flush(self) -> None:
        """Write what was printed to stdout."""
        self._out.flush()

    def _body(self, message: StoredMessage) -> bytes:
        if not message.sys_flag & COMPRESSED:
            return message.body
        try:
            return decompress(message.body, message.sys_flag, self._max_body_bytes)
        except ValueError as error:
            self._packed += 1
            if self._packed <= _WARNINGS:
                warn(f"{_position_text(message)}: {error}; it is printed as it is stored")
            return message.body

    def _damaged(self, message: StoredMessage) -> None:
        self.damaged += 1
        if self.damaged <= _WARNINGS:
            warn(f"{_position_text(message)}: the body does not have the CRC of its record")


def json_piece(*, to_terminal: bool) -> Piece:
    """A function that prints a message as one JSON object."""
    return _terminal_line if to_terminal else _line


def _line(ready: Ready) -> bytes:
    return json_line(message_fields(ready.arrived.message, ready.body, ready.arrived.broker_name))


def _terminal_line(ready: Ready) -> bytes:
    return _NOT_FOR_A_TERMINAL.sub(_escaped, _line(ready).decode()).encode()


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _position_text(message: StoredMessage) -> str:
    return f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
