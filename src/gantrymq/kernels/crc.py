"""CRC-32 as zlib and java.util.zip.CRC32 have it (reflected polynomial 0xedb88320).

Where the processor multiplies without carries, lanes of 16 bytes are folded: the message is a polynomial over two
elements, and a lane of it may be replaced by what it leaves, modulo the CRC's polynomial, further on; with AVX2 two
lanes of a register at once, with AVX-512 four. Elsewhere sixteen tables are looked up. Which is compiled follows from
the processor's features, which are part of the key under which a compiled kernel is cached: a cache that another
machine made is not used.

Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009;
M. Kounavis and F. Berry, "A Systematic Approach to Building High Performance, Software-based, CRC Generators", 2005.
"""

from typing import Any

import numpy as np

from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.intrinsics import (
    BLOCK,
    HAS_CLMUL,
    HAS_WIDE_CLMUL,
    WIDE_LANES,
    Lane,
    Wide,
    clmul_fold,
    clmul_low,
    lane_high,
    lane_load,
    lane_low,
    lane_of,
    lane_xor,
    load_word,
    wide_first,
    wide_lanes,
    wide_load,
    wide_repeat,
)
from gantrymq.kernels.jit import helper, kernel

_POLYNOMIAL = 0x104C11DB7
_WIDE_BYTES = WIDE_LANES * BLOCK
_ROUND_BYTES = 4 * _WIDE_BYTES  # four registers, so that none waits for its own product
_ZERO = np.uint64(0)
_ONES = np.uint64(0xFFFFFFFF)
_INVERT = np.uint32(0xFFFFFFFF)
_HALF = np.uint64(32)
_WORD = np.uint64(64)
_LANE_BITS = np.uint64(128)


def _reflect(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2)


def _power(exponent: int) -> np.uint64:
    """x**exponent modulo the polynomial, reflected, and shifted as products of reflected numbers need it."""
    remainder = 1
    for _ in range(exponent):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= _POLYNOMIAL
    return np.uint64(_reflect(remainder, 32) << 1)


def _quotient() -> np.uint64:
    """x**64 divided by the polynomial, reflected: Barrett's constant."""
    quotient, rest = 0, 1 << 64
    for bit in range(64, 31, -1):
        if rest >> bit & 1:
            rest ^= _POLYNOMIAL << (bit - 32)
            quotient |= 1 << (bit - 32)
    return np.uint64(_reflect(quotient, 33))


def _tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """tables[k, b]: what the byte b does to the CRC when k more bytes follow it."""
    tables = np.zeros((16, 256), np.uint32)
    for byte in range(256):
        code = byte
        for _ in range(8):
            code = code >> 1 ^ (0xEDB88320 if code & 1 else 0)
        tables[0, byte] = code
    for k in range(1, 16):
        tables[k] = tables[k - 1] >> 8 ^ tables[0, tables[k - 1] & 0xFF]
    return tables


def _moving(length: int) -> tuple[np.uint64, np.uint64]:
    """What the high and the low half of a lane are multiplied with to move it on by ``length`` bytes."""
    return _power(8 * length + 32), _power(8 * length - 32)


_NEXT_HIGH, _NEXT_LOW = _moving(BLOCK)
_SECOND_HIGH, _SECOND_LOW = _moving(2 * BLOCK)
_FOURTH_HIGH, _FOURTH_LOW = _moving(4 * BLOCK)
_WIDE_HIGH, _WIDE_LOW = _moving(_WIDE_BYTES)
_ROUND_HIGH, _ROUND_LOW = _moving(_ROUND_BYTES)
_FIFTH = _power(64)
_QUOTIENT = _quotient()
_REFLECTED = np.uint64(_reflect(_POLYNOMIAL, 33))
_TABLES = _tables()
_lane_0, _lane_1, _last_but_one, _last = *wide_lanes[:2], *wide_lanes[-2:]


@helper
def _reduce(lane: Lane) -> Any:
    """The CRC of a message that is folded into one lane, before the final inversion."""
    moved = clmul_low(lane, lane_of(_NEXT_LOW, _ZERO))  # the older half by 64 bits
    low, high = lane_low(moved) ^ lane_high(lane), lane_high(moved)
    product = clmul_low(lane_of(low & _ONES, _ZERO), lane_of(_FIFTH, _ZERO))
    rest = lane_low(product) ^ (low >> _HALF | high << _HALF)
    quotient = lane_low(clmul_low(lane_of(rest & _ONES, _ZERO), lane_of(_QUOTIENT, _ZERO)))
    product = clmul_low(lane_of(quotient & _ONES, _ZERO), lane_of(_REFLECTED, _ZERO))
    return np.uint32((lane_low(product) ^ rest) >> _HALF)


@helper
def _first_lane(low: Any, high: Any, length: int) -> Lane:
    """The first ``length`` (1..15) of 16 bytes, moved to the end of a lane that begins with zeros."""
    bits = np.uint64(8 * length)
    if length <= 8:
        return lane_of(_ZERO, low << (_WORD - bits))
    shift = _LANE_BITS - bits
    return lane_of(low << shift, high << shift | low >> (_WORD - shift))


@helper
def _short_crc(buf: Bytes, start: int, stop: int) -> Any:
    """Fewer than 16 bytes: collected one by one, since reading past them might leave the array."""
    low, high, shift = _ZERO, _ZERO, _ZERO
    length = stop - start
    if length == 0:
        return np.uint32(0)
    for i in range(length):
        byte = np.uint64(buf[start + i])
        if i < 8:
            low |= byte << shift
        else:
            high |= byte << (shift - _WORD)
        shift += np.uint64(8)
    code = _reduce(_first_lane(low ^ _ONES, high, length))
    if length < 4:  # the initial ones reach beyond the message
        code ^= np.uint32(_ONES >> shift)
    return code ^ _INVERT


@helper
def _fold_narrow(carry: Lane, buf: Bytes, at: int, stop: int) -> tuple[Lane, int]:
    """Fold 64 bytes at a time into a lane, at least once; ``carry`` came before. Also returns where it ended."""
    once, four = lane_of(_NEXT_HIGH, _NEXT_LOW), lane_of(_FOURTH_HIGH, _FOURTH_LOW)
    first, second = lane_xor(carry, lane_load(buf, at)), lane_load(buf, at + 16)
    third, fourth = lane_load(buf, at + 32), lane_load(buf, at + 48)
    at += 4 * BLOCK
    while stop - at >= 4 * BLOCK:
        first = lane_xor(clmul_fold(first, four), lane_load(buf, at))
        second = lane_xor(clmul_fold(second, four), lane_load(buf, at + 16))
        third = lane_xor(clmul_fold(third, four), lane_load(buf, at + 32))
        fourth = lane_xor(clmul_fold(fourth, four), lane_load(buf, at + 48))
        at += 4 * BLOCK
    first = lane_xor(clmul_fold(first, once), second)
    first = lane_xor(clmul_fold(first, once), third)
    return lane_xor(clmul_fold(first, once), fourth), at


@helper
def _join_two(wide: Wide) -> Lane:
    return lane_xor(clmul_fold(_lane_0(wide), lane_of(_NEXT_HIGH, _NEXT_LOW)), _lane_1(wide))


@helper
def _join_four(wide: Wide) -> Lane:
    last = lane_xor(clmul_fold(_last_but_one(wide), lane_of(_NEXT_HIGH, _NEXT_LOW)), _last(wide))
    return lane_xor(clmul_fold(_join_two(wide), lane_of(_SECOND_HIGH, _SECOND_LOW)), last)


_join = _join_four if WIDE_LANES == 4 else _join_two


@helper
def _fold_wide(carry: Lane, buf: Bytes, at: int, stop: int) -> tuple[Lane, int]:
    """:func:`_fold_narrow` with wide registers, for at least ``_ROUND_BYTES``."""
    once, on = wide_repeat(lane_of(_WIDE_HIGH, _WIDE_LOW)), wide_repeat(lane_of(_ROUND_HIGH, _ROUND_LOW))
    first = lane_xor(wide_first(carry), wide_load(buf, at))
    second, third = wide_load(buf, at + _WIDE_BYTES), wide_load(buf, at + 2 * _WIDE_BYTES)
    fourth = wide_load(buf, at + 3 * _WIDE_BYTES)
    at += _ROUND_BYTES
    while stop - at >= _ROUND_BYTES:
        first = lane_xor(clmul_fold(first, on), wide_load(buf, at))
        second = lane_xor(clmul_fold(second, on), wide_load(buf, at + _WIDE_BYTES))
        third = lane_xor(clmul_fold(third, on), wide_load(buf, at + 2 * _WIDE_BYTES))
        fourth = lane_xor(clmul_fold(fourth, on), wide_load(buf, at + 3 * _WIDE_BYTES))
        at += _ROUND_BYTES
    first = lane_xor(clmul_fold(first, once), second)
    first = lane_xor(clmul_fold(first, once), third)
    first = lane_xor(clmul_fold(first, once), fourth)
    while stop - at >= _WIDE_BYTES:
        first = lane_xor(clmul_fold(first, once), wide_load(buf, at))
        at += _WIDE_BYTES
    return _join(first), at


@helper
def _fold_many(carry: Lane, buf: Bytes, at: int, stop: int) -> Any:
    if stop - at >= _ROUND_BYTES:
        return _fold_wide(carry, buf, at, stop)
    return _fold_narrow(carry, buf, at, stop)


_fold = _fold_many if HAS_WIDE_CLMUL else _fold_narrow


@helper
def _folded_crc(buf: Bytes, start: int, stop: int) -> Any:
    if stop - start < BLOCK:
        return _short_crc(buf, start, stop)
    once = lane_of(_NEXT_HIGH, _NEXT_LOW)
    head = (stop - start) & (BLOCK - 1)
    lane = lane_of(_ONES, _ZERO)
    at = start + head
    if head:  # the odd bytes come first, behind zeros, which a CRC does not see
        lane = lane_xor(lane_load(buf, start), lane)
        lane = clmul_fold(_first_lane(lane_low(lane), lane_high(lane), head), once)
        if head < 4:  # the initial ones reach beyond the odd bytes
            lane = lane_xor(lane, lane_of(_ONES >> np.uint64(8 * head), _ZERO))
    if stop - at >= 4 * BLOCK:
        lane, at = _fold(lane, buf, at, stop)
    else:
        lane = lane_xor(lane, lane_load(buf, at))
        at += BLOCK
    while at < stop:
        lane = lane_xor(clmul_fold(lane, once), lane_load(buf, at))
        at += BLOCK
    return _reduce(lane) ^ _INVERT


@helper
def _table_crc(buf: Bytes, start: int, stop: int) -> Any:
    code = _INVERT
    at = start
    while stop - at >= BLOCK:
        first = load_word(buf, at) ^ np.uint64(code)
        second = load_word(buf, at + 8)
        code = np.uint32(0)
        for i in range(8):
            shift = np.uint64(8 * i)
            code ^= _TABLES[15 - i, (first >> shift) & np.uint64(0xFF)]
            code ^= _TABLES[7 - i, (second >> shift) & np.uint64(0xFF)]
        at += BLOCK
    while at < stop:
        code = code >> np.uint32(8) ^ _TABLES[0, (code ^ buf[at]) & np.uint32(0xFF)]
        at += 1
    return code ^ _INVERT


crc_of = _folded_crc if HAS_CLMUL else _table_crc  # for other kernels: (buf, start, stop) -> uint32


@kernel
def crc32(buf: Bytes, start: int, stop: int) -> Any:
    """The CRC-32 of ``buf[start:stop]`` (uint8) as a uint32; 0 <= start <= stop <= buf.size."""
    return crc_of(buf, start, stop)
