"""Format strings of ``consume -f``, as kcat has them, with RocketMQ's parts of a message."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import typer

from gantrymq.cli.streams.escapes import unescape
from gantrymq.cli.streams.sources import Arrived
from gantrymq.model import message as constants
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_UNIQ_KEY, StoredMessage, message_id
from gantrymq.model.texts import escape_controls

# Names of properties that clients and brokers use themselves.
SYSTEM_PROPERTIES = frozenset(
    {value for name, value in vars(constants).items() if name.startswith("PROPERTY_")} | {"MIN_OFFSET", "MAX_OFFSET"}
)
_TOKEN = re.compile(r"%([\s\S]?)")


class Ready(NamedTuple):
    """A message to print, with its decompressed body."""

    arrived: Arrived
    body: bytes


class BodyAs(StrEnum):
    """How %s prints a body."""

    RAW = "raw"
    HEX = "hex"
    BASE64 = "base64"


Piece = Callable[[Ready], bytes]


def _text(read: Callable[[Ready], object]) -> Piece:
    return lambda ready: str(read(ready)).encode("utf-8", "surrogatepass")


def _pairs(ready: Ready, *, own: bool) -> str:
    items = ready.arrived.message.properties.items()
    return ",".join(f"{name}={value}" for name, value in items if not own or name not in SYSTEM_PROPERTIES)


def _unique_id(ready: Ready) -> str:
    message = ready.arrived.message
    return message.properties.get(PROPERTY_UNIQ_KEY) or _offset_id(message)


def _offset_id(message: StoredMessage) -> str:
    """The broker's id; ``msg_id`` of a message that a consumer received is the producer's."""
    return message_id(message.store_host, message.phy_offset)


# Token: what it prints, and what --help says.
TOKENS: dict[str, tuple[Piece, str]] = {
    "t": (_text(lambda ready: ready.arrived.message.topic), "topic"),
    "q": (_text(lambda ready: ready.arrived.message.queue_id), "queue"),
    "o": (_text(lambda ready: ready.arrived.message.queue_offset), "queue offset"),
    "b": (_text(lambda ready: ready.arrived.broker_name), "broker"),
    "k": (_text(lambda ready: ready.arrived.message.properties.get(PROPERTY_KEYS, "")), "keys"),
    "g": (_text(lambda ready: ready.arrived.message.tags), "tag"),
    "s": (lambda ready: ready.body, "body"),
    "S": (_text(lambda ready: len(ready.body)), "size of the body"),
    "R": (lambda ready: len(ready.body).to_bytes(4, "big"), "the size in 4 bytes"),
    "T": (_text(lambda ready: ready.arrived.message.store_timestamp_ms), "store time in ms"),
    "B": (_text(lambda ready: ready.arrived.message.born_timestamp_ms), "born time in ms"),
    "h": (_text(lambda ready: _pairs(ready, own=True)), "the producer's own properties, NAME=VALUE,..."),
    "p": (_text(lambda ready: _pairs(ready, own=False)), "all properties"),
    "i": (_text(_unique_id), "message id"),
    "I": (_text(lambda ready: _offset_id(ready.arrived.message)), "the broker's message id"),
    "P": (_text(lambda ready: ready.arrived.message.phy_offset), "physical offset"),
    "r": (_text(lambda ready: ready.arrived.message.reconsume_times), "reconsume times"),
}
_BODIES: dict[BodyAs, Piece] = {
    BodyAs.RAW: TOKENS["s"][0],
    BodyAs.HEX: lambda ready: ready.body.hex().encode(),
    BodyAs.BASE64: lambda ready: b64encode(ready.body),
}


def compile_format(text: str, body_as: BodyAs, *, to_terminal: bool) -> Piece:
    """A function that prints a message. For a terminal the parts of a message are escaped.

    Raises BadParameter for an unknown token or escape.
    """
    pieces: list[Piece | bytes] = []
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(unescape(text[at : match.start()]))
        pieces.append(_piece(text, match[1], body_as, to_terminal=to_terminal))
        at = match.end()
    pieces.append(unescape(text[at:]))
    pieces = [piece for piece in pieces if piece != b""]
    return lambda ready: b"".join([piece if isinstance(piece, bytes) else piece(ready) for piece in pieces])


def escape_body(body: bytes) -> bytes:
    """The body as text for a terminal: with its line ends and tabs, and a dot for every other control character."""
    text = body.decode("utf-8", "replace")
    if text.isprintable():
        return body if "\ufffd" not in text else text.encode()
    lines = ("\t".join(map(escape_controls, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines).encode()


def _piece(text: str, token: str, body_as: BodyAs, *, to_terminal: bool) -> Piece | bytes:
    if token == "%":
        return b"%"
    if token not in TOKENS:
        raise typer.BadParameter(f"-f {text!r}: %{token} is none of %{' %'.join(TOKENS)} %%")
    piece = _BODIES[body_as] if token == "s" else TOKENS[token][0]
    if not to_terminal:
        return piece
    if token == "s":
        return lambda ready: escape_body(piece(ready))
    return lambda ready: escape_controls(piece(ready).decode("utf-8", "replace")).encode()
