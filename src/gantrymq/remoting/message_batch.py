"""The body of SEND_BATCH_MESSAGE: messages one after the other.

Each is ``size 4 | magic 4 | CRC 4 | flag 4 | body length 4 | body | properties length 2 | properties``. Magic and CRC
are 0 and are not read.

Source: MessageDecoder.encodeMessages and decodeMessage, and the broker's MessageExtEncoder for batches.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from gantrymq.errors import RemotingCommandError

_HEAD = struct.Struct(">IIIiI")
_U16 = struct.Struct(">H")
MAX_PROPERTIES_LENGTH = 0x7FFF
BATCHED_BYTES = _HEAD.size + _U16.size  # what a message of a batch has beside its body and properties


class BatchedMessage(NamedTuple):
    """One message of a batch. ``properties`` is in the stored format."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """Encode the body of a batch. Raises RemotingCommandError if the properties of a message are too long."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > MAX_PROPERTIES_LENGTH:
            raise RemotingCommandError(f"properties of {len(properties)} bytes; {MAX_PROPERTIES_LENGTH} are allowed")
        size = _HEAD.size + len(body) + _U16.size + len(properties)
        parts += (_HEAD.pack(size, 0, 0, flag, len(body)), body, _U16.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(raw: bytes) -> list[BatchedMessage]:
    """Decode the messages of a batch. Raises RemotingCommandError if a length is invalid."""
    messages = []
    position, end = 0, len(raw)
    while position < end:
        if end - position < _HEAD.size + _U16.size:
            raise RemotingCommandError(f"a batch of {end} bytes ends within a message")
        size, _, _, flag, body_length = _HEAD.unpack_from(raw, position)
        body_at = position + _HEAD.size
        properties_at = body_at + body_length + _U16.size
        if position + size > end or properties_at > position + size:
            raise RemotingCommandError(f"a message of {size} bytes with a body of {body_length} in a batch of {end}")
        (properties_length,) = _U16.unpack_from(raw, properties_at - _U16.size)
        if properties_at + properties_length != position + size:
            raise RemotingCommandError(f"a message of {size} bytes with properties of {properties_length}")
        body = raw[body_at : body_at + body_length]
        messages.append(BatchedMessage(flag, body, raw[properties_at : position + size]))
        position += size
    return messages
