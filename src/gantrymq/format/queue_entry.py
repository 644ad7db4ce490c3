"""The unit of a consume queue, and its tags code.

======  =========  ==================================================================================
bytes   field      remark
======  =========  ==================================================================================
8       phyOffset  the record's position in the commit log
4       size       of the record
8       tagsCode   Java's String.hashCode of the tag; 0 without one; the deliver time in the delay topic
======  =========  ==================================================================================

In a queue that begins above offset 0 the earlier slots of the first file are filled with (0, 0x7FFFFFFF, 0).

Source: ConsumeQueue.putMessagePositionInfo and fillPreBlank, CommitLog.checkMessageAndReturnSize.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gantrymq.model.message import PROPERTY_DELAY, PROPERTY_TAGS, SCHEDULE_TOPIC, tag_code

UNIT_SIZE = 20
BLANK_UNIT_SIZE = 0x7FFFFFFF  # the size in a filler slot (Java: pre-blank)
_UNIT = struct.Struct(">qiq")
UNKNOWN_LEVEL_DELAY_MS = 1000
_MAX_DIGITS = 12  # longer numbers are above the highest level anyway; Python reads at most 4300 digits


class QueueEntry(NamedTuple):
    """One unit: ``phy_offset`` and ``size_bytes`` of the record, and its ``tags_code``."""

    phy_offset: int
    size_bytes: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """Whether Java's recovery counts the unit as written."""
        return self.phy_offset >= 0 and self.size_bytes > 0

    @property
    def is_filler(self) -> bool:
        """Whether the slot was filled because it has no message."""
        return self.size_bytes == BLANK_UNIT_SIZE

    @property
    def is_message(self) -> bool:
        """Whether the unit points to a record."""
        return self.is_valid and not self.is_filler


PRE_BLANK = QueueEntry(0, BLANK_UNIT_SIZE, 0)


def encode_entry(entry: QueueEntry) -> bytes:
    """The 20 bytes of ``entry``."""
    return _UNIT.pack(*entry)


def decode_entry(buffer: bytes | memoryview, position: int = 0) -> QueueEntry:
    """The unit at ``position``."""
    return QueueEntry(*_UNIT.unpack_from(buffer, position))


def tags_code(
    topic: str, properties: Mapping[str, str], store_timestamp_ms: int, delay_levels_ms: Sequence[int]
) -> int:
    """The tags code of a record.

    ``delay_levels_ms[i]`` is the delay of level i + 1. In the delay topic the tags code of a record with a level is its
    deliver time; a level above the highest counts as the highest.
    """
    level = _level(properties.get(PROPERTY_DELAY, "")) if topic == SCHEDULE_TOPIC else 0
    if not level:
        return tag_code(properties.get(PROPERTY_TAGS, ""))
    if not delay_levels_ms:
        return store_timestamp_ms + UNKNOWN_LEVEL_DELAY_MS
    return store_timestamp_ms + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]


def _level(text: str) -> int:
    """The level in ``text``, possibly above the highest; 0 if there is none, or if it is below 1."""
    digits = text.removeprefix("+")
    digits = digits.lstrip("0") if digits.isascii() and digits.isdigit() else ""
    return int(digits[:_MAX_DIGITS] or 0)
