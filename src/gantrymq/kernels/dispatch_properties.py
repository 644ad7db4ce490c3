"""Finds the properties that dispatch needs, in one pass over a record's properties.

Source: DefaultMessageStore.doDispatch and what it calls: IndexService.buildIndex, CommitLog.checkMessageAndReturnSize.
"""

from typing import NamedTuple

import numpy as np

from gantrymq.kernels.arrays import Bytes, Int64s
from gantrymq.kernels.codes import PROPERTIES_AT, PROPERTIES_LENGTH
from gantrymq.kernels.entries import next_entry, same_bytes
from gantrymq.kernels.jit import helper
from gantrymq.model.message import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY

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
