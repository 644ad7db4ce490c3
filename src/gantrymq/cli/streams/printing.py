"""Prints the messages that ``consume`` gets: by a format, or as JSON lines in the shape of ``admin message``."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from gantrymq.cli.json_lines import StdoutPieces, json_line
from gantrymq.cli.streams.formats import Piece, Ready
from gantrymq.cli.streams.sources import Arrived
from gantrymq.cli.terminal import warn
from gantrymq.format.body_text import body_text
from gantrymq.format.packed_body import decompress
from gantrymq.format.record import body_crc
from gantrymq.model.flags import COMPRESSED
from gantrymq.model.message import PROPERTY_UNIQ_KEY, StoredMessage, message_id

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
                warn(f"{_place(message)}: {error}; it is printed as it is stored")
            return message.body

    def _damaged(self, message: StoredMessage) -> None:
        self.damaged += 1
        if self.damaged <= _WARNINGS:
            warn(f"{_place(message)}: the body does not have the CRC of its record")


def is_body_whole(message: StoredMessage) -> bool:
    """Whether the body has the CRC of its record."""
    return not message.body or body_crc(message.body) == message.body_crc


def json_piece(*, to_terminal: bool) -> Piece:
    """A function that prints a message as one JSON object."""
    return _terminal_line if to_terminal else _line


def _line(ready: Ready) -> bytes:
    return json_line(message_fields(ready.arrived, ready.body))


def _terminal_line(ready: Ready) -> bytes:
    return _NOT_FOR_A_TERMINAL.sub(_escaped, _line(ready).decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def message_fields(arrived: Arrived, body: bytes) -> dict[str, object]:
    """A message as JSON, with its decompressed ``body``. One of ``body`` and ``bodyBase64`` is null.

    ``msgId`` is the producer's id and ``offsetMsgId`` the broker's, as in RocketMQ's clients.
    """
    message, broker_name = arrived
    text, offset_id = body_text(body), message_id(message.store_host, message.phy_offset)
    return {
        "kind": "message",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.phy_offset,
        "size": message.size_bytes,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "properties": message.properties,
        "bodyLength": len(message.body),
        "bodySha256": sha256(message.body).hexdigest(),
        "msgId": message.properties.get(PROPERTY_UNIQ_KEY) or offset_id,
        "offsetMsgId": offset_id,
        "crcOk": is_body_whole(message),
        "body": text,
        "bodyBase64": b64encode(body).decode("ascii") if text is None else None,
        "brokerName": broker_name or None,
    }


def _place(message: StoredMessage) -> str:
    return f"{message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
