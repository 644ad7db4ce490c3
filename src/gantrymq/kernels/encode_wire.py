"""Makes records of the log from what arrives on the wire: batches of messages, and plain sends with their responses.

A message of a batch is ``size 4 | magic 4 | CRC 4 | flag 4 | body length 4, body | properties length 2, properties``.
Magic and CRC are ignored. Plain sends are the rows of a matrix of sends (``gantrymq.kernels.send_columns``), which
``read_sends`` fills from their frames.

Source: MessageDecoder.encodeMessage, MessageExtEncoder.encode(MessageExtBatch) and encode,
SendMessageProcessor.handlePutMessageResult.
"""

import numpy as np

from gantrymq.format.record import MAX_PROPERTIES_LENGTH, PHY_OFFSET_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import STOP_DONE, STOP_HALF, STOP_LENGTH, STOP_ZEROS
from gantrymq.kernels.crc import crc_of
from gantrymq.kernels.intrinsics import copy, load_i16, load_i32, store_i16, store_i32, store_i64
from gantrymq.kernels.jit import kernel, rare_helper
from gantrymq.kernels.send_columns import (
    BODY_AT,
    BODY_LENGTH,
    BORN_TIMESTAMP,
    COMMAND_FLAG,
    MESSAGE_FLAG,
    OPAQUE,
    PHY_OFFSET,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SYS_FLAG,
    UNIQUE_AT,
    UNIQUE_LENGTH,
)

WIRE_HEAD_SIZE = 20
PROPERTIES_LENGTH_SIZE = 2
_FLAG_IN_BATCH_AT, _BODY_LENGTH_AT = 12, 16
_CRC_OF_RECORD_AT, _FLAG_OF_RECORD_AT = 8, 16
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
    phy_offsets: Int64s,
) -> int:
    """Write the messages of ``wire`` as records to ``out`` from ``position`` on. Returns their end.

    ``wire`` was measured: it has as many whole messages as ``phy_offsets`` (int64) has elements, and gets the physical
    offsets of the records. ``out`` (writable) begins at physical offset ``base_offset`` and has room. ``head``
    is the part of a record before the length of the body; size, CRC, flag and both offsets in it are set for each
    record. ``topic`` is the part after the body: the topic with its length.
    """
    at = 0
    for i in range(phy_offsets.size):
        end = at + (load_i32(wire, at) & _U32)
        body_at = at + WIRE_HEAD_SIZE
        body_end = body_at + (load_i32(wire, at + _BODY_LENGTH_AT) & _U32)
        body_bytes, properties_bytes = body_end - body_at + 4, end - body_end  # both include their length field
        size = head.size + body_bytes + topic.size + properties_bytes
        copy(out, position, head, 0, head.size)
        store_i32(out, position, size)
        store_i32(out, position + _CRC_OF_RECORD_AT, np.int64(crc_of(wire, body_at, body_end)) & _CRC_MASK)
        store_i32(out, position + _FLAG_OF_RECORD_AT, load_i32(wire, at + _FLAG_IN_BATCH_AT))
        store_i64(out, position + QUEUE_OFFSET_AT, queue_offset + i)
        store_i64(out, position + PHY_OFFSET_AT, base_offset + position)
        phy_offsets[i] = base_offset + position
        behind = position + head.size
        copy(out, behind, wire, body_at - 4, body_bytes)
        copy(out, behind + body_bytes, topic, 0, topic.size)
        copy(out, behind + body_bytes + topic.size, wire, body_end, properties_bytes)
        position += size
        at = end
    return int(position)


_CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _BORN_TIMESTAMP_AT = 8, 12, 16, 40
# the size of that field and of the prepared transaction offset, up to the length of the body
_BEHIND_RECONSUME_TIMES = 12
_CRC_MASK = 0x7FFFFFFF
_ZERO, _A_LESS_TEN, _MINUS = ord("0"), ord("A") - 10, ord("-")
_FIRST, _PHY_OFFSET, _QUEUE, _, _ID = range(5)  # the value after each piece of a response


@kernel
def encode_sends(
    out: Bytes,
    position: int,
    base_offset: int,
    data: Bytes,
    text: Bytes,
    columns: Int64s,
    head: Bytes,
    topic: Bytes,
    marks: Bytes,
    sys_flag_on: int,
    sys_flag_off: int,
    store_timestamp_at: int,
    store_timestamp_ms: int,
    next_offsets: Int64s,
) -> int:
    """Write the sends of ``columns`` (see ``read_sends``) as records to ``out`` from ``position`` on.

    Returns their end.

    ``out`` (writable) begins at physical offset ``base_offset`` and has room. ``head`` is the part of a record before
    the length of the body; times and the fields of each message are written over it. A message without a born time gets
    the store time. ``topic`` is the part after the body (the topic with its length), and ``marks`` the part after the
    properties. ``sys_flag_on`` and ``sys_flag_off`` are set and cleared in each flag. The store time is
    ``store_timestamp_at`` bytes into a record. ``next_offsets`` (by queue id) is updated. QUEUE_OFFSET and PHY_OFFSET
    of ``columns`` get the values of each record.
    """
    for i in range(columns.shape[1]):
        body, properties = columns[BODY_LENGTH, i], columns[PROPERTIES_LENGTH, i]
        queue_id, body_at = columns[QUEUE_ID, i], columns[BODY_AT, i]
        size = head.size + 4 + body + topic.size + 2 + properties + marks.size
        copy(out, position, head, 0, head.size)
        store_i32(out, position, size)
        store_i32(out, position + _CRC_AT, np.int64(crc_of(data, body_at, body_at + body)) & _CRC_MASK)
        store_i32(out, position + _QUEUE_ID_AT, queue_id)
        store_i32(out, position + _FLAG_AT, columns[MESSAGE_FLAG, i])
        store_i64(out, position + QUEUE_OFFSET_AT, next_offsets[queue_id])
        store_i64(out, position + PHY_OFFSET_AT, base_offset + position)
        store_i32(out, position + SYS_FLAG_AT, columns[SYS_FLAG, i] & ~sys_flag_off | sys_flag_on)
        store_i64(out, position + _BORN_TIMESTAMP_AT, columns[BORN_TIMESTAMP, i] or store_timestamp_ms)
        store_i64(out, position + store_timestamp_at, store_timestamp_ms)
        store_i32(out, position + head.size - _BEHIND_RECONSUME_TIMES, columns[RECONSUME_TIMES, i])
        columns[QUEUE_OFFSET, i], columns[PHY_OFFSET, i] = next_offsets[queue_id], base_offset + position
        next_offsets[queue_id] += 1
        at = position + head.size
        store_i32(out, at, body)
        copy(out, at + 4, data, body_at, body)
        at += 4 + body
        copy(out, at, topic, 0, topic.size)
        at += topic.size
        store_i16(out, at, properties + marks.size)
        copy(out, at + 2, text, columns[PROPERTIES_AT, i], properties)
        copy(out, at + 2 + properties, marks, 0, marks.size)
        position += size
    return int(position)


@rare_helper
def _put_decimal(out: Bytes, at: int, value: int) -> int:
    """Write a number as text. Returns its end."""
    if value < 0:
        out[at] = _MINUS
        at, value = at + 1, -value
    digits, rest = 1, value // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    for i in range(digits):
        out[at + digits - 1 - i] = _ZERO + value % 10
        value //= 10
    return int(at + digits)


@rare_helper
def _put_hex(out: Bytes, at: int, value: int) -> int:
    """Write sixteen hexadecimal digits. Returns their end."""
    for i in range(16):
        digit = value >> (4 * i) & 15
        out[at + 15 - i] = digit + (_ZERO if digit < 10 else _A_LESS_TEN)
    return int(at + 16)


@kernel
def encode_send_answers(out: Bytes, columns: Int64s, text: Bytes, template: Bytes, ends: Int64s) -> int:
    """Write a response frame for each send of ``columns`` whose producer waits for one. Returns their size in bytes.

    ``template`` is a header in pieces, each but the last ending at one of ``ends``. Between the pieces are the opaque,
    the physical offset in sixteen hexadecimal digits, the queue id, the queue offset, and the value of UNIQ_KEY. There
    is room in ``out``.
    """
    at = 0
    for i in range(columns.shape[1]):
        if columns[COMMAND_FLAG, i]:
            continue
        begin, at, piece = at, at + 8, 0
        for j in range(ends.size):
            copy(out, at, template, piece, ends[j] - piece)
            at, piece = at + ends[j] - piece, ends[j]
            if j == _PHY_OFFSET:
                at = _put_hex(out, at, columns[PHY_OFFSET, i])
            elif j == _ID:
                copy(out, at, text, columns[UNIQUE_AT, i], columns[UNIQUE_LENGTH, i])
                at += columns[UNIQUE_LENGTH, i]
            else:
                row = OPAQUE if j == _FIRST else (QUEUE_ID if j == _QUEUE else QUEUE_OFFSET)
                at = _put_decimal(out, at, columns[row, i])
        copy(out, at, template, piece, template.size - piece)
        at += template.size - piece
        store_i32(out, begin, at - begin - 4)
        store_i32(out, begin + 4, at - begin - 8)
    return int(at)
