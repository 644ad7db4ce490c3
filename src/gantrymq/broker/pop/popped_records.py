"""The records that a pop returns: their queue offsets, and those of a retry topic under the name of the popped topic.

Source: PopMessageProcessor.popMsgFromQueue, MessageDecoder.encode.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gantrymq.format.properties import encode_properties
from gantrymq.format.record import (
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH_V1,
    Layout,
    decode_record,
    encode_record,
    read_layout,
)
from gantrymq.model.java import encode_utf8
from gantrymq.model.message import PROPERTY_POP_CK, StoredMessage
from gantrymq.model.receipt_handle import ReceiptHandle

_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20


def queue_offsets(pieces: Iterable[memoryview]) -> list[int]:
    """The queue offset of each record. Each piece contains whole records."""
    offsets = []
    for piece in pieces:
        at = 0
        while at < len(piece):
            offsets.append(_QUEUE_OFFSET.unpack_from(piece, at + _QUEUE_OFFSET_AT)[0])
            at += max(_SIZE.unpack_from(piece, at)[0], _SIZE.size)
    return offsets


def under_topic(pieces: Iterable[memoryview], topic: str, handle: ReceiptHandle) -> Iterator[memoryview]:
    """The records of a retry topic as records of ``topic``, each with its receipt handle in POP_CK.

    A record without room for the handle, or a damaged one, is not changed. ``handle`` has no queue offset; each record
    adds its own.
    """
    raw_topic = encode_utf8(topic)
    for piece in pieces:
        at = 0
        while at < len(piece):
            layout = read_layout(piece, at, len(piece))
            if not isinstance(layout, Layout):
                yield piece[at:]
                break
            message = decode_record(piece, at, layout)
            moved = _moved(message, raw_topic, topic, replace(handle, queue_offset=message.queue_offset))
            yield piece[at : at + layout.size] if moved is None else memoryview(moved)
            at += layout.size


def _moved(message: StoredMessage, raw_topic: bytes, topic: str, handle: ReceiptHandle) -> bytes | None:
    properties = encode_properties({**message.properties, PROPERTY_POP_CK: str(handle)})
    if len(properties) > MAX_PROPERTIES_LENGTH:
        return None
    version = 1 if len(raw_topic) <= MAX_TOPIC_LENGTH_V1 else 2
    return encode_record(replace(message, topic=topic, version=version), raw_topic, properties)
