"""The properties of a record: separators, what Java drops, and the CRC whose digits stand the other way round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.properties import (
    CRC_PROPERTY_SIZE,
    decode_crc_property,
    decode_properties,
    encode_crc_property,
    encode_properties,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)


def test_separator_follows_every_name_and_value() -> None:
    assert encode_properties({"TAGS": "paid", "数量": "2"}) == b"TAGS\x01paid\x02\xe6\x95\xb0\xe9\x87\x8f\x012\x02"
    assert encode_properties({}) == b""


def test_properties_without_last_separator_are_decoded() -> None:
    assert decode_properties(b"a\x011\x02b\x012") == {"a": "1", "b": "2"}
    assert decode_properties(b"") == {}


@given(st.dictionaries(TEXT, TEXT, max_size=6))
def test_decoding_inverts_encoding_and_keeps_order(properties: dict[str, str]) -> None:
    assert list(decode_properties(encode_properties(properties)).items()) == list(properties.items())


def test_value_with_first_separator_is_decoded() -> None:
    assert decode_properties(encode_properties({"a": "1\x012"})) == {"a": "1\x012"}


@pytest.mark.parametrize("properties", [{"a\x01": "1"}, {"a\x02": "1"}, {"a": "1\x02"}])
def test_property_with_separator_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="separator"):
        encode_properties(properties)


@pytest.mark.parametrize(
    ("raw", "properties"),
    [
        (b"\x01value\x02a\x011\x02", {"a": "1"}),
        (b"name\x01\x02a\x011\x02", {"a": "1"}),
        (b"name\x02a\x011\x02", {"a": "1"}),
        (b"\x02\x02\x02", {}),
        (b"\x01\x02", {}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
    ],
)
def test_empty_properties_are_dropped_and_last_duplicate_wins(raw: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(raw) == properties


def test_malformed_text_reads_as_java_reads_it() -> None:
    assert decode_properties(b"a\x01\xff\x02b\x01\xed\xa0\x80\x02") == {"a": "\ufffd", "b": "\ufffd"}


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_without_error(raw: bytes) -> None:
    for name, value in decode_properties(raw).items():
        assert name
        assert value


# The CRC


@pytest.mark.parametrize(
    ("crc", "raw"),
    [
        (0, b"__CRC32#\x010000000000\x02"),
        (7, b"__CRC32#\x017000000000\x02"),
        (1234567890, b"__CRC32#\x010987654321\x02"),
        (0x7FFFFFFF, b"__CRC32#\x017463847412\x02"),
    ],
)
def test_crc_property_is_ten_digits_with_lowest_first(crc: int, raw: bytes) -> None:
    assert encode_crc_property(crc) == raw
    assert len(raw) == CRC_PROPERTY_SIZE
    assert decode_crc_property(decode_properties(raw)["__CRC32#"]) == crc


@pytest.mark.parametrize("text", ["", "12x4567890", "-123456789", " 123456789", "²²²²²²²²²²", "٣٣٣٣٣٣٣٣٣٣", "1" * 11])
def test_crc_property_with_other_characters_matches_no_record(text: str) -> None:
    assert decode_crc_property(text) == -1


def test_crc_property_of_any_length_is_read() -> None:
    """As in the kernel; Python reads no number of more than 4300 of them."""
    assert decode_crc_property("1" * 5000) == -1
    assert decode_crc_property("7" + "0" * 5000) == 7
