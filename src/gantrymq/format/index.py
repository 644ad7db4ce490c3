"""The index file: a hash table from ``topic#key`` to physical offsets.

======  ===============  ============================================================================
bytes   field            remark
======  ===============  ============================================================================
8       beginTimestamp   storeTimestamp of the first entry; a file that follows a full one begins with
8       endTimestamp     that file's end values, until it has an entry
8       beginPhyOffset
8       endPhyOffset
4       hashSlotCount    how many slots are *used*
4       indexCount       starts at 1: entry 0 is never used, so a file holds maxIndexNum - 1 entries
4 × S   slots            the number of the chain's newest entry; 0: empty
20 × N  entries          keyHash 4, phyOffset 8, timeDiff 4 (seconds since beginTimestamp), previous 4
======  ===============  ============================================================================

keyHash = abs(String.hashCode(topic#key)), 0 if that overflows; slot = keyHash % S. A query compares hash codes
only, so different keys with the same hash code match each other: :func:`has_index_key` compares the keys.

Source: IndexFile, IndexHeader and IndexService.buildIndex.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gantrymq.model.java import string_hash
from gantrymq.model.message import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
MAX_TIME_DIFF_S = 0x7FFFFFFF
TAG_INDEX_TYPE = "T"
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")


@dataclass(slots=True)
class IndexHeader:
    """The first 40 bytes of an index file."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1


class IndexEntry(NamedTuple):
    """One entry; ``previous`` is the number of the next older entry of its chain, 0 at the end."""

    key_hash: int
    phy_offset: int
    time_diff_s: int
    previous: int


def encode_header(header: IndexHeader) -> bytes:
    """The 40 bytes of ``header``."""
    return _HEADER.pack(
        header.begin_timestamp_ms,
        header.end_timestamp_ms,
        header.begin_phy_offset,
        header.end_phy_offset,
        header.hash_slot_count,
        header.index_count,
    )


def decode_header(buffer: bytes | memoryview) -> IndexHeader:
    """The header of a file. As in Java an ``indexCount`` of 0 or less is read as 1."""
    header = IndexHeader(*_HEADER.unpack_from(buffer, 0))
    header.index_count = max(header.index_count, 1)
    return header


def encode_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of ``entry``."""
    return _ENTRY.pack(*entry)


def decode_entry(buffer: bytes | memoryview, position: int) -> IndexEntry:
    """The entry at ``position``."""
    return IndexEntry(*_ENTRY.unpack_from(buffer, position))


def key_hash(topic: str, key: str) -> int:
    """The hash of ``topic#key``: 31 bits, not negative."""
    code = abs(string_hash(f"{topic}#{key}"))
    return 0 if code > 0x7FFFFFFF else code


def index_keys(properties: Mapping[str, str]) -> Iterator[str]:
    """The keys of a message in the index, in RocketMQ's order: UNIQ_KEY, every key, and since 5.5.0 ``T#tags``."""
    if PROPERTY_UNIQ_KEY in properties:
        yield properties[PROPERTY_UNIQ_KEY]
    yield from (key for key in properties.get(PROPERTY_KEYS, "").split(" ") if key)
    if properties.get(PROPERTY_TAGS):
        yield tag_key(properties[PROPERTY_TAGS])


def has_index_key(topic: str, properties: Mapping[str, str], wanted_topic: str, key: str) -> bool:
    """Whether a message of a topic with these properties is in the index under a topic and key, not only its hash."""
    return topic == wanted_topic and key in index_keys(properties)


def tag_key(tag: str) -> str:
    """The key by which messages with a tag are in the index."""
    return f"{TAG_INDEX_TYPE}#{tag}"


def entry_at(slots: int, number: int) -> int:
    """The position of an entry in a file with ``slots`` slots."""
    return HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE


def file_size(slots: int, entries: int) -> int:
    """The size of a file with maxHashSlotNum slots and maxIndexNum entries, in bytes."""
    return entry_at(slots, entries)
