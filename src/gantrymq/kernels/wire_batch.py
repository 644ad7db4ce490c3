"""Makes records of the log from batches of messages in wire format.

A message in wire format is ``size 4 | magic 4 | CRC 4 | flag 4 | body length 4, body | properties length 2,
properties``. Magic and CRC are ignored.

Source: MessageDecoder.encodeMessage, MessageExtEncoder.encode(MessageExtBatch).
"""

import numpy as np

from gantrymq.format.record import MAX_PROPERTIES_LENGTH, PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import STOP_DONE, STOP_HALF, STOP_LENGTH, STOP_ZEROS
from gantrymq.kernels.crc import crc_of
from gantrymq.kernels.intrinsics import copy, load_i16, load_i32, store_i32, store_i64
from gantrymq.kernels.jit import kernel

WIRE_HEAD_SIZE = 20
PROPERTIES_LENGTH_SIZE = 2
_FLAG_AT, _BODY_LENGTH_AT = 12, 16
_CRC_OF_RECORD_AT, _FLAG_OF_RECORD_AT = 8, 16
_CRC_MASK = 0x7FFFFFFF
_U16, _U32 = 0xFFFF, 0xFFFFFFFF


@kernel
def measure_wire_batch(wire: Bytes) -> tuple[int, int, int]:
    """Return (messages, stop code, stop position). STOP_DONE means that ``wire`` consists of whole messages.

    STOP_ZEROS means the same, but some properties contain a zero byte, and the caller must check them. STOP_HALF: the
    rest is shorter than the shortest message. STOP_LENGTH: the lengths of the next message do not fit each other.
    """
    position, count, code = 0, 0, STOP_DONE
    while position < wire.size:
        if wire.size - position < WIRE_HEAD_SIZE + PROPERTIES_LENGTH_SIZE:
            return count, STOP_HALF, position
        end = position + (load_i32(wire, position) & _U32)
        body_length = load_i32(wire, position + _BODY_LENGTH_AT) & _U32
        body_end = position + WIRE_HEAD_SIZE + body_length
        if end > wire.size or body_end + PROPERTIES_LENGTH_SIZE > end:
            return count, STOP_LENGTH, position
        properties = load_i16(wire, body_end) & _U16
        if body_end + PROPERTIES_LENGTH_SIZE + properties != end or properties > MAX_PROPERTIES_LENGTH:
            return count, STOP_LENGTH, position
        for i in range(body_end + PROPERTIES_LENGTH_SIZE, end):
            if wire[i] == 0:
                code = STOP_ZEROS
        position, count = end, count + 1
    return count, code, position


@kernel
def encode_wire_batch(
    out: Bytes,
    position: int,
    base_offset: int,
    wire: Bytes,
    head: Bytes,
    topic: Bytes,
    queue_offset: int,
    places: Int64s,
) -> int:
    """Write the messages of ``wire`` as records to ``out`` from ``position`` on. Returns their end.

    ``wire`` was measured: it has as many whole messages as ``places`` (int64) has elements. ``places`` gets the
    physical offsets of the records. ``out`` (writable) begins at physical offset ``base_offset`` and has room. ``head``
    is the part of a record before the length of the body; size, CRC, flag and both offsets in it are set for each
    record. ``topic`` is the part after the body: the topic with its length.
    """
    at = 0
    for i in range(places.size):
        end = at + (load_i32(wire, at) & _U32)
        body_at = at + WIRE_HEAD_SIZE
        body_end = body_at + (load_i32(wire, at + _BODY_LENGTH_AT) & _U32)
        body_bytes, properties_bytes = body_end - body_at + 4, end - body_end  # both include their length field
        size = head.size + body_bytes + topic.size + properties_bytes
        copy(out, position, head, 0, head.size)
        store_i32(out, position, size)
        store_i32(out, position + _CRC_OF_RECORD_AT, np.int64(crc_of(wire, body_at, body_end)) & _CRC_MASK)
        store_i32(out, position + _FLAG_OF_RECORD_AT, load_i32(wire, at + _FLAG_AT))
        store_i64(out, position + QUEUE_OFFSET_AT, queue_offset + i)
        store_i64(out, position + PHY_OFFSET_AT, base_offset + position)
        places[i] = base_offset + position
        behind = position + head.size
        copy(out, behind, wire, body_at - 4, body_bytes)
        copy(out, behind + body_bytes, topic, 0, topic.size)
        copy(out, behind + body_bytes + topic.size, wire, body_end, properties_bytes)
        position += size
        at = end
    return int(position)
