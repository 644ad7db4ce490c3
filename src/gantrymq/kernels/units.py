"""Checks runs of consume queue units: how far they are valid.

``buf`` is a read-only uint8 array; ``start`` and ``stop`` are byte positions in it. ``start`` is the position of a
unit, and a partial unit at the end of the range is not read. ``gantrymq.format.queue_entry`` describes units.

Source: ConsumeQueue.recover and truncateDirtyLogicFiles.
"""

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.intrinsics import load_i32, load_i64
from gantrymq.kernels.jit import kernel


@kernel
def valid_units(buf: Bytes, start: int, stop: int, phy_offset: int) -> int:
    """Return how many bytes from ``start`` hold valid units that point below ``phy_offset``.

    A unit is valid if its phyOffset is not negative and its size is positive.
    """
    at = start
    while at + UNIT_SIZE <= stop:
        offset, size = load_i64(buf, at), load_i32(buf, at + 8)
        if offset < 0 or size <= 0 or offset >= phy_offset:
            break
        at += UNIT_SIZE
    return at - start


@kernel
def rising_units(buf: Bytes, start: int, stop: int, highest: int, limit: int) -> tuple[int, int]:
    """Return how many bytes hold units that point to rising offsets below ``limit``, and the last such offset.

    Pre-blanks count whatever their offset. The first offset must be above ``highest``. The next run continues from the
    result.
    """
    at = start
    while at + UNIT_SIZE <= stop:
        offset, size = load_i64(buf, at), load_i32(buf, at + 8)
        if size != BLANK_UNIT_SIZE:
            if size <= 0 or offset <= highest or offset >= limit:
                break
            highest = offset
        at += UNIT_SIZE
    return at - start, highest
