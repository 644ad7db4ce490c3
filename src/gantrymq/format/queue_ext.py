"""The unit of an extended consume queue, and its address, which the consume queue has in place of a tags code.

======  ============  ===================================================
bytes   field         remark
======  ============  ===================================================
2       size          of the whole unit; -1 ends a file, 0 is unwritten
8       tagsCode
8       msgStoreTime
2       bitMapSize
n       filterBitMap
======  ============  ===================================================

An address is the unit's offset plus Long.MIN_VALUE. It is at most Integer.MIN_VALUE - 1, so it cannot be mistaken for
the hash code of a tag.

Source: ConsumeQueueExt and its CqExtUnit.
"""

import struct
from typing import NamedTuple

MIN_UNIT_SIZE = 20
MAX_UNIT_SIZE = 0x7FFF
END_BLANK_SIZE = 4
MAX_ADDRESS = -(1 << 31) - 1
_LONG_MIN = -(1 << 63)
_UNIT = struct.Struct(">hqqh")


class QueueExtUnit(NamedTuple):
    """``store_time_ms`` is the record's storeTimestamp, ``bit_map`` the filter's bits."""

    tags_code: int
    store_time_ms: int
    bit_map: bytes = b""

    @property
    def size_bytes(self) -> int:
        """The size of the unit."""
        return MIN_UNIT_SIZE + len(self.bit_map)


def is_address(tags_code: int) -> bool:
    """Whether a consume queue's tags code is the address of an extended unit."""
    return tags_code <= MAX_ADDRESS


def to_address(offset: int) -> int:
    """The address of the unit at ``offset`` (decorate)."""
    return offset + _LONG_MIN


def to_offset(address: int) -> int:
    """The offset of the unit at ``address`` (unDecorate)."""
    return address - _LONG_MIN


def encode_unit(unit: QueueExtUnit) -> bytes:
    """The bytes of ``unit``."""
    return _UNIT.pack(unit.size_bytes, unit.tags_code, unit.store_time_ms, len(unit.bit_map)) + unit.bit_map


def unit_size(raw: bytes) -> int:
    """The size in the first two bytes of a unit; 0 or less if there is no unit."""
    return int.from_bytes(raw[:2], "big", signed=True) if len(raw) >= 2 else 0


def decode_unit(raw: bytes) -> QueueExtUnit | None:
    """Decode a unit from its bytes (more may follow); None if it is invalid or cut off."""
    if len(raw) < MIN_UNIT_SIZE or unit_size(raw) < MIN_UNIT_SIZE:
        return None
    size, tags_code, store_time_ms, bit_map_size = _UNIT.unpack_from(raw)
    if max(bit_map_size, 0) != size - MIN_UNIT_SIZE or size > len(raw):
        return None
    return QueueExtUnit(tags_code, store_time_ms, raw[MIN_UNIT_SIZE:size])
