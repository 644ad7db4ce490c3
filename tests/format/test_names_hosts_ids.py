"""Names of files, addresses of hosts, and message ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.format.names import index_name, is_index_name, offset_name, parse_offset_name
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage, message_id, parse_message_id
from store_cases import HOST_V4, HOST_V6

HOSTS = st.builds(
    Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, (1 << 31) - 1)
)


# Names


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        ((1 << 63) - (1 << 31), "09223372034707292160"),
    ],
)
def test_file_is_named_after_its_first_offset_in_20_digits(offset: int, name: str) -> None:
    assert offset_name(offset) == name
    assert parse_offset_name(name) == offset


@pytest.mark.parametrize("name", ["", "0", "0" * 19, "0" * 21, "0" * 19 + "x", "-" + "0" * 19, "²" * 20, "٣" * 20])
def test_other_file_name_is_not_offset(name: str) -> None:
    assert parse_offset_name(name) is None


@pytest.mark.parametrize("name", ["09223372034707292161", "09223372036854775807", "9" * 20])
def test_file_name_above_max_offset_is_not_an_offset(name: str) -> None:
    assert parse_offset_name(name) is None


@pytest.mark.usefixtures("shanghai")
def test_index_file_is_named_after_local_time_with_milliseconds() -> None:
    assert index_name(1_700_000_000_007) == "20231115061320007"
    assert index_name(999) == "19700101080000999"


@pytest.mark.parametrize(
    ("name", "is_one"), [("20231115061320007", True), ("2023111506132000", False), ("2023111506132000x", False)]
)
def test_name_of_index_file_has_17_digits(name: str, is_one: bool) -> None:
    assert is_index_name(name) is is_one


# Hosts


@pytest.mark.parametrize(
    ("host", "raw", "text"),
    [
        (HOST_V4, "0a010203 00002a9f", "10.1.2.3:10911"),
        (HOST_V6, "20010db8000000000000000000000001 0000ffff", "2001:db8:0:0:0:0:0:1:65535"),
        (Host(b"\xff\xff\xff\xff", 0), "ffffffff 00000000", "255.255.255.255:0"),
    ],
)
def test_host_has_bytes_of_record_and_text_of_java(host: Host, raw: str, text: str) -> None:
    assert host.to_bytes() == bytes.fromhex(raw)
    assert Host.from_bytes(bytes.fromhex(raw)) == host
    assert str(host) == text


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.1.2.3:10911", HOST_V4),
        ("[2001:db8::1]:65535", HOST_V6),
        ("2001:db8:0:0:0:0:0:1:65535", HOST_V6),
    ],
)
def test_host_is_read_from_its_text(text: str, host: Host) -> None:
    assert Host.parse(text) == host


@pytest.mark.parametrize(
    "text",
    ["", "10.1.2.3", ":10911", "10.1.2.3:", "10.1.2.3:x", "my.host:80", "10.1.2.256:1", "1.2.3.4:²", "1.2.3.4:-1"],
)
def test_invalid_address_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Host.parse(text)


@pytest.mark.parametrize("port", ["65536", "4294967296"])
def test_impossible_port_raises_value_error(port: str) -> None:
    with pytest.raises(ValueError, match="port"):
        Host.parse(f"10.1.2.3:{port}")


@given(HOSTS)
def test_every_host_is_read_back_from_its_bytes(host: Host) -> None:
    assert Host.from_bytes(host.to_bytes()) == host


# Message ids


def test_message_id_is_store_host_and_offset_in_capital_hexadecimal() -> None:
    assert message_id(Host(bytes([127, 0, 0, 1]), 10911), 0xAB) == "7F00000100002A9F00000000000000AB"
    assert message_id(HOST_V6, 1) == "20010DB80000000000000000000000010000FFFF0000000000000001"


@given(HOSTS, st.integers(0, (1 << 63) - 1))
def test_every_message_id_is_read_back_in_either_case(host: Host, phy_offset: int) -> None:
    msg_id = message_id(host, phy_offset)
    assert parse_message_id(msg_id) == parse_message_id(msg_id.lower()) == (host, phy_offset)


@pytest.mark.parametrize("msg_id", ["", "7F", "0" * 31, "0" * 33, "0" * 40, "0" * 57, "x" * 32, " " * 32, "0 " * 16])
def test_invalid_message_id_raises_value_error(msg_id: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_message_id(msg_id)


def test_stored_message_has_id_tag_and_keys() -> None:
    message = StoredMessage(
        "orders", 0, 0, 0xAB, 91, 0, 0, 0, HOST_V4, 0, HOST_V4, 0, 0, 0, b"", {"TAGS": "paid", "KEYS": "a  b"}
    )
    assert message.msg_id == "0A01020300002A9F00000000000000AB"
    assert (message.tags, message.keys) == ("paid", ["a", "b"])
    message.properties = {}
    assert (message.tags, message.keys) == ("", [])
