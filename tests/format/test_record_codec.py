"""The message record: its bytes one by one, its limits, and what is said about bytes that are no record."""

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.properties import encode_properties
from gantrymq.format.record import (
    BLANK_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH_V1,
    MAX_TOPIC_LENGTH_V2,
    MIN_RECORD_SIZE,
    CheckCRC,
    Layout,
    body_crc,
    check_record,
    decode_record,
    encode_blank,
    encode_record,
    read_layout,
    record_size,
)
from gantrymq.format.stop_reason import StopReason
from gantrymq.model import flags
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage
from store_cases import HOST_V4, HOST_V6, NOON_MS

HELLO = StoredMessage(
    topic="orders",
    queue_id=3,
    queue_offset=5,
    phy_offset=0x1000,
    size_bytes=112,
    flag=-2,
    sys_flag=0,
    born_timestamp_ms=0x18BCFE56800,
    born_host=Host(bytes([10, 1, 2, 3]), 10911),
    store_timestamp_ms=0x18BCFE56801,
    store_host=Host(bytes([127, 0, 0, 1]), 80),
    reconsume_times=2,
    prepared_transaction_offset=9,
    body_crc=0x3610A686,
    body=b"hello",
    properties={"TAGS": "paid"},
)
# The same by hand, field by field.
HELLO_FIELDS = {
    "totalSize": "00000070",
    "magic": "daa320a7",
    "bodyCRC": "3610a686",
    "queueId": "00000003",
    "flag": "fffffffe",
    "queueOffset": "0000000000000005",
    "phyOffset": "0000000000001000",
    "sysFlag": "00000000",
    "bornTimestamp": "0000018bcfe56800",
    "bornHost": "0a010203 00002a9f",
    "storeTimestamp": "0000018bcfe56801",
    "storeHost": "7f000001 00000050",
    "reconsumeTimes": "00000002",
    "preparedTransactionOffset": "0000000000000009",
    "body": "00000005 68656c6c6f",
    "topic": "06 6f7264657273",
    "properties": "000a 54414753 01 70616964 02",
}


def raw_of(fields: dict[str, str]) -> bytes:
    return bytes.fromhex(" ".join(fields.values()))


HELLO_BYTES = raw_of(HELLO_FIELDS)


def decoded(raw: bytes) -> StoredMessage:
    layout = read_layout(memoryview(raw), 0, len(raw))
    assert isinstance(layout, Layout), layout
    return decode_record(memoryview(raw), 0, layout)


def stop(raw: bytes, check: CheckCRC = CheckCRC.BODY) -> Layout | StopReason:
    return check_record(memoryview(raw), 0, len(raw), check)


def patched(raw: bytes, position: int, fresh: bytes) -> bytes:
    return raw[:position] + fresh + raw[position + len(fresh) :]


# The bytes


def test_record_has_documented_layout() -> None:
    assert encode_record(HELLO, b"orders", b"TAGS\x01paid\x02") == HELLO_BYTES


def test_record_of_documented_layout_is_decoded() -> None:
    assert decoded(HELLO_BYTES) == HELLO
    assert stop(HELLO_BYTES) == read_layout(memoryview(HELLO_BYTES), 0, len(HELLO_BYTES))


def test_record_version_2_has_other_magic_and_two_byte_topic_length() -> None:
    fields = HELLO_FIELDS | {"totalSize": "00000071", "magic": "daa320ab", "topic": "0006 6f7264657273"}
    message = replace(HELLO, version=2, size_bytes=113)
    assert encode_record(message, b"orders", b"TAGS\x01paid\x02") == raw_of(fields)
    assert decoded(raw_of(fields)) == message


@pytest.mark.parametrize(
    ("sys_flag", "fields", "size"),
    [
        (flags.BORN_HOST_V6, {"bornHost": "20010db8 00000000 00000000 00000001 0000ffff"}, 124),
        (flags.STORE_HOST_V6, {"storeHost": "20010db8 00000000 00000000 00000001 0000ffff"}, 124),
        (
            flags.BORN_HOST_V6 | flags.STORE_HOST_V6,
            dict.fromkeys(("bornHost", "storeHost"), "20010db8 00000000 00000000 00000001 0000ffff"),
            136,
        ),
    ],
)
def test_ipv6_host_has_sixteen_bytes_and_sets_sys_flag_bit(sys_flag: int, fields: dict[str, str], size: int) -> None:
    raw = raw_of(HELLO_FIELDS | {"totalSize": f"{size:08x}", "sysFlag": f"{sys_flag:08x}"} | fields)
    message = replace(HELLO, sys_flag=sys_flag, size_bytes=size)
    if "bornHost" in fields:
        message.born_host = HOST_V6
    if "storeHost" in fields:
        message.store_host = HOST_V6
    assert encode_record(message, b"orders", b"TAGS\x01paid\x02") == raw
    assert decoded(raw) == message


def test_smallest_record_has_91_bytes() -> None:
    empty = replace(HELLO, topic="", body=b"", body_crc=0, properties={}, size_bytes=91)
    raw = encode_record(empty, b"", b"")
    assert len(raw) == record_size(1, 0, 0, 0, 0) == MIN_RECORD_SIZE == 91
    assert decoded(raw) == empty


def test_blank_has_remaining_size_and_magic() -> None:
    assert encode_blank(100) == bytes.fromhex("00000064 cbd43194")


def test_crc_of_body_has_31_bits() -> None:
    assert body_crc(b"hello") == 0x3610A686
    assert body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF  # the check value of CRC-32
    assert body_crc(b"") == 0


def test_crc_property_covers_every_earlier_byte_with_lowest_digit_first() -> None:
    raw = encode_record(HELLO, b"orders", b"TAGS\x01paid\x02", append_crc=True)
    before, tail = raw[:-20], raw[-20:]
    crc = zlib.crc32(before) & 0x7FFFFFFF
    assert tail == b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
    assert before[:4] == struct.pack(">i", 132)
    assert before[4:-12] == HELLO_BYTES[4:-12]
    assert before[-12:-10] == struct.pack(">h", 30)
    assert stop(raw, CheckCRC.WHOLE_RECORD) == read_layout(memoryview(raw), 0, len(raw))


def test_properties_without_last_separator_get_separator_before_crc() -> None:
    raw = encode_record(HELLO, b"orders", b"TAGS\x01paid", append_crc=True)
    assert raw == encode_record(HELLO, b"orders", b"TAGS\x01paid\x02", append_crc=True)


# Round trips and limits


@given(
    body=st.binary(max_size=300),
    topic=st.text(min_size=1, max_size=60),
    properties=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9),
        st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9),
        max_size=4,
    ),
    version=st.sampled_from((1, 2)),
    born_host=st.sampled_from((HOST_V4, HOST_V6)),
    store_host=st.sampled_from((HOST_V4, HOST_V6)),
    offset=st.integers(0, (1 << 63) - 1),
    number=st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_decoding_inverts_encoding(
    body: bytes,
    topic: str,
    properties: dict[str, str],
    version: int,
    born_host: Host,
    store_host: Host,
    offset: int,
    number: int,
) -> None:
    topic_bytes = topic.encode("utf-8", "replace")[:MAX_TOPIC_LENGTH_V1]
    sys_flag = (flags.BORN_HOST_V6 if born_host.is_v6 else 0) | (flags.STORE_HOST_V6 if store_host.is_v6 else 0)
    encoded = encode_properties(properties)
    message = replace(
        HELLO,
        topic=topic_bytes.decode("utf-8", "replace"),
        queue_id=number,
        flag=number,
        reconsume_times=number,
        queue_offset=offset,
        phy_offset=offset,
        prepared_transaction_offset=-offset,
        sys_flag=sys_flag,
        born_host=born_host,
        store_host=store_host,
        body=body,
        body_crc=body_crc(body),
        properties=properties,
        version=version,
        size_bytes=record_size(version, sys_flag, len(body), len(topic_bytes), len(encoded)),
    )
    raw = encode_record(message, topic_bytes, encoded)
    assert decoded(raw) == message
    # It is found in the middle of other bytes as well.
    buffer = memoryview(b"\xff" * 7 + raw + b"\xff" * 9)
    layout = check_record(buffer, 7, len(buffer), CheckCRC.BODY)
    assert isinstance(layout, Layout)
    assert decode_record(buffer, 7, layout) == message


@pytest.mark.parametrize(("version", "length"), [(1, MAX_TOPIC_LENGTH_V1), (2, MAX_TOPIC_LENGTH_V2)])
def test_longest_topic_of_each_version_is_read_back(version: int, length: int) -> None:
    raw = encode_record(replace(HELLO, version=version), b"t" * length, b"")
    assert decoded(raw).topic == "t" * length


def test_longest_properties_are_read_back() -> None:
    value = "v" * (MAX_PROPERTIES_LENGTH - len("k\x01\x02"))
    assert decoded(encode_record(HELLO, b"orders", encode_properties({"k": value}))).properties == {"k": value}


def test_topic_of_128_bytes_in_version_1_has_negative_length_and_ends_log() -> None:
    raw = encode_record(HELLO, b"t" * 128, b"")
    assert stop(raw) is StopReason.HALF


# What is no record


def test_unwritten_bytes_are_distinguished_from_damage() -> None:
    assert stop(bytes(500)) is StopReason.ZEROS


def test_blank_ends_file_unless_larger_than_rest() -> None:
    assert stop(encode_blank(500).ljust(500, b"\0")) is StopReason.BLANK
    assert stop(encode_blank(BLANK_SIZE)) is StopReason.BLANK
    assert stop(encode_blank(501).ljust(500, b"\0")) is StopReason.SIZE


@pytest.mark.parametrize("length", range(BLANK_SIZE))
def test_fewer_than_8_bytes_end_file_without_blank(length: int) -> None:
    assert stop(HELLO_BYTES[:length]) is StopReason.NO_BLANK


@pytest.mark.parametrize("magic", ["daa320a6", "00000000", "ffffffff"])
def test_wrong_magic_is_named(magic: str) -> None:
    assert stop(raw_of(HELLO_FIELDS | {"magic": magic})) is StopReason.MAGIC


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 1, 90, 113, (1 << 31) - 1])
def test_impossible_size_is_named(size: int) -> None:
    assert stop(patched(HELLO_BYTES, 0, struct.pack(">i", size))) is StopReason.SIZE


@pytest.mark.parametrize("size", [91, 111])
def test_size_other_than_sum_of_parts_is_half_record(size: int) -> None:
    assert stop(patched(HELLO_BYTES, 0, struct.pack(">i", size))) is StopReason.HALF


@pytest.mark.parametrize("missing", [1, 50, 104])
def test_truncated_record_is_not_read_past_end(missing: int) -> None:
    assert stop(HELLO_BYTES[:-missing]) is StopReason.SIZE


@pytest.mark.parametrize("sys_flag", ["00000010", "00000020", "00000030"])
def test_flipped_host_flag_is_half_record(sys_flag: str) -> None:
    assert stop(raw_of(HELLO_FIELDS | {"sysFlag": sys_flag})) is StopReason.HALF


@pytest.mark.parametrize("length", ["00000006", "7fffffff", "00000004"])
def test_wrong_body_length_is_half_record(length: str) -> None:
    assert stop(raw_of(HELLO_FIELDS | {"body": f"{length} 68656c6c6f"})) is StopReason.HALF


def test_negative_body_length_means_no_body() -> None:
    raw = raw_of(HELLO_FIELDS | {"totalSize": "0000006b", "body": "ffffffff"})
    assert decoded(raw).body == b""


def test_negative_properties_length_means_no_properties() -> None:
    raw = raw_of(HELLO_FIELDS | {"totalSize": "00000066", "properties": "8000"})
    assert decoded(raw).properties == {}


@pytest.mark.parametrize("position", range(88, 93))
def test_flipped_body_bit_is_detected_by_crc_check(position: int) -> None:
    raw = patched(HELLO_BYTES, position, bytes([HELLO_BYTES[position] ^ 0x10]))
    assert stop(raw) is StopReason.CRC
    assert isinstance(stop(raw, CheckCRC.OFF), Layout)


def test_empty_body_is_not_checked_by_crc() -> None:
    raw = encode_record(replace(HELLO, body=b"", body_crc=77), b"orders", b"")
    assert isinstance(stop(raw), Layout)


def test_crc_property_detects_flipped_bit_in_any_fixed_field() -> None:
    raw = encode_record(replace(HELLO, store_timestamp_ms=NOON_MS), b"orders", b"TAGS\x01paid\x02", append_crc=True)
    for position in (8, 12, 16, 20, 28, 39, 40, 48, 56, 64, 72, 76, 88, 94, 102):
        damaged = patched(raw, position, bytes([raw[position] ^ 0x01]))
        assert stop(damaged, CheckCRC.WHOLE_RECORD) is StopReason.CRC, position


def test_record_without_crc_property_fails_forced_check() -> None:
    assert stop(HELLO_BYTES, CheckCRC.WHOLE_RECORD) is StopReason.CRC


@given(st.binary(max_size=200), st.integers(0, 111), st.sampled_from(CheckCRC))
def test_damaged_bytes_are_named_or_read_within_their_limit(noise: bytes, position: int, check: CheckCRC) -> None:
    raw = patched(HELLO_BYTES, position, noise)
    limit = min(len(raw), len(HELLO_BYTES))
    found = check_record(memoryview(raw), 0, limit, check)
    if isinstance(found, Layout):
        assert MIN_RECORD_SIZE <= found.size <= limit
        assert len(decode_record(memoryview(raw)[:limit], 0, found).body) == found.body_length
