"""The fields of flat JSON objects: where the value of each known key is, without making any value.

A body is *read* if it is one object of RFC 8259 whose values are texts without escapes, numbers, true, false and null,
whose keys differ, and which has at most MAX_UNKNOWN_KEYS keys that are not known. Its UTF-8 must have been checked. A
body that is not read may be valid as well: the caller decodes it in another way.

``bodies`` (uint8, read-only) has the bodies one behind the other, ``offsets`` (int64) one number more than bodies.
``keys`` and ``key_offsets`` have the known keys in the same form. ``kinds``, ``at`` and ``length`` are matrices (int64)
with a row for each key: the kind of the value (JSON_… of ``codes``), its position and its length; a text's are those
between its quotes. ``states`` (int64) gets 0 for a body that is not read, otherwise 1 plus the unknown keys.
``scratch`` (int64) has two rows of MAX_UNKNOWN_KEYS.
"""

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import (
    JSON_FALSE,
    JSON_FRACTION,
    JSON_INTEGER,
    JSON_MISSING,
    JSON_NULL,
    JSON_TEXT,
    JSON_TRUE,
    MAX_UNKNOWN_KEYS,
)
from gantrymq.kernels.entries import same_bytes
from gantrymq.kernels.jit import helper, kernel

_QUOTE, _BACKSLASH, _COMMA, _COLON = ord('"'), ord("\\"), ord(","), ord(":")
_OPEN, _CLOSE, _SPACE = ord("{"), ord("}"), ord(" ")
_MINUS, _PLUS, _POINT, _ZERO, _NINE = ord("-"), ord("+"), ord("."), ord("0"), ord("9")
_LOWER_E, _UPPER_E, _TAB, _LINE_FEED, _RETURN = ord("e"), ord("E"), 9, 10, 13
_T, _F, _N, _R, _U, _A, _L, _S = ord("t"), ord("f"), ord("n"), ord("r"), ord("u"), ord("a"), ord("l"), ord("s")


@helper
def _after_space(buf: Bytes, at: int, end: int) -> int:
    while at < end and buf[at] <= _SPACE and (buf[at] in (_SPACE, _LINE_FEED, _RETURN, _TAB)):
        at += 1
    return at


@helper
def _text_end(buf: Bytes, at: int, end: int) -> int:
    """The position of the closing quote, or -1 for a text with an escape, a control character or no end."""
    while at < end:
        byte = buf[at]
        if byte == _QUOTE:
            return at
        if byte == _BACKSLASH or byte < _SPACE:
            return -1
        at += 1
    return -1


@helper
def _digits_end(buf: Bytes, at: int, end: int) -> int:
    while at < end and _ZERO <= buf[at] <= _NINE:
        at += 1
    return at


@helper
def _number_end(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """The end of a number and its kind, or -1 if it is none."""
    at += buf[at] == _MINUS
    digits = _digits_end(buf, at, end)
    if digits == at or (buf[at] == _ZERO and digits > at + 1):
        return -1, 0
    kind, at = JSON_INTEGER, digits
    if at < end and buf[at] == _POINT:
        digits = _digits_end(buf, at + 1, end)
        if digits == at + 1:
            return -1, 0
        kind, at = JSON_FRACTION, digits
    if at < end and (buf[at] == _LOWER_E or buf[at] == _UPPER_E):
        at += 1
        if at < end and (buf[at] == _PLUS or buf[at] == _MINUS):
            at += 1
        digits = _digits_end(buf, at, end)
        if digits == at:
            return -1, 0
        kind, at = JSON_FRACTION, digits
    return at, kind


@helper
def _word_end(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """The end of true, false or null, or -1."""
    if at + 4 <= end:
        if buf[at] == _T and buf[at + 1] == _R and buf[at + 2] == _U and buf[at + 3] == _LOWER_E:
            return at + 4, JSON_TRUE
        if buf[at] == _N and buf[at + 1] == _U and buf[at + 2] == _L and buf[at + 3] == _L:
            return at + 4, JSON_NULL
        if buf[at] == _F and buf[at + 1] == _A and buf[at + 2] == _L and buf[at + 3] == _S:
            return (at + 5, JSON_FALSE) if at + 5 <= end and buf[at + 4] == _LOWER_E else (-1, 0)
    return -1, 0


@helper
def _find_key(buf: Bytes, at: int, length: int, keys: Bytes, key_offsets: Int64s, guess: int) -> int:
    """The number of a key, or -1. Keys usually come in the order of the schema, so ``guess`` is tried first."""
    count = key_offsets.size - 1
    for step in range(count):
        key = guess + step
        if key >= count:
            key -= count
        begin = key_offsets[key]
        if key_offsets[key + 1] - begin == length and same_bytes(buf, at, keys, begin, length):
            return key
    return -1


@helper
def _is_new(buf: Bytes, at: int, length: int, scratch: Int64s, count: int) -> bool:
    """Whether an unknown key differs from those before it."""
    i = 0
    while i < count and not (scratch[1, i] == length and same_bytes(buf, at, buf, scratch[0, i], length)):
        i += 1
    return i == count


@helper
def _read(
    buf: Bytes,
    at: int,
    end: int,
    row: int,
    keys: Bytes,
    key_offsets: Int64s,
    kinds: Int64s,
    starts: Int64s,
    lengths: Int64s,
    scratch: Int64s,
) -> int:
    """Read one body: its state."""
    at = _after_space(buf, at, end)
    if at >= end or buf[at] != _OPEN:
        return 0
    at = _after_space(buf, at + 1, end)
    unknown, guess, is_first = 0, 0, True
    while at < end and not (is_first and buf[at] == _CLOSE):
        if buf[at] != _QUOTE:
            return 0
        begin = at + 1
        stop = _text_end(buf, begin, end)
        if stop < 0:
            return 0
        key = _find_key(buf, begin, stop - begin, keys, key_offsets, guess)
        if key >= 0:
            if kinds[key, row] != JSON_MISSING:
                return 0
            guess = key + 1 if key + 2 < key_offsets.size else 0
        else:
            if unknown == MAX_UNKNOWN_KEYS or not _is_new(buf, begin, stop - begin, scratch, unknown):
                return 0
            scratch[0, unknown], scratch[1, unknown] = begin, stop - begin
            unknown += 1
        at = _after_space(buf, stop + 1, end)
        if at >= end or buf[at] != _COLON:
            return 0
        at = _after_space(buf, at + 1, end)
        if at >= end:
            return 0
        begin, kind = at, JSON_TEXT
        if buf[at] == _QUOTE:
            begin = at + 1
            stop = _text_end(buf, begin, end)
            at = stop + 1
        elif buf[at] <= _NINE:
            stop, kind = _number_end(buf, at, end)
            at = stop
        else:
            stop, kind = _word_end(buf, at, end)
            at = stop
        if stop < 0:
            return 0
        if key >= 0:
            kinds[key, row], starts[key, row], lengths[key, row] = kind, begin, stop - begin
        at = _after_space(buf, at, end)
        is_first = False
        if at < end and buf[at] == _COMMA:
            at = _after_space(buf, at + 1, end)
        elif at < end and buf[at] == _CLOSE:
            break
        else:
            return 0
    if at >= end or _after_space(buf, at + 1, end) != end:
        return 0
    return 1 + unknown


@kernel
def json_fields(
    bodies: Bytes,
    offsets: Int64s,
    n: int,
    keys: Bytes,
    key_offsets: Int64s,
    kinds: Int64s,
    at: Int64s,
    length: Int64s,
    states: Int64s,
    scratch: Int64s,
) -> int:
    """Read the first ``n`` bodies. Returns how many were read."""
    count = 0
    for row in range(n):
        for key in range(key_offsets.size - 1):
            kinds[key, row] = JSON_MISSING
            length[key, row] = -1
            at[key, row] = 0
        states[row] = _read(bodies, offsets[row], offsets[row + 1], row, keys, key_offsets, kinds, at, length, scratch)
        count += states[row] != 0
    return count
