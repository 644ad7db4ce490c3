"""Separates the bodies of consecutive records from the rest of them, for messages that decode a field at its first use.

A record without its body is its head, up to the length of the body, followed by its topic and properties.
``gantrymq.format.lazy_record`` decodes it.
"""

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
    CUT_PHY_OFFSET,
    CUT_QUEUE_OFFSET,
    CUT_SIZE,
    CUT_SYS_FLAG,
    PHY_OFFSET,
    QUEUE_OFFSET,
    SIZE,
    STOP_DONE,
    STOP_FULL,
    STOP_RANGE,
    SYS_FLAG,
)
from gantrymq.kernels.intrinsics import copy
from gantrymq.kernels.jit import kernel
from gantrymq.kernels.scan import read_checked


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
        size, body_at, body_length = columns[SIZE, 0], columns[BODY_AT, 0], columns[BODY_LENGTH, 0]
        body_end, end = body_at + body_length, position + size
        if used + size - body_length > out.size:
            return count, STOP_FULL, position
        copy(out, used, buf, position, body_at - position)
        used += body_at - position
        copy(out, used, buf, body_end, end - body_end)
        used += end - body_end
        cuts[CUT_BODY_AT, count] = body_at
        cuts[CUT_BODY_END, count] = body_end
        cuts[CUT_END, count] = used
        cuts[CUT_SIZE, count] = size
        cuts[CUT_SYS_FLAG, count] = columns[SYS_FLAG, 0]
        cuts[CUT_PHY_OFFSET, count] = columns[PHY_OFFSET, 0]
        cuts[CUT_QUEUE_OFFSET, count] = columns[QUEUE_OFFSET, 0]
        cuts[CUT_CRC_OK, count] = columns[CRC_OK, 0]
        position, count = end, count + 1
    return count, STOP_RANGE, position
