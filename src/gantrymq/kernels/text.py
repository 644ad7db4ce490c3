"""UTF-8 as Java and Python decode it leniently, and Java's String.hashCode over it, without creating strings.

Malformed bytes decode to U+FFFD: one for each maximal part of a sequence that could have begun a character, and one for
an encoded surrogate (three bytes, or the first two of them). The reference is ``gantrymq.model.java.decode_utf8``.

Source: the Unicode Standard, chapter 3, "Conformance" (table 3-7 and U+FFFD substitution of maximal subparts).
"""

from typing import Any

import numpy as np

from gantrymq.kernels.arrays import Bytes
from gantrymq.kernels.intrinsics import BLOCK, WINDOW, copy, hash_block, non_ascii_window, trailing_zeros
from gantrymq.kernels.jit import helper

REPLACEMENT = 0xFFFD
_MASK = np.uint64(0xFFFFFFFF)
_POWERS = np.array([pow(31, k, 2**32) for k in range(BLOCK + 1)], np.uint64)
_31 = np.uint64(31)


@helper
def ascii_end(buf: Bytes, start: int, stop: int) -> int:
    """Return the position of the first byte above 0x7f in ``buf[start:stop]``, or ``stop``."""
    if buf.size < WINDOW:
        while start < stop and buf[start] < 0x80:
            start += 1
        return start
    while start < stop:
        at = min(start, buf.size - WINDOW)
        window = non_ascii_window(buf, at) >> np.uint64(start - at)
        if window:
            return min(start + int(trailing_zeros(window)), stop)
        start = at + WINDOW
    return stop


@helper
def _is_continuation(buf: Bytes, at: int, stop: int) -> bool:
    return at < stop and (int(buf[at]) & 0xC0) == 0x80


@helper
def next_character(buf: Bytes, at: int, stop: int) -> tuple[int, int, bool]:
    """Decode the character at ``at`` < ``stop``.

    Returns (code point, start of the next one, whether it is well-formed).
    """
    lead = int(buf[at])
    if lead < 0x80:
        return lead, at + 1, True
    if lead < 0xC2 or lead > 0xF4:
        return REPLACEMENT, at + 1, False
    if not _is_continuation(buf, at + 1, stop):
        return REPLACEMENT, at + 1, False
    second = int(buf[at + 1])
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (second & 0x3F), at + 2, True
    has_third = _is_continuation(buf, at + 2, stop)
    if lead == 0xED and second >= 0xA0:  # a surrogate, whose third byte may be missing
        return REPLACEMENT, at + 3 if has_third else at + 2, False
    if (lead == 0xE0 and second < 0xA0) or (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
        return REPLACEMENT, at + 1, False
    if not has_third:
        return REPLACEMENT, at + 2, False
    third = int(buf[at + 2])
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F), at + 3, True
    if not _is_continuation(buf, at + 3, stop):
        return REPLACEMENT, at + 3, False
    fourth = int(buf[at + 3])
    high = (lead & 0x07) << 18 | (second & 0x3F) << 12
    return high | (third & 0x3F) << 6 | (fourth & 0x3F), at + 4, True


@helper
def is_well_formed(buf: Bytes, start: int, stop: int) -> bool:
    """Whether ``buf[start:stop]`` is valid UTF-8."""
    start = ascii_end(buf, start, stop)
    while start < stop:
        _, start, is_right = next_character(buf, start, stop)
        if not is_right:
            return False
        if start < stop and buf[start] < 0x80:
            start = ascii_end(buf, start, stop)
    return True


@helper
def copy_repaired(buf: Bytes, start: int, stop: int, out: Bytes, at: int) -> int:
    """Write ``buf[start:stop]`` to ``out[at:]`` with U+FFFD for malformed parts. Returns the end of the output.

    ``out`` has room: the result is at most three times as long.
    """
    while start < stop:
        _, after, is_right = next_character(buf, start, stop)
        if is_right:
            copy(out, at, buf, start, after - start)
            at += after - start
        else:
            out[at] = 0xEF
            out[at + 1] = 0xBF
            out[at + 2] = 0xBD
            at += 3
        start = after
    return at


@helper
def hash_ascii(code: Any, buf: Bytes, start: int, stop: int) -> Any:
    """Continue ``code``, the String.hashCode of a text, over the ASCII bytes ``buf[start:stop]``.

    Hashes are uint64 numbers of 32 bits here.
    """
    head = (stop - start) & (BLOCK - 1)
    if start + head < BLOCK:  # too near to the beginning of the buffer for a whole block
        for i in range(start, start + head):
            code = code * _31 + np.uint64(buf[i]) & _MASK
    elif head:
        code = code * _POWERS[head] + hash_block(buf, start + head - BLOCK, BLOCK - head) & _MASK
    for at in range(start + head, stop, BLOCK):
        code = code * _POWERS[BLOCK] + hash_block(buf, at, 0) & _MASK
    return code


@helper
def hash_text(code: Any, buf: Bytes, start: int, stop: int) -> Any:
    """Like :func:`hash_ascii`, for any bytes: over the UTF-16 units of their decoded text."""
    plain = ascii_end(buf, start, stop)
    code = hash_ascii(code, buf, start, plain)
    while plain < stop:
        character, plain, _ = next_character(buf, plain, stop)
        if character >= 0x10000:
            character -= 0x10000
            code = code * _31 + np.uint64(0xD800 + (character >> 10)) & _MASK
            character = 0xDC00 + (character & 0x3FF)
        code = code * _31 + np.uint64(character) & _MASK
    return code


@helper
def signed_hash(code: Any) -> int:
    """Convert a hash to Java's int."""
    number = np.int64(code)
    return int(number - (number >> 31 << 32))
