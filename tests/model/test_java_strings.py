"""Java's texts where RocketMQ relies on them: hashCode over UTF-16, UTF-8 that never fails, numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.model.java import INT_MAX, LONG_MAX, decode_utf8, encode_utf8, parse_number, string_hash

# Printed by Java 17.
HASHES = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "polygenelubricants": -(1 << 31),
    "订单-7": 1085411549,
    "😀": 1772899,  # two units: 0xd83d * 31 + 0xde00
    "a\ud83d": 58364,  # half of such a pair
}


@pytest.mark.parametrize(("text", "code"), HASHES.items())
def test_string_hash_equals_that_of_java(text: str, code: int) -> None:
    assert string_hash(text) == code


@pytest.mark.parametrize("text", ["AaAa", "AaBB", "BBAa", "BBBB"])
def test_known_colliding_strings_have_equal_hash(text: str) -> None:
    assert string_hash(text) == 2_031_744


@given(st.text(st.characters(), max_size=30))
def test_string_hash_is_polynomial_of_31_in_signed_int(text: str) -> None:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()
    whole = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert string_hash(text) == (whole + (1 << 31)) % (1 << 32) - (1 << 31)


@given(st.text(max_size=30))
def test_well_formed_text_is_read_back(text: str) -> None:
    assert decode_utf8(encode_utf8(text)) == text


# What Java 17 makes of each; R is one replacement character.
MALFORMED = {
    "ff": "R",
    "80": "R",
    "c080": "RR",
    "c261": "Ra",
    "c2": "R",
    "e4b8": "R",
    "e4b861": "Ra",
    "e08080": "RRR",
    "eda080": "R",
    "edbfbf61": "Ra",
    "eda080edb080": "RR",
    "f09f98": "R",
    "f09f9861": "Ra",
    "f0808080": "RRRR",
    "f4908080": "RRRR",
    "f5808080": "RRRR",
}


@pytest.mark.parametrize(("raw", "text"), MALFORMED.items())
def test_malformed_bytes_read_as_java_reads_them(raw: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(raw)) == text.replace("R", "\ufffd")


@given(st.binary(max_size=40))
def test_arbitrary_bytes_decode_without_error(raw: bytes) -> None:
    text = decode_utf8(raw)
    assert decode_utf8(encode_utf8(text)) == text


def test_half_surrogate_pair_is_written_as_question_mark() -> None:
    assert encode_utf8("a\ud83db") == b"a?b"
    assert encode_utf8("a\ude00") == b"a?"
    assert encode_utf8("😀") == b"\xf0\x9f\x98\x80"


@pytest.mark.parametrize(
    ("raw", "units"),
    [
        ("eda0", "fffd"),
        ("bff0edbfef80ee", "fffdfffdfffdfffdfffd"),
        ("efa0edbfed90", "fffdfffdfffd"),
        ("dff380eda0", "fffdfffdfffd"),
        ("eda041f0", "fffd0041fffd"),
    ],
)
def test_truncated_surrogate_is_read_as_one_character(raw: str, units: str) -> None:
    assert decode_utf8(bytes.fromhex(raw)).encode("utf-16-be").hex() == units


# Which of them Java 17's Integer.parseInt and Long.parseLong take.
NUMBERS = {
    "0": 0, "+7": 7, "-0012": -12, "٣": 3, "2147483647": INT_MAX, "-2147483648": -INT_MAX - 1, "0" * 60 + "1": 1,
}  # fmt: skip


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert parse_number(text, INT_MAX) == parse_number(text, LONG_MAX) == number


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1_0", "1L", "0x1", "²", "2147483648", "-2147483649"])
def test_text_outside_java_int_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^For input string: "):
        parse_number(text, INT_MAX)


@pytest.mark.parametrize("text", [str(LONG_MAX + 1), str(-LONG_MAX - 2), "9" * 5000])
def test_text_outside_java_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^For input string: "):
        parse_number(text, LONG_MAX)
