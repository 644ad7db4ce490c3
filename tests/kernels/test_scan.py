"""scan against a plain loop over format.record."""

import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import NAMES, broken, golden_logs, random_log, random_record, seeds

from gantrymq.format.record import (
    MIN_RECORD_SIZE,
    CheckCRC,
    Layout,
    check_record,
    decode_record,
    encode_record,
    read_layout,
)
from gantrymq.format.stop_reason import StopReason
from gantrymq.kernels import codes
from gantrymq.kernels.api import read_each, scan
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage

STOPS = {
    StopReason.BLANK: codes.STOP_BLANK,
    StopReason.ZEROS: codes.STOP_ZEROS,
    StopReason.HALF: codes.STOP_HALF,
    StopReason.MAGIC: codes.STOP_MAGIC,
    StopReason.SIZE: codes.STOP_SIZE,
    StopReason.CRC: codes.STOP_CRC,
    StopReason.NO_BLANK: codes.STOP_NO_BLANK,
}
CHECKS = {
    codes.CHECK_OFF: CheckCRC.OFF,
    codes.CHECK_BODY: CheckCRC.BODY,
    codes.CHECK_MARK: CheckCRC.BODY,
    codes.CHECK_WHOLE_RECORD: CheckCRC.WHOLE_RECORD,
    codes.CHECK_MARK_WHOLE_RECORD: CheckCRC.WHOLE_RECORD,
}
MARKING = (codes.CHECK_MARK, codes.CHECK_MARK_WHOLE_RECORD)


def plain_row(buffer: memoryview, at: int, layout: Layout, *, crc_ok: bool) -> list[int]:
    message = decode_record(buffer, at, layout)
    return [
        at, layout.size, message.queue_offset, message.phy_offset, message.store_timestamp_ms, int(crc_ok),
        layout.version, message.body_crc, message.queue_id, message.flag, message.sys_flag, message.born_timestamp_ms,
        at + 48, at + layout.store_host_at, message.reconsume_times, message.prepared_transaction_offset,
        at + layout.body_at, layout.body_length, at + layout.topic_at, layout.topic_length, at + layout.properties_at,
        layout.properties_length,
    ]  # fmt: skip


def plain_scan(raw: bytes, start: int, stop: int, limit: int, check: int, capacity: int):
    buffer = memoryview(raw)
    rows: list[list[int]] = []
    position = start
    while position < stop:
        if len(rows) == capacity:
            return rows, codes.STOP_FULL, position
        found = check_record(buffer, position, limit, CHECKS[check])
        crc_ok = found is not StopReason.CRC
        if not crc_ok and check in MARKING:
            found = read_layout(buffer, position, limit)
        if isinstance(found, StopReason):
            return rows, STOPS[found], position
        rows.append(plain_row(buffer, position, found, crc_ok=crc_ok))
        position += found.size
    return rows, codes.STOP_RANGE, position


def assert_same(raw: bytes, start: int, stop: int, limit: int, check: int, capacity: int) -> None:
    columns = np.full((codes.N_COLUMNS, capacity), -7, np.int64)
    rows, code, position = plain_scan(raw, start, stop, limit, check, capacity)
    assert scan(read_only(raw), start, stop, limit, check, columns) == (len(rows), code, position)
    assert columns[:, : len(rows)].T.tolist() == rows


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_scan_of_golden_stores_equals_reference(name: str, check: int) -> None:
    for raw in golden_logs(name):
        assert_same(raw, 0, len(raw), len(raw), check, 10_000)


@seeds(60)
def test_scan_of_random_logs(seed: int, rng: random.Random) -> None:
    raw = random_log(rng, rng.randrange(12), append_crc=seed % 2 == 0)
    for check in CHECKS:
        assert_same(raw, 0, len(raw), len(raw), check, rng.choice([0, 3, 64]))
        assert_same(raw, 0, len(raw) + 1, len(raw), check, 64)
        stop, limit = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
        assert_same(raw, 0, stop, limit, check, 64)


@seeds(60)
def test_records_are_read_in_any_order(seed: int, rng: random.Random) -> None:
    """Also where no record begins, in broken logs, and outside of them."""
    raw = random_log(rng, rng.randrange(1, 12), append_crc=False)
    raw = broken(rng, raw) if seed % 2 else raw
    limit = rng.choice([len(raw), rng.randrange(len(raw) + 1)])
    rows, _, _ = plain_scan(raw, 0, len(raw), len(raw), codes.CHECK_OFF, 100)
    places = [row[codes.POS] for row in rows] + [rng.randrange(-9, len(raw) + 9) for _ in range(20)]
    rng.shuffle(places)
    columns = new_columns(len(places))
    found = [read_layout(memoryview(raw), place, limit) if place >= 0 else None for place in places]
    whole = read_each(read_only(raw), np.array(places, np.int64), len(places), limit, columns)
    assert whole == sum(isinstance(layout, Layout) for layout in found)
    for i, (place, layout) in enumerate(zip(places, found, strict=True)):
        if isinstance(layout, Layout):
            columns[codes.CRC_OK, i] = True
            assert columns[:, i].tolist() == plain_row(memoryview(raw), place, layout, crc_ok=True)
        else:
            assert columns[codes.SIZE, i] == 0


@seeds(60)
def test_scan_of_broken_logs(seed: int, rng: random.Random) -> None:
    whole = random_log(rng, rng.randrange(1, 6), append_crc=seed % 2 == 0)
    for _ in range(40):
        raw = broken(rng, whole)
        assert_same(raw, 0, len(raw) + 1, len(raw), rng.choice(list(CHECKS)), 16)


@seeds(5)
def test_scan_of_any_truncation_equals_reference(rng: random.Random) -> None:
    raw = random_record(rng, 0) + random_record(rng, 0)
    for length in range(len(raw)):
        assert_same(raw[:length], 0, length + 1, length, codes.CHECK_MARK, 4)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_scan_of_arbitrary_bytes_equals_reference(raw: bytes, start: int) -> None:
    assert_same(raw, min(start, len(raw)), len(raw) + 1, len(raw), codes.CHECK_BODY, 4)


def strange_record(**lengths: int) -> bytes:
    """91 bytes and more whose three lengths say what is given."""
    body, topic, properties = (lengths.get(name, 0) for name in ("body", "topic", "properties"))
    raw = bytearray(encode_record(empty_message(), b"", b""))
    raw += bytes(lengths.get("more", 0))
    struct.pack_into(">i", raw, 0, len(raw))
    struct.pack_into(">i", raw, 84, body)
    raw[88 + max(body, 0)] = topic & 0xFF
    struct.pack_into(">h", raw, 89 + max(body, 0) + topic, properties)
    return bytes(raw)


def empty_message() -> StoredMessage:
    host = Host(bytes(4), 0)
    return StoredMessage("", 0, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, 0, b"", {})


def test_scan_of_negative_lengths_equals_reference() -> None:
    lengths = [{"body": -1}, {"properties": -1}, {"body": -7, "properties": -(2**15)}, {"topic": 5, "more": 5}]
    # A negative topic whose parts would add up if it were believed:
    lengths += [{"topic": -128, "body": 300, "properties": 128, "more": 300}]
    for numbers in lengths:
        raw = strange_record(**numbers)
        for more in (b"", b"\xff" * 100, raw):
            for check in CHECKS:
                assert_same(raw + more, 0, len(raw + more) + 1, len(raw + more), check, 4)


def test_scan_accepts_smallest_record() -> None:
    raw = strange_record()
    assert len(raw) == MIN_RECORD_SIZE
    assert scan(read_only(raw), 0, 91, 91, codes.CHECK_BODY, new_columns(4)) == (1, codes.STOP_RANGE, 91)
    assert_same(raw, 0, 92, 91, codes.CHECK_OFF, 4)


@pytest.mark.parametrize(
    ("more", "is_right"),
    [(b"", True), (b"0", True), (b"1", False), (b"x", False), (b"0" * 5000, True), (b"1" * 5000, False)],
)
def test_crc_property_with_more_digits_is_checked(more: bytes, is_right: bool) -> None:
    head = b"a\x01b\x02__CRC32#\x01"
    raw = encode_record(empty_message(), b"t", head + b"0" * 10 + more + b"\x02")
    digits = f"{zlib.crc32(raw[:-20]) & 0x7FFFFFFF:010d}"[::-1].encode()
    raw = raw[: len(raw) - 11 - len(more)] + digits + more + b"\x02"
    if len(more) < 11:  # the digits stand behind what the CRC covers
        code = codes.STOP_RANGE if is_right else codes.STOP_CRC
        assert scan(read_only(raw), 0, len(raw), len(raw), codes.CHECK_WHOLE_RECORD, new_columns(1))[1] == code
    assert_same(raw, 0, len(raw), len(raw), codes.CHECK_WHOLE_RECORD, 4)
    assert_same(raw, 0, len(raw), len(raw), codes.CHECK_MARK_WHOLE_RECORD, 4)


def test_scan_with_limit_beyond_buffer_stops_at_its_end() -> None:
    raw = random_record(random.Random(1), 0)[:-1]
    columns = new_columns(4)
    assert scan(read_only(raw), 0, 10**9, 10**9, codes.CHECK_OFF, columns) == (0, codes.STOP_SIZE, 0)


def test_scan_with_full_columns_resumes_at_next_record() -> None:
    rng = random.Random(3)
    raw = b"".join(random_record(rng, 0) for _ in range(50))
    buf, whole, part = read_only(raw), new_columns(50), np.empty((codes.N_COLUMNS, 7), np.int64)
    assert scan(buf, 0, len(raw), len(raw), codes.CHECK_MARK, whole) == (50, codes.STOP_RANGE, len(raw))
    position, done = 0, 0
    while position < len(raw):
        count, _, position = scan(buf, position, len(raw), len(raw), codes.CHECK_MARK, part)
        assert (part[:, :count] == whole[:, done : done + count]).all()
        done += count
    assert done == 50
