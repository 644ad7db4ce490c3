"""Reads plain sends from the frames of a connection, without decoding commands.

A send is plain if its frame has the usual form: an ASCII JSON header without blanks, and without escapes except those
of the two separators of properties, with the fields of SEND_MESSAGE_V2 as strings. Anything else ends the run, and the
general decoder reads those frames.

Source: RemotingCommand.decode, SendMessageRequestHeaderV2, SendMessageProcessor.
"""

from typing import Any, NamedTuple

import numpy as np

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.entries import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, same_bytes
from gantrymq.kernels.intrinsics import load_i32
from gantrymq.kernels.jit import helper, kernel, rare_helper
from gantrymq.kernels.send_columns import (
    BODY_AT,
    BODY_LENGTH,
    BORN_TIMESTAMP,
    COMMAND_FLAG,
    MAX_NAMES,
    MESSAGE_FLAG,
    OPAQUE,
    PROPERTIES_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID,
    RECONSUME_TIMES,
    SYS_FLAG,
    TOPIC_AT,
    TOPIC_LENGTH,
    UNIQUE_AT,
    UNIQUE_LENGTH,
)
from gantrymq.model.message import PROPERTY_UNIQ_KEY, PROPERTY_WAIT

FRAME_HEAD_SIZE = 8
_SEND_MESSAGE_V2 = 310
_ONEWAY = 2
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _BACKSLASH, _MINUS, _ZERO, _NINE = b'":,{}\\-09'
_SPACE, _TILDE = b" ~"
_A, _N = b"an"
_ESCAPE = np.frombuffer(rb"\u000", np.uint8)
_CODE, _FLAG, _OPAQUE_NAME, _VERSION, _EXT_FIELDS, _FALSE, _WAIT_NAME, _UNIQ_KEY, _TRUE, _NULL = (
    np.frombuffer(name.encode(), np.uint8)
    for name in (
        *("code", "flag", "opaque", "version", "extFields"),
        *("false", PROPERTY_WAIT, PROPERTY_UNIQ_KEY, "true", "null"),
    )
)
_MAX_DIGITS = 18
_MAX_INT = (1 << 31) - 1
# The fields that a header must have.
_HAS_CODE, _HAS_FLAG, _HAS_OPAQUE, _HAS_VERSION, _HAS_FIELDS = (1 << bit for bit in range(5))
_HAS_ALL = (1 << 5) - 1
# The fields of a send, a to n in the order of their letters: the required ones, and those that are numbers.
_A_TO_I = (1 << 9) - 1
_D, _E, _F, _G, _H, _I, _J, _L, _M, _B = (ord(letter) - _A for letter in "defghijlmb")
_LONG = 1 << _G
_NUMBERS = 1 << _D | 1 << _E | 1 << _F | 1 << _G | 1 << _H | 1 << _J | 1 << _L


class Number(NamedTuple):
    """A parsed number. ``ok`` is False if the text was not a valid number."""

    ok: bool
    value: int


@helper
def _is(buf: Bytes, at: int, end: int, name: Bytes) -> bool:
    return end - at == name.size and same_bytes(buf, at, name, 0, name.size)


@rare_helper
def _number(buf: Bytes, at: int, end: int) -> Number:
    """Parse a decimal number without superfluous zeros.

    It may have at most ``_MAX_DIGITS`` digits, so that no digit is lost.
    """
    negative = at < end and buf[at] == _MINUS
    first = at + negative
    if first >= end or end - first > _MAX_DIGITS or (buf[first] == _ZERO and end - first > 1):
        return Number(False, 0)
    value = 0
    for i in range(first, end):
        digit = int(np.int64(buf[i])) - _ZERO
        if digit < 0 or digit > _NINE - _ZERO:
            return Number(False, 0)
        value = value * 10 + digit
    return Number(True, -value if negative else value)


@helper
def _fits_int(value: int) -> bool:
    return -_MAX_INT - 1 <= value <= _MAX_INT


@rare_helper
def _text_end(buf: Bytes, at: int, stop: int) -> int:
    """Return the position of the quote that ends a plain text, or -1."""
    while at < stop:
        byte = buf[at]
        if byte == _QUOTE:
            return int(at)
        if byte < _SPACE or byte > _TILDE or byte == _BACKSLASH:
            return -1
        at += 1
    return -1


@rare_helper
def _bare_end(buf: Bytes, at: int, stop: int) -> int:
    """Return the position of the comma or the bracket that ends a number or a word like null, or -1."""
    begin = at
    while at < stop:
        byte = buf[at]
        if byte in (_COMMA, _CLOSE):
            return int(at) if at > begin else -1
        is_digit = byte == _MINUS or _ZERO <= byte <= _NINE
        if not is_digit and not _A <= byte < _OPEN:
            return -1
        at += 1
    return -1


class Copied(NamedTuple):
    """A text without its escapes: the position of the quote after it (-1: not plain), and the end of the copy."""

    quote: int
    end: int


@rare_helper
def _copy_text(buf: Bytes, at: int, stop: int, text: Bytes, to: int) -> Copied:
    """Copy the text at ``at`` to ``text[to:]``.

    The only escapes that it may contain are those of the two separators.
    """
    while at < stop and to < text.size:
        byte = buf[at]
        if byte == _QUOTE:
            return Copied(at, to)
        if byte < _SPACE or byte > _TILDE:
            break
        if byte == _BACKSLASH:
            if at + 6 > stop or not same_bytes(buf, at, _ESCAPE, 0, _ESCAPE.size):
                break
            byte = buf[at + 5] - _ZERO
            if byte not in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
                break
            at += 5
        text[to] = byte
        to += 1
        at += 1
    return Copied(-1, to)


@rare_helper
def _fields(buf: Bytes, at: int, stop: int, columns: Int64s, i: int, text: Bytes, used: int, flags_off: int) -> Copied:
    """Read extFields, the object whose first key is at ``at``. Returns its end and the used size of ``text``."""
    seen, properties_end = 0, used
    while at < stop and buf[at] == _QUOTE:
        key, key_end = at + 1, _text_end(buf, at + 1, stop)
        if key_end < 0 or key_end + 3 > stop or buf[key_end + 1] != _COLON or buf[key_end + 2] != _QUOTE:
            break
        letter = int(np.int64(buf[key])) - _A if key_end - key == 1 and _A <= buf[key] <= _N else -1
        begin = key_end + 3
        if letter == _I:
            copied = _copy_text(buf, begin, stop, text, used)
            end, properties_end = copied.quote, copied.end
        else:
            end = _text_end(buf, begin, stop)
        if end < 0 or end + 1 >= stop:
            break
        if letter >= 0:
            if seen >> letter & 1 or not _take(buf, begin, end, letter, columns, i, flags_off):
                break
            seen |= 1 << letter
        at = end + 2
        if buf[end + 1] == _CLOSE:
            return Copied(at if seen & _A_TO_I == _A_TO_I else -1, properties_end)
        if buf[end + 1] != _COMMA:
            break
    return Copied(-1, used)


@helper
def _take(buf: Bytes, begin: int, end: int, letter: int, columns: Int64s, i: int, flags_off: int) -> bool:
    """Store the value of one field. Returns False if no plain send has this value."""
    if letter == _B:
        columns[TOPIC_AT, i], columns[TOPIC_LENGTH, i] = begin, end - begin
    elif letter == _M:
        return bool(_is(buf, begin, end, _FALSE))
    elif _NUMBERS >> letter & 1:
        number = _number(buf, begin, end)
        if not number.ok or not (_fits_int(number.value) or _LONG >> letter & 1):
            return False
        if letter == _E:
            columns[QUEUE_ID, i] = number.value
            return bool(number.value >= 0)
        if letter == _F:
            columns[SYS_FLAG, i] = number.value
            return bool(number.value & flags_off == 0)
        if letter == _G:
            columns[BORN_TIMESTAMP, i] = number.value
        elif letter == _H:
            columns[MESSAGE_FLAG, i] = number.value
        elif letter == _J:
            columns[RECONSUME_TIMES, i] = number.value
    return True


@rare_helper
def _header(buf: Bytes, at: int, stop: int, columns: Int64s, i: int, text: Bytes, used: int, flags_off: int) -> int:
    """Read the header ``buf[at:stop]``. Returns the used size of ``text``, or -1 if the send is not plain."""
    seen_bits, after = 0, -1
    columns[RECONSUME_TIMES, i] = 0
    if at >= stop or buf[at] != _OPEN:
        return -1
    at += 1
    while at < stop and buf[at] == _QUOTE:
        key, key_end = at + 1, _text_end(buf, at + 1, stop)
        if key_end < 0 or key_end + 2 >= stop or buf[key_end + 1] != _COLON:
            return -1
        begin = key_end + 2
        bit = _top_level(buf, key, key_end)
        if seen_bits & bit:
            return -1
        seen_bits |= bit
        if bit == _HAS_FIELDS:
            if buf[begin] != _OPEN:
                return -1
            fields = _fields(buf, begin + 1, stop, columns, i, text, used, flags_off)
            after, end = fields.end, fields.quote
        elif buf[begin] == _QUOTE and not bit:
            end = _text_end(buf, begin + 1, stop) + 1 or -1
        else:
            end = _bare_end(buf, begin, stop)
            if not (_take_number(buf, begin, end, bit, columns, i) if bit else _is(buf, begin, end, _NULL)):
                return -1
        if end < 0 or end >= stop:
            return -1
        at = end + 1
        if buf[end] == _CLOSE:
            return int(after) if seen_bits == _HAS_ALL and at == stop else -1
        if buf[end] != _COMMA:
            return -1
    return -1


@helper
def _top_level(buf: Bytes, key: int, end: int) -> int:
    if _is(buf, key, end, _CODE):
        return _HAS_CODE
    if _is(buf, key, end, _FLAG):
        return _HAS_FLAG
    if _is(buf, key, end, _OPAQUE_NAME):
        return _HAS_OPAQUE
    if _is(buf, key, end, _VERSION):
        return _HAS_VERSION
    return _HAS_FIELDS if _is(buf, key, end, _EXT_FIELDS) else 0


@helper
def _take_number(buf: Bytes, begin: int, end: int, bit: int, columns: Int64s, i: int) -> bool:
    number = _number(buf, begin, end)
    if not number.ok or not _fits_int(number.value):
        return False
    if bit == _HAS_CODE:
        return bool(number.value == _SEND_MESSAGE_V2)
    if bit == _HAS_FLAG:
        columns[COMMAND_FLAG, i] = number.value
        return bool(number.value in (0, _ONEWAY))
    if bit == _HAS_OPAQUE:
        columns[OPAQUE, i] = number.value
    return True


@helper
def _is_alnum(byte: Any) -> bool:
    letter = byte | 0x20
    return bool(_ZERO <= byte <= _NINE or _A <= letter < _OPEN)


@rare_helper
def _is_one_of(buf: Bytes, at: int, length: int, names: Bytes, ends: Int64s) -> bool:
    begin = 0
    for i in range(ends.size):
        if ends[i] - begin == length and same_bytes(buf, at, names, begin, length):
            return True
        begin = ends[i]
    return False


@rare_helper
def _entries(
    text: Bytes, start: int, stop: int, columns: Int64s, i: int, acted_on: Bytes, ends: Int64s, seen: Int64s
) -> bool:
    """Find UNIQ_KEY in the properties ``text[start:stop]``. Returns whether they can be stored unchanged."""
    columns[UNIQUE_LENGTH, i] = 0
    count, at = 0, start
    while at < stop:
        name = at
        while at < stop and text[at] > PROPERTY_SEPARATOR:
            at += 1
        length, value = at - name, at + 1
        if at == stop or text[at] != NAME_VALUE_SEPARATOR or not length or count == MAX_NAMES:
            return False
        at = value
        while at < stop and text[at] > PROPERTY_SEPARATOR:
            at += 1
        if at in (stop, value) or text[at] != PROPERTY_SEPARATOR:
            return False
        if _is_one_of(text, name, length, acted_on, ends):
            return False
        for j in range(count):
            if seen[1, j] == length and same_bytes(text, name, text, seen[0, j], length):
                return False
        seen[0, count], seen[1, count] = name, length
        count += 1
        if not _look_at(text, name, length, value, at, columns, i):
            return False
        at += 1
    return bool(columns[UNIQUE_LENGTH, i] > 0)


@helper
def _look_at(text: Bytes, name: int, length: int, value: int, end: int, columns: Int64s, i: int) -> bool:
    """Store the position of UNIQ_KEY. Returns False if the send is not plain.

    It is plain if the value of UNIQ_KEY can be put into a response unchanged, and WAIT is true.
    """
    if _is(text, name, name + length, _UNIQ_KEY):
        columns[UNIQUE_AT, i], columns[UNIQUE_LENGTH, i] = value, end - value
        for at in range(value, end):
            if not _is_alnum(text[at]):
                return False
    elif _is(text, name, name + length, _WAIT_NAME):
        return bool(_is(text, value, end, _TRUE))
    return True


@helper
def _is_to_same_topic(data: Bytes, columns: Int64s, i: int) -> bool:
    length = columns[TOPIC_LENGTH, i]
    first, at = columns[TOPIC_AT, 0], columns[TOPIC_AT, i]
    return bool(length == columns[TOPIC_LENGTH, 0] and same_bytes(data, at, data, first, length))


@kernel
def read_sends(
    data: Bytes, start: int, columns: Int64s, text: Bytes, acted_on: Bytes, ends: Int64s, seen: Int64s, flags_off: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """Read plain sends to one topic from the frames at ``data[start:]``.

    Returns (count, end, used, bytes of bodies, bytes of UNIQ_KEYs, longest body, longest properties, largest queue id);
    ``end`` is after the last of them. ``columns[:, :count]`` has the rows of ``send_columns``. ``text[:used]`` gets
    their properties without escapes, each with its last separator; the run ends if it has no more room. ``acted_on``
    has the names of properties that a broker acts on, each ending at one of ``ends``. ``seen`` is working memory of 2 *
    ``MAX_NAMES``. A plain send has none of ``flags_off`` in its sysFlag.
    """
    count, at, used, bodies, ids, body, properties, queue = 0, start, 0, 0, 0, 0, 0, 0
    while count < columns.shape[1] and data.size - at >= FRAME_HEAD_SIZE:
        length, header = load_i32(data, at), load_i32(data, at + 4)
        end = at + 4 + length
        # The serialize type of JSON is 0, so the word is the length of the header. A plain send has a body.
        if length < 4 or end > data.size or header < 0 or header >= length - 4:
            break
        body_at = at + FRAME_HEAD_SIZE + header
        after = _header(data, at + FRAME_HEAD_SIZE, body_at, columns, count, text, used, flags_off)
        if after <= used or after + 1 > text.size:
            break
        if text[after - 1] != PROPERTY_SEPARATOR:
            text[after] = PROPERTY_SEPARATOR
            after += 1
        if not _is_to_same_topic(data, columns, count) or not _entries(
            text, used, after, columns, count, acted_on, ends, seen
        ):
            break
        columns[PROPERTIES_AT, count], columns[PROPERTIES_LENGTH, count] = used, after - used
        columns[BODY_AT, count], columns[BODY_LENGTH, count] = body_at, end - body_at
        properties, body = max(properties, after - used), max(body, end - body_at)
        queue = max(queue, columns[QUEUE_ID, count])
        bodies += end - body_at
        ids += columns[UNIQUE_LENGTH, count]
        used, at = after, end
        count += 1
    return count, at, used, bodies, ids, body, properties, queue
