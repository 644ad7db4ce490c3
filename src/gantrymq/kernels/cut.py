"""Separates the bodies of consecutive records from the rest of them, for messages that decode a field at its first use.

A record without its body is its head, up to the length of the body, followed by its topic and properties.
``gantrymq.format.lazy_record`` decodes it.
"""

from gantrymq.format.record import MIN_RECORD_SIZE
from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    BODY_AT,
    BODY_LENGTH,
    CHECK_MARK,
    CRC_OK,
    CUT_BODY_AT,
    CUT_BODY_END,
    CUT_CRC_OK,
    CUT_END,
    CUT_QUEUE_OFFSET,
    CUT_SYS_FLAG,
    PHY_OFFSET,
    POS,
    QUEUE_OFFSET,
    SIZE,
    STOP_DONE,
    STOP_FULL,
    STOP_RANGE,
    STOP_SIZE,
    SYS_FLAG,
)
from gantrymq.kernels.intrinsics import copy
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.scan import read_checked


@helper
def _cut_record(run: Bytes, columns: Int64s, out: Bytes, used: int, cuts: Int64s, count: int) -> int:
    """Copy the record of ``columns``, without its body, to ``out[used:]``, and write column ``count`` of ``cuts``.

    Returns the end of the copy, or -1 if ``out`` has no room for it.
    """
    position, size = columns[POS, 0], columns[SIZE, 0]
    body_at, body_length = columns[BODY_AT, 0], columns[BODY_LENGTH, 0]
    body_end, end = body_at + body_length, position + size
    if used + size - body_length > out.size:
        return -1
    copy(out, used, run, position, body_at - position)
    used += body_at - position
    copy(out, used, run, body_end, end - body_end)
    used += end - body_end
    cuts[CUT_BODY_AT, count] = body_at
    cuts[CUT_BODY_END, count] = body_end
    cuts[CUT_END, count] = used
    cuts[CUT_QUEUE_OFFSET, count] = columns[QUEUE_OFFSET, 0]
    cuts[CUT_CRC_OK, count] = columns[CRC_OK, 0]
    cuts[CUT_SYS_FLAG, count] = columns[SYS_FLAG, 0]
    return used


@kernel
def cut_bodies(buf: Bytes, start: int, columns: Int64s, out: Bytes, cuts: Int64s) -> tuple[int, int, int]:
    """Read the records from ``start`` on, and copy each without its body to ``out``, one after the other.

    ``cuts`` has a row for each CUT code and a column for each record; ``columns`` is a column matrix for one record.
    Returns (count, stop code, stop position). The stop code is STOP_RANGE at the end of ``buf``, STOP_FULL if ``cuts``
    or ``out`` is full, else the result of ``check_record`` at the stop position. Bodies with a wrong CRC are marked.
    """
    position, count, used = start, 0, 0
    while position < buf.size:
        if count == cuts.shape[1]:
            return count, STOP_FULL, position
        code = read_checked(buf, position, buf.size, CHECK_MARK, columns, 0)
        if code != STOP_DONE:
            return count, code, position
        used = _cut_record(buf, columns, out, used, cuts, count)
        if used < 0:
            return count, STOP_FULL, position
        position, count = position + columns[SIZE, 0], count + 1
    return count, STOP_RANGE, position


@kernel
def cut_each(
    buf: Bytes, begin: int, end: int, wanted: Int64s, run: Bytes, columns: Int64s, out: Bytes, cuts: Int64s
) -> tuple[int, int, int]:
    """Copy the records at given positions to ``run``, one after the other, and cut these as :func:`cut_bodies`.

    ``wanted`` is an array (2, count): the physical offset and the size of each record. ``buf[0]`` has the offset
    ``begin``, and no byte at or after the offset ``end`` is read. The copies are checked, because a
    file may change.

    Returns (count, stop code, bytes of ``run`` used). The stop code is STOP_RANGE after the last record, else why the
    next record is not there: it is outside of these bytes, or has another size or offset (STOP_SIZE), ``run`` or
    ``out`` is full (STOP_FULL), or the result of ``check_record``.
    """
    copied, used = 0, 0
    for count in range(wanted.shape[1]):
        phy_offset, size = wanted[0, count], wanted[1, count]
        if phy_offset < begin or size < MIN_RECORD_SIZE or size > end - phy_offset:
            return count, STOP_SIZE, copied
        if size > run.size - copied:
            return count, STOP_FULL, copied
        copy(run, copied, buf, phy_offset - begin, size)
        code = read_checked(run, copied, copied + size, CHECK_MARK, columns, 0)
        if code != STOP_DONE:
            return count, code, copied
        if columns[SIZE, 0] != size or columns[PHY_OFFSET, 0] != phy_offset:
            return count, STOP_SIZE, copied
        used = _cut_record(run, columns, out, used, cuts, count)
        if used < 0:
            return count, STOP_FULL, copied
        copied += size
    return wanted.shape[1], STOP_RANGE, copied
