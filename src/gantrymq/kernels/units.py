"""Reading runs of consume queue units: how far they are valid, and where they point.

``buf`` is a read-only uint8 array, ``start`` and ``stop`` are bytes within it; ``start`` stands on a unit, and what is
left of the range behind its last whole unit is not read. Units are described in ``gantrymq.format.queue_entry``.

Source: ConsumeQueue.recover, truncateDirtyLogicFiles and correctMinOffset; ConsumeQueueExt.isExtAddr.
"""

from gantrymq.format.queue_entry import BLANK_UNIT_SIZE, UNIT_SIZE
from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.machine import load_i32, load_i64

MAX_EXT_ADDRESS = -(2**31) - 1  # a tags code that is not above it is an address in the queue's extension
NO_EXT_ADDRESS = 1
NO_PHY_END = -1
_NO_BOUND = -1


@helper
def _read_run(buf: Bytes, start: int, stop: int, phy_offset: int) -> tuple[int, int, int, int]:
    last_end, last_real_end, ext_address = NO_PHY_END, NO_PHY_END, NO_EXT_ADDRESS
    at = start
    while at + UNIT_SIZE <= stop:
        offset, size, tags_code = load_i64(buf, at), load_i32(buf, at + 8), load_i64(buf, at + 12)
        if offset < 0 or size <= 0 or 0 <= phy_offset <= offset:
            break
        last_end = offset + size
        if size != BLANK_UNIT_SIZE or offset != 0:
            last_real_end = last_end
        if tags_code <= MAX_EXT_ADDRESS:
            ext_address = tags_code
        at += UNIT_SIZE
    return at - start, last_end, last_real_end, ext_address


@kernel
def recover_units(buf: Bytes, start: int, stop: int) -> tuple[int, int, int, int]:
    """How many bytes from ``start`` hold valid units: (bytes, last phy end, last real phy end, last ext address).

    A unit is valid while its phyOffset is not negative and its size is positive. The phy end of a unit is the sum
    of both: the last valid unit's, as Java takes it, and that of the last one that is no pre-blank; -1 without one.
    The ext address is the last tags code that is one, else 1.
    """
    run: tuple[int, int, int, int] = _read_run(buf, start, stop, _NO_BOUND)
    return run


@kernel
def truncate_units(buf: Bytes, start: int, stop: int, phy_offset: int) -> tuple[int, int, int, int]:
    """The same for the units that point below ``phy_offset``: the run ends at the first that does not."""
    run: tuple[int, int, int, int] = _read_run(buf, start, stop, max(phy_offset, 0))
    return run


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


@kernel
def first_unit_at_or_after(buf: Bytes, start: int, stop: int, min_phy_offset: int) -> int:
    """The position of the first unit with a phyOffset of at least ``min_phy_offset``; without one, the run's end.

    The phyOffsets of the run must not descend. The run's end is that of its last whole unit.
    """
    low, high = 0, (stop - start) // UNIT_SIZE
    while low < high:
        middle = (low + high) // 2
        if load_i64(buf, start + middle * UNIT_SIZE) < min_phy_offset:
            low = middle + 1
        else:
            high = middle
    return int(start + low * UNIT_SIZE)
