"""Finds properties in the bytes of a record's properties, without decoding them: one, or in one pass those of dispatch.

The separators 0x01 and 0x02 are ASCII. In neither Java's nor Python's lenient UTF-8 does a malformed sequence swallow
an ASCII byte, so splitting the bytes gives the same entries as splitting the decoded text. An entry without a 0x01,
with an empty name or an empty value is dropped. Of several entries with one name the last wins.

Source: MessageDecoder.string2messageProperties; for dispatch, DefaultMessageStore.doDispatch and what it calls:
IndexService.buildIndex, CommitLog.checkMessageAndReturnSize.
"""

from typing import NamedTuple

import numpy as np

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import PROPERTIES_AT, PROPERTIES_LENGTH
from gantrymq.kernels.intrinsics import (
    CACHE_LINE,
    WINDOW,
    load_half_word,
    load_word,
    match_window,
    prefetch,
    trailing_zeros,
)
from gantrymq.kernels.jit import helper
from gantrymq.model.message import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY

NAME_VALUE_SEPARATOR = 0x01
PROPERTY_SEPARATOR = 0x02


@helper
def find_byte(buf: Bytes, start: int, stop: int, byte: int) -> int:
    """Return the position of the first ``byte`` in ``buf[start:stop]``, or ``stop``."""
    if buf.size < WINDOW:
        while start < stop and buf[start] != byte:
            start += 1
        return start
    while start < stop:
        at = min(start, buf.size - WINDOW)
        window = match_window(buf, at, byte) >> np.uint64(start - at)
        if window:
            return min(start + int(trailing_zeros(window)), stop)
        start = at + WINDOW
    return stop


@helper
def prefetch_entries(buf: Bytes, start: int) -> None:
    """Prefetch the properties at ``start``: three cache lines.

    The third is for the 64-byte window that begins with the last entry: waiting for it was half of the time for a
    record that is no longer in the cache.
    """
    prefetch(buf, start)
    prefetch(buf, start + CACHE_LINE)
    prefetch(buf, start + 2 * CACHE_LINE)


@helper
def same_bytes(first: Bytes, first_at: int, second: Bytes, second_at: int, length: int) -> bool:
    """Whether ``length`` bytes of both arrays are equal."""
    i = 0
    while i + 8 <= length:
        if load_word(first, first_at + i) != load_word(second, second_at + i):
            return False
        i += 8
    if i + 4 <= length:
        if load_half_word(first, first_at + i) != load_half_word(second, second_at + i):
            return False
        i += 4
    while i < length:
        if first[first_at + i] != second[second_at + i]:
            return False
        i += 1
    return True


@helper
def next_entry(buf: Bytes, start: int, stop: int) -> tuple[int, int, int]:
    """Return the first valid entry in ``buf[start:stop]``: (start of its name, its 0x01, end of its value).

    Search for the next one from one byte after that end. Without a valid entry the start is ``stop``.
    """
    while start < stop:
        ends, separators = np.uint64(0), np.uint64(0)
        if start + WINDOW <= buf.size:  # finds both separators of a usual entry in one window
            ends = match_window(buf, start, PROPERTY_SEPARATOR)
            separators = match_window(buf, start, NAME_VALUE_SEPARATOR)
        if ends and separators:
            end = min(start + int(trailing_zeros(ends)), stop)
            separator = min(start + int(trailing_zeros(separators)), end)
        else:
            end = find_byte(buf, start, stop, PROPERTY_SEPARATOR)
            separator = find_byte(buf, start, end, NAME_VALUE_SEPARATOR)
        if start < separator < end - 1:
            return start, separator, end
        start = end + 1
    return stop, stop, stop


@helper
def find_value(buf: Bytes, start: int, stop: int, name: Bytes) -> tuple[int, int]:
    """Return where the value of property ``name`` starts and ends in ``buf[start:stop]``, or (-1, -1) without one."""
    value_begin, value_end = -1, -1
    while start < stop:
        at, separator, end = next_entry(buf, start, stop)
        if separator - at == name.size and at < stop and same_bytes(buf, at, name, 0, name.size):
            value_begin, value_end = separator + 1, end
        start = end + 1
    return value_begin, value_end


_UNIQ_KEY, _KEYS, _TAGS, _DELAY = (
    np.frombuffer(name.encode(), np.uint8) for name in (PROPERTY_UNIQ_KEY, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_DELAY)
)


class Spans(NamedTuple):
    """Where the values of four properties begin and end. Both are 0 for a missing one."""

    unique: int
    unique_end: int
    keys: int
    keys_end: int
    tags: int
    tags_end: int
    delay: int
    delay_end: int


@helper
def dispatch_properties(buf: Bytes, columns: Int64s, i: int) -> Spans:
    """Find UNIQ_KEY, KEYS, TAGS and DELAY in the properties of record i."""
    start = columns[PROPERTIES_AT, i]
    stop = start + columns[PROPERTIES_LENGTH, i]
    unique, unique_end, keys, keys_end, tags, tags_end, delay, delay_end = 0, 0, 0, 0, 0, 0, 0, 0
    while start < stop:
        at, separator, end = next_entry(buf, start, stop)
        length = separator - at
        if length == _UNIQ_KEY.size and same_bytes(buf, at, _UNIQ_KEY, 0, _UNIQ_KEY.size):
            unique, unique_end = separator + 1, end
        elif length == _KEYS.size:
            # Both names have four letters.
            if same_bytes(buf, at, _KEYS, 0, _KEYS.size):
                keys, keys_end = separator + 1, end
            elif same_bytes(buf, at, _TAGS, 0, _TAGS.size):
                tags, tags_end = separator + 1, end
        elif length == _DELAY.size and same_bytes(buf, at, _DELAY, 0, _DELAY.size):
            delay, delay_end = separator + 1, end
        start = end + 1
    return Spans(unique, unique_end, keys, keys_end, tags, tags_end, delay, delay_end)
