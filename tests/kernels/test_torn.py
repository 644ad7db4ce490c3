"""Records that a power cut has torn behind their body, where no CRC looks."""

import numpy as np
import pytest

from gantrymq.format.record import SECTOR, CheckCRC, body_crc, encode_record
from gantrymq.kernels import codes
from gantrymq.kernels.api import first_torn, scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage

LENGTH = 8 * SECTOR
HOST = Host(bytes(4), 0)


def record(body: bytes, properties: bytes, *, append_crc: bool = False) -> bytes:
    message = StoredMessage("t", 0, 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0, body_crc(body), body, {})
    return encode_record(message, b"topic", properties, append_crc=append_crc)


def torn_at(raw: bytes) -> tuple[int, int]:
    """(which record is the first torn one, how many there are)."""
    columns = new_columns(64)
    buffer = read_only(raw.ljust(LENGTH, b"\0"))
    count, _, _ = scan(buffer, 0, LENGTH, LENGTH, codes.CHECK_BODY, columns)
    return first_torn(buffer, columns, count), count


def test_intact_records_at_any_offset_are_not_torn() -> None:
    rest = [record(b"\0" * n, properties) for n, properties in ((5, b""), (0, b"a\1b\2"), (300, b"k\1" + b"v" * 900))]
    for length in range(SECTOR):
        assert torn_at(b"".join([record(bytes(length), b""), *rest])) == (4, 4)


@pytest.mark.parametrize("sector", [1, 2, 3])
def test_unwritten_sector_of_properties_is_torn(sector: int) -> None:
    raw = bytearray(
        record(b"body", b"a\1b\2") + record(b"body", b"k\1" + b"v" * 1500 + b"\2") + record(b"x", b"a\1b\2")
    )
    assert torn_at(bytes(raw)) == (3, 3)
    raw[sector * SECTOR : (sector + 1) * SECTOR] = bytes(SECTOR)
    torn, count = torn_at(bytes(raw))
    assert (torn, count >= 2) == (1, True)


def test_unwritten_sector_with_last_bytes_of_properties_is_torn() -> None:
    before = record(bytes(SECTOR - 96 - 96 - 3 - 40), b"")
    raw = bytearray(before + record(b"body", b"key\1" + b"v" * 60 + b"\2"))
    assert SECTOR < len(raw) < SECTOR + 100
    raw[SECTOR:] = bytes(len(raw) - SECTOR)
    assert torn_at(bytes(raw)) == (1, 2)


def at_a_sector(properties: bytes, zeros: bytes, *, append_crc: bool = False) -> bytes:
    """A record with the zeros of its properties from the begin of a sector on."""
    for length in range(SECTOR):
        raw = record(b"b" * length, properties, append_crc=append_crc)
        if raw.index(zeros, raw.index(b"topic")) % SECTOR == 0:
            return raw
    raise AssertionError("no length fits")


@pytest.mark.parametrize("zeros", [1, 50, SECTOR - 4])
@pytest.mark.parametrize("end", [b"\2", b""], ids=["5.5.0", "4.9.8"])
def test_zeros_in_property_are_not_taken_for_unwritten_sector(zeros: int, end: bytes) -> None:
    """A sector that was written holds what comes behind them, of the record or of the next."""
    raw = at_a_sector(b"k\1v" + bytes(zeros) + end, bytes(zeros))
    assert torn_at(raw + record(b"next", b"")) == (2, 2)
    if end:
        assert torn_at(raw) == (1, 1)


def test_zero_sector_with_matching_crc_is_intact() -> None:
    zeros = bytes(SECTOR + 88)
    raw = bytearray(at_a_sector(b"k\1v" + zeros + b"\2", zeros, append_crc=True))
    assert torn_at(bytes(raw)) == (1, 1)
    raw[-30] ^= 1  # still among the zeros' end or what follows: the CRC does not hold any more
    assert torn_at(bytes(raw)) == (0, 1)


def test_zeros_from_middle_of_sector_are_judged_as_by_rocketmq() -> None:
    raw = bytearray(record(b"body", b"k\1" + b"v" * 1500 + b"\2"))
    raw[SECTOR - 1 :] = bytes(len(raw) - SECTOR + 1)
    assert torn_at(bytes(raw)) == (1, 1)
    assert CheckCRC.BODY.value == codes.CHECK_BODY
    assert np.frombuffer(raw, np.uint8)[SECTOR - 2] != 0
