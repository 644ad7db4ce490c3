"""The index file: header, entries, the hash of a key, and what a message is indexed under."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
    file_size,
    index_keys,
    key_hash,
)

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


def test_index_header_has_documented_layout() -> None:
    header = IndexHeader(0x18BCFE56800, 0x18BCFE56801, 112, 224, 2, 3)
    raw = bytes.fromhex("0000018bcfe56800 0000018bcfe56801 0000000000000070 00000000000000e0 00000002 00000003")
    assert encode_header(header) == raw
    assert decode_header(raw) == header


def test_new_index_file_counts_1_because_entry_0_is_unused() -> None:
    assert encode_header(IndexHeader()) == bytes(39) + b"\x01"


@pytest.mark.parametrize("count", ["00000000", "ffffffff", "80000000"])
def test_index_count_below_1_is_read_as_1(count: str) -> None:
    assert decode_header(bytes(36) + bytes.fromhex(count)).index_count == 1


def test_index_entry_has_documented_layout() -> None:
    entry = IndexEntry(key_hash=99162322, phy_offset=112, time_diff_s=-1, previous=7)
    raw = bytes.fromhex("05e918d2 0000000000000070 ffffffff 00000007")
    assert encode_entry(entry) == raw
    assert decode_entry(b"\xff" + raw, 1) == entry


@given(LONGS, LONGS, LONGS, LONGS, INTS, st.integers(1, (1 << 31) - 1))
def test_index_header_round_trips(begin_ms: int, end_ms: int, begin: int, end: int, slots: int, count: int) -> None:
    header = IndexHeader(begin_ms, end_ms, begin, end, slots, count)
    assert decode_header(encode_header(header)) == header


@given(INTS, LONGS, INTS, INTS)
def test_index_entry_round_trips(hashed: int, phy_offset: int, time_diff_s: int, previous: int) -> None:
    entry = IndexEntry(hashed, phy_offset, time_diff_s, previous)
    assert decode_entry(encode_entry(entry), 0) == entry


@pytest.mark.parametrize(("slots", "entries", "size"), [(1, 2, 84), (5_000_000, 20_000_000, 420_000_040)])
def test_index_file_size_is_header_slots_and_entries(slots: int, entries: int, size: int) -> None:
    assert file_size(slots, entries) == size
    assert (HEADER_SIZE, ENTRY_SIZE) == (40, 20)


# Keys


def test_key_hash_is_absolute_hash_of_topic_and_key() -> None:
    # "t#b" = (116 * 31 + 35) * 31 + 98
    assert key_hash("t", "b") == 112_659
    # ("orders#zunqato").hashCode() is Integer.MIN_VALUE, whose absolute value Java does not have.
    assert key_hash("orders", "zunqato") == 0


@given(st.text(max_size=20), st.text(max_size=20))
def test_key_hash_has_31_bits(topic: str, key: str) -> None:
    assert 0 <= key_hash(topic, key) < 1 << 31


def test_keys_with_equal_hash_are_not_distinguished() -> None:
    assert key_hash("orders", "AaAa") == key_hash("orders", "BBBB") == key_hash("orders", "AaBB")


def test_message_is_indexed_by_unique_key_then_keys_then_tag() -> None:
    properties = {"TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "U"}
    assert list(index_keys(properties)) == ["U", "a", "b", "T#paid"]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({}, []),
        ({"KEYS": "  a   b "}, ["a", "b"]),
        ({"KEYS": " "}, []),
        ({"KEYS": "a a"}, ["a", "a"]),
        ({"TAGS": ""}, []),
        ({"other": "x"}, []),
    ],
)
def test_empty_keys_are_passed_over_and_repeated_ones_are_not(properties: dict[str, str], keys: list[str]) -> None:
    assert list(index_keys(properties)) == keys
