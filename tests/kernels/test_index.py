"""Index kernels against a plain loop over format.index, written after IndexFile."""

import random
import struct
from typing import Any

import numpy as np
import pytest
from kernel_cases import NAMES, broken, golden_logs, random_log, seeds, with_properties
from test_queues import plain_records, scanned

from gantrymq.format.index import (
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    encode_entry,
    file_size,
    index_keys,
    key_hash,
)
from gantrymq.format.properties import decode_properties
from gantrymq.fs.api import Bytes
from gantrymq.kernels.api import (
    index_hashes,
    index_put,
    index_select,
)
from gantrymq.kernels.arrays import int64s, read_only
from gantrymq.kernels.codes import MAX_HASHES_OF_RECORD
from gantrymq.model.flags import is_indexable
from gantrymq.model.java import decode_utf8, string_hash


def plain_hashes(raw: bytes, *, with_tags: bool) -> list[tuple[int, int]]:
    found = []
    for i, (topic, message, properties) in enumerate(plain_records(raw)):
        decoded = decode_properties(properties)
        if not with_tags:
            decoded.pop("TAGS", None)
        if is_indexable(message.sys_flag):
            found += [(i, key_hash(decode_utf8(topic), key)) for key in index_keys(decoded)]
    return found


def assert_hashes(raw: bytes, room: int = MAX_HASHES_OF_RECORD) -> None:
    buf, columns, n = scanned(raw)
    for with_tags in (True, False):
        found, done = [], 0
        while done < n:
            hashes, record_of = np.zeros((2, room), np.int32)
            count, done = index_hashes(buf, columns, done, n, int(with_tags), hashes, record_of)
            found += zip(record_of[:count].tolist(), hashes[:count].tolist(), strict=True)
        assert found == plain_hashes(raw, with_tags=with_tags)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_hashes_equal_reference_on_golden_stores(name: str) -> None:
    for raw in golden_logs(name):
        assert_hashes(raw, 100)


@seeds(60)
def test_hashes_of_random_logs(rng: random.Random) -> None:
    raw = random_log(rng, 40)
    assert_hashes(raw, 200)
    for _ in range(10):
        assert_hashes(broken(rng, raw), 200)


def key_of_hash(topic: str, wanted: int) -> str:
    """Seven letters that make ``topic#key`` have the hash ``wanted`` (any 32 bits)."""
    rest = (wanted - string_hash(f"{topic}#" + "A" * 7)) % 2**32
    return "".join(chr(65 + rest // 31**place % 31) for place in range(6, -1, -1))


def test_hash_without_absolute_value_becomes_0() -> None:
    keys = [key_of_hash("t", number) for number in (2**31, 2**31 + 1, 2**31 - 1, 0, 2**32 - 1)]
    assert string_hash(f"t#{keys[0]}") == -(2**31)
    rng = random.Random(1)
    raw = with_properties(rng, b"t", b"UNIQ_KEY\x01" + keys[0].encode() + b"\x02KEYS\x01" + " ".join(keys).encode())
    assert_hashes(raw)
    assert [code for _, code in plain_hashes(raw, with_tags=False)][:2] == [0, 0]


class PlainIndexFile:
    """IndexFile.putKey and selectPhyOffset, one at a time."""

    def __init__(self, slots: int, entries: int) -> None:
        self.slots, self.entries, self.header = slots, entries, IndexHeader()
        self.raw = bytearray(file_size(slots, entries))

    def slot_at(self, code: int) -> int:
        return HEADER_SIZE + code % self.slots * 4

    def entry_at(self, number: int) -> int:
        return HEADER_SIZE + self.slots * 4 + number * 20

    def put(self, code: int, phy_offset: int, timestamp: int) -> bool:
        header = self.header
        if header.index_count >= self.entries:
            return False
        (previous,) = struct.unpack_from(">i", self.raw, self.slot_at(code))
        previous = previous if 0 < previous <= header.index_count else 0
        seconds = max(timestamp - header.begin_timestamp_ms, 0) // 1000 if header.begin_timestamp_ms > 0 else 0
        entry = encode_entry(IndexEntry(code, phy_offset, min(seconds, 2**31 - 1), previous))
        at = self.entry_at(header.index_count)
        self.raw[at : at + 20] = entry
        struct.pack_into(">i", self.raw, self.slot_at(code), header.index_count)
        if header.index_count <= 1:
            header.begin_phy_offset, header.begin_timestamp_ms = phy_offset, timestamp
        header.hash_slot_count += previous == 0
        header.index_count += 1
        header.end_phy_offset, header.end_timestamp_ms = phy_offset, timestamp
        return True

    def select(self, code: int, begin: int, end: int, limit: int) -> list[int]:
        header, found = self.header, []
        (number,) = struct.unpack_from(">i", self.raw, self.slot_at(code))
        if not 0 < number <= header.index_count or header.index_count <= 1:
            return []
        for _ in range(self.entries):
            if len(found) >= limit or self.entry_at(number) + 20 > len(self.raw):
                break
            entry = decode_entry(bytes(self.raw), self.entry_at(number))
            if entry.time_diff_s < 0:
                break
            time = header.begin_timestamp_ms + entry.time_diff_s * 1000
            if entry.key_hash == code and begin <= time <= end:
                found.append(entry.phy_offset)
            if not 0 < entry.previous <= header.index_count or entry.previous == number or time < begin:
                break
            number = entry.previous
        return found


def numbers(header: IndexHeader) -> list[int]:
    return [getattr(header, name) for name in IndexHeader.__slots__]


def filled(rng, slots: int, entries: int, count: int):
    """A plain file and a kernel's file with the same random entries."""
    plain = PlainIndexFile(slots, entries)
    if rng.random() < 0.5:  # begun after a full file
        plain.header = IndexHeader(1_700_000_000_000, 1_700_000_000_000, 77, 77)
    file, header = np.frombuffer(bytearray(plain.raw), np.uint8), int64s(numbers(plain.header))
    clock, keys = 1_700_000_000_000, [0, 1, 2**31 - 1] + [rng.randrange(2**31) for _ in range(8)]
    hashes = np.array([rng.choice(keys) for _ in range(count)], np.int32)
    records = np.array(sorted(rng.randrange(count) for _ in range(count)), np.int32)
    offsets = int64s([rng.randrange(2**45) for _ in range(count)])
    times = int64s([clock + rng.choice([-3000, 0, 999, 1000, 10**7, 10**14]) for _ in range(count)])
    said = list(zip(hashes.tolist(), offsets[records].tolist(), times[records].tolist(), strict=True))
    start = 0
    while start < count:
        stop = min(start + rng.randrange(1, 9), count)
        where = (file, slots, file, HEADER_SIZE + 4 * slots, entries, header)
        put = index_put(*where, hashes, records, offsets, times, start, stop)
        expected = sum(plain.put(*one) for one in said[start:stop])
        assert put == expected
        start = stop
    assert file.tobytes() == bytes(plain.raw)
    assert header.tolist() == numbers(plain.header)
    return plain, file, header, keys


def select(file: Bytes, *asked: Any) -> int:
    """How many are found; pages are let in one by one, as they are asked for, where a file is longer than one."""
    pages, state = np.zeros(-(-len(file) // 4096) + 1, np.uint8), np.zeros(3, np.int64)
    while (page := index_select(file, *asked, pages, state)) >= 0:
        assert not pages[page], "a page is asked for once"
        pages[page] = 1
    return int(state[0])


@seeds(60)
def test_select_returns_put_offsets(rng: random.Random) -> None:
    slots, entries = rng.choice([1, 3, 50]), rng.choice([1, 2, 30, 100])
    plain, file, header, keys = filled(rng, slots, entries, rng.choice([0, 1, 20, 110]))
    for _ in range(12):
        code, limit = rng.choice(keys), rng.choice([0, 1, 3, 64])
        begin = rng.choice([0, 1_700_000_000_000, 1_700_000_002_000])
        end = begin + rng.choice([0, 3000, 2**61])
        out = np.zeros(64, np.int64)
        found = select(read_only(file), slots, entries, header, code, begin, end, limit, out)
        assert out[:found].tolist() == plain.select(code, begin, end, limit)
        plain.raw = bytearray(broken(rng, bytes(plain.raw)).ljust(len(plain.raw), b"\0"))  # ever more
        file = np.frombuffer(bytes(plain.raw), np.uint8)


@seeds(10)
def test_select_over_many_pages_prefetches_each_page(rng: random.Random) -> None:
    plain, file, header, keys = filled(rng, 2000, 900, 700)
    for code in rng.sample(keys, min(8, len(keys))):
        out = np.zeros(64, np.int64)
        found = select(read_only(file), 2000, 900, header, code, 0, 2**62, 64, out)
        assert out[:found].tolist() == plain.select(code, 0, 2**62, 64)


@seeds(40)
def test_put_into_broken_index_file_continues(rng: random.Random) -> None:
    plain, file, header, _ = filled(rng, 20, 60, 30)
    raw = broken(rng, bytes(plain.raw)).ljust(len(plain.raw), b"\0")
    plain.raw, file = bytearray(raw), np.frombuffer(bytearray(raw), np.uint8)
    plain.header.index_count = rng.choice([1, 7, 30])
    header[5] = plain.header.index_count
    hashes, offsets = np.array([rng.randrange(99) for _ in range(40)], np.int32), int64s(range(40))
    records = offsets.astype(np.int32)
    put = index_put(file, 20, file, HEADER_SIZE + 80, 60, header, hashes, records, offsets, offsets, 0, 40)
    assert put == sum(plain.put(int(code), i, i) for i, code in enumerate(hashes))
    assert file.tobytes() == bytes(plain.raw)
    assert header.tolist() == numbers(plain.header)


def test_link_outside_index_file_ends_query() -> None:
    plain = PlainIndexFile(1, 10)
    for i in range(3):
        plain.put(5, i, 1_700_000_000_000)
    plain.header.index_count = 10**6
    for number in (9, 10, 11, 10**5):
        struct.pack_into(">i", plain.raw, plain.entry_at(3) + 16, number)
        out = np.zeros(64, np.int64)
        behind = encode_entry(IndexEntry(5, 999, 0, 0)) * 5  # what would be found there
        file = read_only(bytes(plain.raw) + behind)[: len(plain.raw)]
        found = select(file, 1, 10, int64s(numbers(plain.header)), 5, 0, 2**62, 64, out)
        assert out[:found].tolist() == plain.select(5, 0, 2**62, 64)


def test_select_ends_at_cycle_in_chain() -> None:
    plain = PlainIndexFile(1, 10)
    for i in range(3):
        plain.put(5, i, 1_700_000_000_000)
    struct.pack_into(">i", plain.raw, plain.entry_at(1) + 16, 3)  # 3 → 2 → 1 → 3
    out, header = np.zeros(64, np.int64), int64s(numbers(plain.header))
    found = select(read_only(plain.raw), 1, 10, header, 5, 0, 2**62, 64, out)
    assert out[:found].tolist() == [2, 1, 0, 2, 1, 0, 2, 1, 0, 2]
