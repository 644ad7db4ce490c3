"""Reading runs of consume queue units: how far they are valid.

``buf`` is a read-only uint8 array, ``start`` and ``stop`` are bytes within it; ``start`` stands on a unit, and what is
left of the range behind its last whole unit is not read. Units are described in ``gantrymq.format.queue_entry``.

Source: ConsumeQueue.recover and truncateDirtyLogicFiles.
"""

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.intrinsics import load_i32, load_i64
from gantrymq.kernels.jit import kernel


@kernel
def valid_units(buf: Bytes, start: int, stop: int, phy_offset: int) -> int:
    """How many bytes from ``start`` hold valid units that point below ``phy_offset``.

    A unit is valid while its phyOffset is not negative and its size is positive.
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
    """How many bytes hold units that point to rising places in front of ``limit``, or pre-blanks, of any offset.

    The first place is above ``highest``; returns (bytes, the last place): what the next run goes on from.
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
