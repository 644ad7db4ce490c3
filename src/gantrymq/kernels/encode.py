"""Encodes records from columns, directly into a mapped file, and the properties of records from columns or maps.

Text and bytes are as in Arrow: ``values`` (uint8, read-only) and ``offsets`` (int64, one more than rows); row i is
``values[offsets[i]:offsets[i + 1]]``. Numbers are in a column matrix (``gantrymq.kernels.codes``), whose other rows are
filled during encoding: afterwards it equals what ``scan`` would read.

Properties come from one column of values for each name (``fill_property``; a row with an empty value does not get the
property), or from a map column with any number of names and values for each row, in their order (``size_map``,
``fill_map``; row i has the entries ``row_offsets[i]`` to ``row_offsets[i + 1]``).

Source: MessageExtEncoder.encode, CommitLog.DefaultAppendMessageCallback, MessageDecoder.createCrc32 and
messageProperties2String; ``gantrymq.format.properties.encode_properties``.
"""

from __future__ import annotations

import numpy as np

from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import (
    BLANK_SIZE,
    BORN_HOST_AT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH_V1,
    MAX_TOPIC_LENGTH_V2,
    MIN_RECORD_SIZE,
)
from gantrymq.kernels import codes
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import STOP_DONE, STOP_FULL_FILE, STOP_LENGTH
from gantrymq.kernels.crc import crc_of
from gantrymq.kernels.entries import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from gantrymq.kernels.intrinsics import copy, store_i16, store_i32, store_i64
from gantrymq.kernels.jit import helper, kernel
from gantrymq.model.flags import BORN_HOST_V6, STORE_HOST_V6
from gantrymq.model.message import PROPERTY_CRC32

HOST_SIZE = 20  # bytes of a row of hosts; an IPv4 host uses the first 8
_CRC_PREFIX = np.frombuffer(PROPERTY_CRC32.encode() + b"\x01", np.uint8)
_CRC_DIGITS = 10
_CRC_MASK = 0x7FFFFFFF


@helper
def _store_numbers(out: Bytes, at: int, columns: Int64s, i: int) -> None:
    """Write the fields of a record before its born host."""
    store_i32(out, at, columns[codes.SIZE, i])
    store_i32(out, at + 4, MAGIC_V1 if columns[codes.VERSION, i] == 1 else MAGIC_V2)
    store_i32(out, at + 8, columns[codes.BODY_CRC, i])
    store_i32(out, at + 12, columns[codes.QUEUE_ID, i])
    store_i32(out, at + 16, columns[codes.FLAG, i])
    store_i64(out, at + 20, columns[codes.QUEUE_OFFSET, i])
    store_i64(out, at + 28, columns[codes.PHY_OFFSET, i])
    store_i32(out, at + 36, columns[codes.SYS_FLAG, i])
    store_i64(out, at + 40, columns[codes.BORN_TIMESTAMP, i])


@helper
def _store_hosts(out: Bytes, at: int, columns: Int64s, i: int, born_hosts: Bytes, store_hosts: Bytes) -> int:
    """Write the fields from the born host to the prepared transaction offset.

    Returns the position of the body's length.
    """
    born_length = 20 if columns[codes.SYS_FLAG, i] & BORN_HOST_V6 else 8
    store_length = 20 if columns[codes.SYS_FLAG, i] & STORE_HOST_V6 else 8
    copy(out, at, born_hosts, i * HOST_SIZE if born_hosts.size > HOST_SIZE else 0, born_length)
    columns[codes.BORN_HOST_AT, i] = at
    at += born_length
    store_i64(out, at, columns[codes.STORE_TIMESTAMP, i])
    at += 8
    copy(out, at, store_hosts, i * HOST_SIZE if store_hosts.size > HOST_SIZE else 0, store_length)
    columns[codes.STORE_HOST_AT, i] = at
    at += store_length
    store_i32(out, at, columns[codes.RECONSUME_TIMES, i])
    store_i64(out, at + 4, columns[codes.PREPARED_OFFSET, i])
    return at + 12


@helper
def _store_crc_property(out: Bytes, start: int, at: int) -> None:
    """Write the property that closes the record begun at ``start``, with the CRC of the bytes before ``at``."""
    number = np.int64(crc_of(out, start, at)) & _CRC_MASK
    copy(out, at, _CRC_PREFIX, 0, _CRC_PREFIX.size)
    at += _CRC_PREFIX.size
    for i in range(_CRC_DIGITS):
        out[at + i] = 48 + number % 10
        number //= 10
    out[at + _CRC_DIGITS] = PROPERTY_SEPARATOR


@helper
def _store_body(out: Bytes, at: int, columns: Int64s, i: int, body_values: Bytes, body_start: int) -> int:
    length = columns[codes.BODY_LENGTH, i]
    store_i32(out, at, length)
    copy(out, at + 4, body_values, body_start, length)
    columns[codes.BODY_AT, i] = at + 4
    return int(at + 4 + length)


@helper
def _store_topic(out: Bytes, at: int, columns: Int64s, i: int, topic_values: Bytes, topic_start: int) -> int:
    length = columns[codes.TOPIC_LENGTH, i]
    if columns[codes.VERSION, i] == 1:
        out[at] = length
        at += 1
    else:
        store_i16(out, at, length)
        at += 2
    copy(out, at, topic_values, topic_start, length)
    columns[codes.TOPIC_AT, i] = at
    return int(at + length)


@kernel
def encode_batch(
    out: Bytes,
    position: int,
    limit: int,
    base_offset: int,
    body_values: Bytes,
    body_offsets: Int64s,
    topic_values: Bytes,
    topic_offsets: Int64s,
    property_values: Bytes,
    property_offsets: Int64s,
    born_hosts: Bytes,
    store_hosts: Bytes,
    append_crc: int,
    columns: Int64s,
    start: int,
    n: int,
) -> tuple[int, int, int]:
    """Write rows ``start`` to ``n`` as records to ``out[position:limit]``. Returns (done, stop code, stop position).

    ``out`` (writable) begins at physical offset ``base_offset``. Topics are UTF-8, properties are encoded. If
    ``topic_offsets`` has two elements, all rows have that topic. Hosts are rows of 20 bytes, or one row for all. Read
    from ``columns``: QUEUE_ID, FLAG, QUEUE_OFFSET, SYS_FLAG, BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES,
    PREPARED_OFFSET; every other row of it is written. ``append_crc`` is 0 or 1.

    ``done`` is n, or the row to continue from: STOP_FULL_FILE before a record that would not leave 8 bytes for a blank,
    STOP_LENGTH before one whose topic or properties are too long. The stop position is where the next record goes.
    """
    limit = min(limit, out.size)
    for i in range(start, n):
        body_start, body_length = body_offsets[i], body_offsets[i + 1] - body_offsets[i]
        topic = i if topic_offsets.size > 2 else 0
        topic_length = topic_offsets[topic + 1] - topic_offsets[topic]
        property_start, property_end = property_offsets[i], property_offsets[i + 1]
        given = property_end - property_start
        closing = 1 if append_crc and given and property_values[property_end - 1] != PROPERTY_SEPARATOR else 0
        properties_length = given + closing + (CRC_PROPERTY_SIZE if append_crc else 0)
        if topic_length > MAX_TOPIC_LENGTH_V2 or properties_length > MAX_PROPERTIES_LENGTH:
            return i, STOP_LENGTH, position
        version = 1 if topic_length <= MAX_TOPIC_LENGTH_V1 else 2
        sys_flag = columns[codes.SYS_FLAG, i]
        hosts = (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)
        size = MIN_RECORD_SIZE - 1 + version + hosts + body_length + topic_length + properties_length
        if size + BLANK_SIZE > limit - position:
            return i, STOP_FULL_FILE, position
        columns[codes.POS, i] = position
        columns[codes.SIZE, i] = size
        columns[codes.VERSION, i] = version
        crc = np.int64(crc_of(body_values, body_start, body_start + body_length))
        columns[codes.BODY_CRC, i] = crc & _CRC_MASK
        columns[codes.PHY_OFFSET, i] = base_offset + position
        columns[codes.BODY_LENGTH, i] = body_length
        columns[codes.TOPIC_LENGTH, i] = topic_length
        columns[codes.PROPERTIES_LENGTH, i] = properties_length
        columns[codes.CRC_OK, i] = 1
        _store_numbers(out, position, columns, i)
        at = _store_hosts(out, position + BORN_HOST_AT, columns, i, born_hosts, store_hosts)
        at = _store_body(out, at, columns, i, body_values, body_start)
        at = _store_topic(out, at, columns, i, topic_values, topic_offsets[topic])
        store_i16(out, at, properties_length)
        columns[codes.PROPERTIES_AT, i] = at + 2
        copy(out, at + 2, property_values, property_start, given)
        at += 2 + given
        if closing:
            out[at] = PROPERTY_SEPARATOR
        if append_crc:
            _store_crc_property(out, position, at + closing)
        position += size
    return n, STOP_DONE, position


@kernel
def fill_property(name: Bytes, values: Bytes, offsets: Int64s, n: int, cursors: Int64s, out: Bytes) -> None:
    """Write ``name 0x01 value 0x02`` of each of n rows to ``out``.

    Row i's is written at ``cursors[i]``, which is moved to its end.
    """
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        if start < stop:
            at = cursors[i]
            copy(out, at, name, 0, name.size)
            out[at + name.size] = NAME_VALUE_SEPARATOR
            copy(out, at + name.size + 1, values, start, stop - start)
            out[at + name.size + 1 + stop - start] = PROPERTY_SEPARATOR
            cursors[i] = at + name.size + 2 + stop - start


@kernel
def size_map(row_offsets: Int64s, key_offsets: Int64s, item_offsets: Int64s, n: int, sizes: Int64s) -> None:
    """Add the size of row i's entries (bytes) to ``sizes[i]``."""
    for i in range(n):
        first, last = row_offsets[i], row_offsets[i + 1]
        keys = key_offsets[last] - key_offsets[first]
        items = item_offsets[last] - item_offsets[first]
        sizes[i] += keys + items + 2 * (last - first)


@kernel
def fill_map(
    row_offsets: Int64s,
    key_values: Bytes,
    key_offsets: Int64s,
    item_values: Bytes,
    item_offsets: Int64s,
    n: int,
    cursors: Int64s,
    out: Bytes,
) -> None:
    """Write the entries that :func:`size_map` measured to ``out``.

    Row i's are written at ``cursors[i]``, which is moved to their end.
    """
    for i in range(n):
        at = cursors[i]
        for entry in range(row_offsets[i], row_offsets[i + 1]):
            key, item = key_offsets[entry], item_offsets[entry]
            key_length, item_length = key_offsets[entry + 1] - key, item_offsets[entry + 1] - item
            copy(out, at, key_values, key, key_length)
            out[at + key_length] = NAME_VALUE_SEPARATOR
            at += key_length + 1
            copy(out, at, item_values, item, item_length)
            out[at + item_length] = PROPERTY_SEPARATOR
            at += item_length + 1
        cursors[i] = at
