"""Recognizes a log by fingerprints of its records, at the next look at it.

A reader that comes back notes two records of a log by physical offset and fingerprint: the first one of the log, and
the last one that was read of it. If the last is still there, it is the same log. If only the first is, the log was cut
after it. Otherwise it is another log. Retention may have deleted both records. Then nothing can be compared.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from zlib import crc32

from gantrymq.model.message import StoredMessage

_CRC_BITS = 20  # fits into a Java long together with a time in ms
_CRC_MASK = (1 << _CRC_BITS) - 1

Marks = Mapping[int, int]
"""Fingerprints of records by their physical offsets."""


class LogState(Enum):
    """The relation of a log to the one that was read."""

    SAME = "same"
    CUT = "cut"
    OTHER = "other"


def fingerprint(message: StoredMessage) -> int:
    """The fingerprint of a record: its store timestamp, and a checksum of fields that a rewrite changes."""
    fields = (message.topic, message.queue_id, message.queue_offset, message.body_crc, message.born_timestamp_ms)
    return message.store_timestamp_ms << _CRC_BITS | crc32(repr(fields).encode()) & _CRC_MASK


def stored_ms_of(mark: int) -> int:
    """The store timestamp of the record that has the fingerprint ``mark``, in ms."""
    return mark >> _CRC_BITS


def compare_log(log_begin: int, mark_at: Callable[[int], int | None], noted: Marks) -> LogState:
    """Compare a log that begins at ``log_begin`` with the marks ``noted``, of which there is at least one.

    ``mark_at`` returns the fingerprint of the record at a physical offset, or None.
    """
    first, last = min(noted), max(noted)
    if last < log_begin or mark_at(last) == noted[last]:
        return LogState.SAME
    if first < last and mark_at(first) == noted[first]:
        return LogState.CUT
    return LogState.OTHER
