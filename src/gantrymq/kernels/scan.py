"""Reads records of a commit log into a column matrix: ``format.record.check_record`` over a whole file.

``buf`` is a read-only uint8 array. Positions and sizes are bytes within it. ``limit`` is the end of the file: no byte
from there on is read. ``gantrymq.kernels.codes`` has the rows of the matrix, the checks and the stop codes.

Source: CommitLog.checkMessageAndReturnSize.
"""

import numpy as np

from gantrymq.format.properties import CRC_PROPERTY_SIZE
from gantrymq.format.record import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    BODY_AT,
    BODY_CRC,
    BODY_LENGTH,
    BORN_HOST_AT,
    BORN_TIMESTAMP,
    CHECK_BODY,
    CHECK_MARK,
    CHECK_MARK_WHOLE_RECORD,
    CHECK_OFF,
    CHECK_WHOLE_RECORD,
    CRC_OK,
    FLAG,
    PHY_OFFSET,
    POS,
    PREPARED_OFFSET,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SIZE,
    STOP_BLANK,
    STOP_CRC,
    STOP_DONE,
    STOP_FULL,
    STOP_HALF,
    STOP_MAGIC,
    STOP_NO_BLANK,
    STOP_RANGE,
    STOP_SIZE,
    STOP_ZEROS,
    STORE_HOST_AT,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_AT,
    TOPIC_LENGTH,
    VERSION,
)
from gantrymq.kernels.crc import crc_of
from gantrymq.kernels.entries import find_value
from gantrymq.kernels.intrinsics import CACHE_LINE, load_i16, load_i32, load_i64, prefetch
from gantrymq.kernels.jit import helper, kernel
from gantrymq.model.flags import BORN_HOST_V6, STORE_HOST_V6
from gantrymq.model.message import PROPERTY_CRC32

# As signed numbers:
_MAGIC_V1, _MAGIC_V2, _MAGIC_BLANK = (code - 2**32 for code in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_CRC_NAME = np.frombuffer(PROPERTY_CRC32.encode(), np.uint8)
_CRC_MASK = 0x7FFFFFFF
_CRC_DIGITS = 10
_GUESSED_RECORDS = 6  # how far ahead to prefetch, in records of the current one's size
# How far ahead to prefetch if all of a record is read, and how much at once. The processor prefetches by itself, but
# not across the end of a record, because it finishes the record's CRC first: without this a record of 1 KB took twice
# the time.
_AHEAD_BYTES = 1024
_MAX_AHEAD_BYTES = 64 * 1024


@helper
def _head_stop(buf: Bytes, position: int, limit: int) -> int:
    """Return STOP_DONE if size and magic code allow a record at ``position``, else the reason why not."""
    rest = limit - position
    if rest < BLANK_SIZE:
        return STOP_NO_BLANK
    size, magic = load_i32(buf, position), load_i32(buf, position + 4)
    if magic in (_MAGIC_V1, _MAGIC_V2):
        return STOP_DONE if MIN_RECORD_SIZE <= size <= rest else STOP_SIZE
    if magic == _MAGIC_BLANK:
        return STOP_BLANK if size <= rest else STOP_SIZE
    return STOP_ZEROS if size == 0 and magic == 0 else STOP_MAGIC


@helper
def _read_record(buf: Bytes, position: int, columns: Int64s, i: int) -> bool:
    """Write the record at ``position`` into column ``i``. Returns False if its parts do not add up to its size."""
    size = load_i32(buf, position)
    version = 1 if load_i32(buf, position + 4) == _MAGIC_V1 else 2
    sys_flag = load_i32(buf, position + 36)
    store_timestamp_at = position + 48 + (20 if sys_flag & BORN_HOST_V6 else 8)
    body_at = store_timestamp_at + 8 + (20 if sys_flag & STORE_HOST_V6 else 8) + 16
    end = position + size
    if body_at + version + 2 > end:
        return False
    body_length = max(load_i32(buf, body_at - 4), 0)
    topic_at = body_at + body_length + version
    if topic_at + 2 > end:
        return False
    topic_length = load_i16(buf, topic_at - 2)
    if version == 1:
        topic_length = ((topic_length & 0xFF) ^ 0x80) - 0x80  # one signed byte
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > end:
        return False
    properties_length = max(load_i16(buf, properties_at - 2), 0)
    if properties_at + properties_length != end:
        return False
    columns[POS, i] = position
    columns[SIZE, i] = size
    columns[VERSION, i] = version
    columns[BODY_CRC, i] = load_i32(buf, position + 8)
    columns[QUEUE_ID, i] = load_i32(buf, position + 12)
    columns[FLAG, i] = load_i32(buf, position + 16)
    columns[QUEUE_OFFSET, i] = load_i64(buf, position + 20)
    columns[PHY_OFFSET, i] = load_i64(buf, position + 28)
    columns[SYS_FLAG, i] = sys_flag
    columns[BORN_TIMESTAMP, i] = load_i64(buf, position + 40)
    columns[BORN_HOST_AT, i] = position + 48
    columns[STORE_TIMESTAMP, i] = load_i64(buf, store_timestamp_at)
    columns[STORE_HOST_AT, i] = store_timestamp_at + 8
    columns[RECONSUME_TIMES, i] = load_i32(buf, body_at - 16)
    columns[PREPARED_OFFSET, i] = load_i64(buf, body_at - 12)
    columns[BODY_AT, i] = body_at
    columns[BODY_LENGTH, i] = body_length
    columns[TOPIC_AT, i] = topic_at
    columns[TOPIC_LENGTH, i] = topic_length
    columns[PROPERTIES_AT, i] = properties_at
    columns[PROPERTIES_LENGTH, i] = properties_length
    return True


@helper
def _crc_property(buf: Bytes, start: int, stop: int) -> int:
    """Return the number in the ``__CRC32#`` property of ``buf[start:stop]``, or -1 if it is missing or not a number."""
    at, end = find_value(buf, start, stop, _CRC_NAME)
    number, weight = 0, 1
    for i in range(end - at):
        digit = int(buf[at + i]) - 48
        if digit < 0 or digit > 9 or (digit > 0 and i >= _CRC_DIGITS):
            return -1
        if i < _CRC_DIGITS:
            number += digit * weight
            weight *= 10
    return number if at >= 0 else -1


@helper
def is_crc_right(buf: Bytes, columns: Int64s, i: int, check: int) -> bool:
    """Whether the CRC of record i is right: that of the body or of the whole record, depending on ``check``."""
    if check in (CHECK_BODY, CHECK_MARK):
        length, at = columns[BODY_LENGTH, i], columns[BODY_AT, i]
        return bool(length == 0 or np.int64(crc_of(buf, at, at + length)) & _CRC_MASK == columns[BODY_CRC, i])
    if check in (CHECK_WHOLE_RECORD, CHECK_MARK_WHOLE_RECORD):
        at, end = columns[POS, i], columns[POS, i] + columns[SIZE, i]
        expected = _crc_property(buf, columns[PROPERTIES_AT, i], end)
        return bool(np.int64(crc_of(buf, at, end - CRC_PROPERTY_SIZE)) & _CRC_MASK == expected)
    return True


@helper
def read_checked(buf: Bytes, position: int, limit: int, check: int, columns: Int64s, i: int) -> int:
    """Read the record at ``position`` into column ``i``.

    Returns STOP_DONE, or the reason why there is no valid record.
    """
    code = _head_stop(buf, position, limit)
    if code != STOP_DONE:
        return int(code)
    size = load_i32(buf, position)
    if check == CHECK_OFF:
        _prefetch_ends(buf, position + _GUESSED_RECORDS * size, size)
    else:
        ahead = position + _AHEAD_BYTES
        for at in range(ahead, ahead + min(size, _MAX_AHEAD_BYTES), CACHE_LINE):
            prefetch(buf, at)
    if not _read_record(buf, position, columns, i):
        return STOP_HALF
    is_right = is_crc_right(buf, columns, i, check)
    if not is_right and check not in (CHECK_MARK, CHECK_MARK_WHOLE_RECORD):
        return STOP_CRC
    columns[CRC_OK, i] = 1 if is_right else 0
    return STOP_DONE


@helper
def _prefetch_ends(buf: Bytes, position: int, size: int) -> None:
    """Prefetch both ends of a record that may begin at ``position``. A wrong guess costs little."""
    prefetch(buf, position)
    prefetch(buf, position + CACHE_LINE)
    prefetch(buf, position + size - CACHE_LINE)


@kernel
def scan(buf: Bytes, start: int, stop: int, limit: int, check: int, columns: Int64s) -> tuple[int, int, int]:
    """Read whole records from ``start`` into ``columns``. Returns (count, stop code, stop position).

    The stop code is STOP_RANGE if the position reached ``stop`` (the boundary of a record, usually ``limit``),
    STOP_FULL if the matrix is full, else the result of ``check_record`` at the stop position, where the first unread
    byte is. To get the result of ``check_record`` for the very end of a file (STOP_NO_BLANK), pass a ``stop`` after
    ``limit``. ``check`` is one of the CHECK codes.
    """
    limit = min(limit, buf.size)
    capacity = columns.shape[1]
    position, count = start, 0
    while position < stop:
        if count == capacity:
            return count, STOP_FULL, position
        code = read_checked(buf, position, limit, check, columns, count)
        if code != STOP_DONE:
            return count, code, position
        position += columns[SIZE, count]
        count += 1
    return count, STOP_RANGE, position


@kernel
def read_each(buf: Bytes, positions: Int64s, n: int, limit: int, columns: Int64s) -> int:
    """Read the records at ``positions[:n]``, in any order, into ``columns``. Returns how many were whole.

    If no whole record begins at a position, SIZE is 0 and the rest of that column is not written. CRCs are not checked.
    """
    limit = min(limit, buf.size)
    whole = 0
    for i in range(n):
        if i + _GUESSED_RECORDS < n:
            prefetch(buf, positions[i + _GUESSED_RECORDS])
        at = positions[i]
        if at >= 0 and _head_stop(buf, at, limit) == STOP_DONE and _read_record(buf, at, columns, i):
            whole += 1
        else:
            columns[SIZE, i] = 0
    return whole
