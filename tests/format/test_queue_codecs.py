"""The units of consume queues, plain and extended, and what a tags code is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry, decode_entry, encode_entry, tags_code
from gantrymq.format.queue_ext import (
    MAX_ADDRESS,
    MAX_UNIT_SIZE,
    MIN_UNIT_SIZE,
    QueueExtUnit,
    decode_unit,
    encode_unit,
    is_address,
    to_address,
    to_offset,
    unit_size,
)
from gantrymq.model.message import SCHEDULE_TOPIC
from store_cases import NOON_MS

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
LEVELS_MS = MessageStoreConfig().delay_levels_ms


# Plain units


def test_unit_has_documented_layout() -> None:
    raw = bytes.fromhex("0000000000001000 00000070 ffffffffffffffff")
    assert encode_entry(QueueEntry(0x1000, 112, -1)) == raw
    assert decode_entry(raw) == QueueEntry(0x1000, 112, -1)
    assert decode_entry(b"\xff" * 3 + raw, 3) == QueueEntry(0x1000, 112, -1)


def test_filler_unit_has_max_size() -> None:
    assert encode_entry(PRE_BLANK) == bytes.fromhex("0000000000000000 7fffffff 0000000000000000")


@given(LONGS, st.integers(-(1 << 31), (1 << 31) - 1), LONGS)
def test_unit_round_trips(phy_offset: int, size: int, code: int) -> None:
    entry = QueueEntry(phy_offset, size, code)
    raw = encode_entry(entry)
    assert len(raw) == UNIT_SIZE
    assert decode_entry(raw) == entry


@pytest.mark.parametrize(
    ("entry", "valid"),
    [
        (QueueEntry(0, 1, 0), True),
        (PRE_BLANK, True),
        (QueueEntry(0, 0, 0), False),
        (QueueEntry(-1, 112, 0), False),
        (QueueEntry(112, -1, 0), False),
    ],
)
def test_unit_with_phy_offset_and_size_is_written(entry: QueueEntry, valid: bool) -> None:
    assert entry.is_valid is valid


# The tags code


def test_tags_code_is_java_hash_of_tag_or_0() -> None:
    assert tags_code("orders", {"TAGS": "hello"}, NOON_MS, LEVELS_MS) == 99162322
    assert tags_code("orders", {"TAGS": "polygenelubricants"}, NOON_MS, LEVELS_MS) == -(1 << 31)
    assert tags_code("orders", {}, NOON_MS, LEVELS_MS) == 0


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1_000), ("5", 60_000), ("+5", 60_000), ("18", 7_200_000), ("19", 7_200_000)]
)
def test_tags_code_in_delay_topic_is_deliver_time(level: str, delay_ms: int) -> None:
    properties = {"DELAY": level, "TAGS": "hello"}
    assert tags_code(SCHEDULE_TOPIC, properties, NOON_MS, LEVELS_MS) == NOON_MS + delay_ms
    assert tags_code("orders", properties, NOON_MS, LEVELS_MS) == 99162322


@pytest.mark.parametrize("level", ["", "0", "-1", "+", "+0", "++5", "+-5", "5+", "x", "1.5", "²", "٣"])
def test_invalid_delay_level_leaves_hash_of_tag(level: str) -> None:
    assert tags_code(SCHEDULE_TOPIC, {"DELAY": level, "TAGS": "hello"}, NOON_MS, LEVELS_MS) == 99162322


def test_delay_level_without_configured_levels_is_one_second() -> None:
    assert tags_code(SCHEDULE_TOPIC, {"DELAY": "3"}, NOON_MS, ()) == NOON_MS + 1_000


@pytest.mark.parametrize(("levels_ms", "delay_ms"), [(LEVELS_MS, 7_200_000), ((), 1_000)])
def test_delay_level_of_any_digits_is_read(levels_ms: tuple[int, ...], delay_ms: int) -> None:
    """As in the kernel; Python reads no number of more than 4300 of them."""
    for level in ("1" * 5000, "0" * 5000 + "99", "1" + "0" * 5000):
        assert tags_code(SCHEDULE_TOPIC, {"DELAY": level}, NOON_MS, levels_ms) == NOON_MS + delay_ms
    assert tags_code(SCHEDULE_TOPIC, {"DELAY": "0" * 5000}, NOON_MS, levels_ms) == 0


# Extended units


def test_extended_unit_has_documented_layout() -> None:
    unit = QueueExtUnit(tags_code=-2, store_time_ms=0x18BCFE56800, bit_map=b"\xaa\x55")
    raw = bytes.fromhex("0016 fffffffffffffffe 0000018bcfe56800 0002 aa55")
    assert encode_unit(unit) == raw
    assert unit.size_bytes == unit_size(raw) == 22
    assert decode_unit(raw + b"more") == unit


@given(LONGS, LONGS, st.binary(max_size=100))
def test_every_extended_unit_is_read_back(code: int, store_time_ms: int, bit_map: bytes) -> None:
    unit = QueueExtUnit(code, store_time_ms, bit_map)
    assert decode_unit(encode_unit(unit)) == unit


def test_longest_extended_unit_is_read_back() -> None:
    unit = QueueExtUnit(1, NOON_MS, b"\xff" * (MAX_UNIT_SIZE - MIN_UNIT_SIZE))
    assert decode_unit(encode_unit(unit)) == unit


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "0014",
        "0000" + "00" * 18,  # unwritten
        "ffff" + "00" * 18,  # the end of a file
        "0013" + "00" * 18,  # too small to be one
        "0015" + "00" * 16 + "0001",  # cut off
        "0015" + "00" * 16 + "0002" + "00" * 4,  # two lengths that contradict each other
        "7fff" + "00" * 18,
    ],
)
def test_invalid_extended_unit_decodes_to_none(raw: str) -> None:
    assert decode_unit(bytes.fromhex(raw)) is None


@given(st.binary(max_size=64))
def test_damaged_extended_units_are_none_or_no_longer_than_their_bytes(raw: bytes) -> None:
    unit = decode_unit(raw)
    assert unit is None or unit.size_bytes <= len(raw)


@pytest.mark.parametrize(("offset", "address"), [(0, -(1 << 63)), (22, -(1 << 63) + 22)])
def test_ext_address_is_offset_above_min_long(offset: int, address: int) -> None:
    assert to_address(offset) == address
    assert to_offset(address) == offset
    assert is_address(address)


def test_hash_code_is_never_taken_for_ext_address() -> None:
    assert MAX_ADDRESS == -(1 << 31) - 1
    assert is_address(-(1 << 31) - 1)
    assert not is_address(-(1 << 31))
    assert not is_address((1 << 31) - 1)
