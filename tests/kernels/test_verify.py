"""The kernels of verify against plain loops over the formats."""

import random
from collections import defaultdict

import numpy as np
import pytest
from kernel_cases import NAMES, golden_logs, seeds

from gantrymq.format.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    decode_entry,
    encode_entry,
    file_size,
)
from gantrymq.format.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, PHY_OFFSET_AT
from gantrymq.kernels import codes
from gantrymq.kernels.api import find_record, index_chains, index_compare
from gantrymq.kernels.arrays import read_only


def plain_find(raw: bytes, start: int, stop: int, base: int) -> int:
    for at in range(start, stop):
        head = raw[at : at + PHY_OFFSET_AT + 8]
        size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:8], "big")
        says = int.from_bytes(head[PHY_OFFSET_AT:], "big", signed=True)
        whole = len(head) == PHY_OFFSET_AT + 8
        if whole and magic in (MAGIC_V1, MAGIC_V2) and size >= MIN_RECORD_SIZE and says == base + at:
            return at
    return stop


@pytest.mark.parametrize("name", NAMES)
def test_verify_kernel_finds_records_at_their_offsets(name: str) -> None:
    raw = golden_logs(name)[0][:20_000]
    for base in (0, 7):
        for start in range(0, 4_000, 313):
            assert find_record(read_only(raw), start, len(raw), base) == plain_find(raw, start, len(raw), base)


@seeds(20)
def test_records_are_found_in_noise(rng: random.Random) -> None:
    raw = bytearray(rng.choice((0, 0xDA, 0xA7, 91)) for _ in range(400))
    for _ in range(3):
        at = rng.randrange(380)
        size = rng.choice((MIN_RECORD_SIZE - 1, MIN_RECORD_SIZE, 1 << 30))
        raw[at : at + 8] = size.to_bytes(4, "big") + rng.choice((MAGIC_V1, MAGIC_V2, MAGIC_V1 + 1)).to_bytes(4, "big")
        raw[at + PHY_OFFSET_AT : at + PHY_OFFSET_AT + 8] = (1000 + at + rng.choice((0, 0, 1))).to_bytes(8, "big")
    raw = raw[:400]
    start, stop = rng.randrange(200), rng.randrange(200, 420)
    found = find_record(read_only(bytes(raw)), start, stop, 1000)
    assert found == plain_find(bytes(raw), start, stop, 1000)


def chained(rng, slots: int, count: int) -> bytearray:
    """An index file with right chains."""
    file = bytearray(file_size(slots, count + 2))
    newest: dict[int, int] = defaultdict(int)
    for number in range(1, count):
        code = rng.randrange(1 << 31)
        entry = IndexEntry(code, number * 100, 0, newest[code % slots])
        at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
        file[at : at + ENTRY_SIZE] = encode_entry(entry)
        newest[code % slots] = number
    for slot, number in newest.items():
        file[HEADER_SIZE + slot * SLOT_SIZE : HEADER_SIZE + (slot + 1) * SLOT_SIZE] = number.to_bytes(4, "big")
    return file


def plain_chains(file: bytes, slots: int, count: int) -> tuple[list[tuple[int, int]], int]:
    newest: dict[int, int] = defaultdict(int)
    wrong = []
    for number in range(1, count):
        entry = decode_entry(file, HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE)
        if entry.key_hash < 0:
            wrong.append((number, codes.CHAIN_BROKEN))
            continue
        slot = entry.key_hash % slots
        if entry.previous != newest[slot]:
            wrong.append((number, codes.CHAIN_LOOP if entry.previous >= number else codes.CHAIN_BROKEN))
        newest[slot] = number
    for slot in range(slots):
        at = HEADER_SIZE + slot * SLOT_SIZE
        if int.from_bytes(file[at : at + SLOT_SIZE], "big", signed=True) != newest[slot]:
            wrong.append((slot, codes.CHAIN_SLOT))
    return wrong, sum(number > 0 for number in newest.values())


@seeds(40)
def test_broken_index_chains_are_counted(rng: random.Random) -> None:
    slots, count = rng.randrange(1, 30), rng.randrange(1, 60)
    file = chained(rng, slots, count)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(HEADER_SIZE, len(file))
        file[at] = rng.choice((0, 1, 5, 0xFF))
    found = np.zeros((2, 200), np.int64)
    wrong, used = index_chains(read_only(bytes(file)), slots, count, np.zeros(slots, np.int64), found)
    assert ([tuple(one) for one in found[:, :wrong].T.tolist()], used) == plain_chains(bytes(file), slots, count)


def test_chains_above_capacity_are_counted() -> None:
    file = bytes(file_size(3, 10))
    found = np.zeros((2, 1), np.int64)
    wrong, used = index_chains(read_only(file), 3, 5, np.zeros(3, np.int64), found)
    assert (wrong, used, found.tolist()) == (4, 1, [[2], [codes.CHAIN_BROKEN]])


Expected = list[tuple[int, int, int]]  # hash, physical offset, store time


def compare(entries: list[IndexEntry], expected: Expected, end_offset: int, begin_ms: int):
    """(entries read, the wrong ones as (number, code), which expected ones were seen) of the kernel."""
    raw = b"".join(map(encode_entry, entries))
    hashes, phy_offsets, stored = np.array(expected or [(0, 0, 0)], np.int64).T.copy()
    seen, found = np.zeros(len(hashes), np.uint8), np.zeros((2, len(entries) + 1), np.int64)
    used, wrong = index_compare(
        read_only(raw), 0, len(raw), hashes, phy_offsets, stored, len(expected), end_offset, begin_ms, seen, found
    )
    places = [(at // ENTRY_SIZE, code) for at, code in found[:, :wrong].T.tolist()]
    return used // ENTRY_SIZE, places, seen[: len(expected)].tolist()


def plain_compare(entries: list[IndexEntry], expected: Expected, end_offset: int, begin_ms: int):
    wrong, seen = [], [0] * len(expected)
    read = 0
    for number, entry in enumerate(entries):
        if all(ahead.phy_offset >= end_offset for ahead in entries[number : number + 8]):
            break
        read = number + 1
        group = [k for k, one in enumerate(expected) if one[1] == entry.phy_offset]
        same = [k for k in group if expected[k][0] == entry.key_hash]
        if not group:
            wrong.append((number, codes.ENTRY_STRAY))
        elif not same:
            wrong.append((number, codes.ENTRY_HASH))
        else:
            k = next((k for k in same if not seen[k]), same[-1])
            seen[k] = 1
            passed = max(expected[k][2] - begin_ms, 0) // 1000 if begin_ms > 0 else 0
            if begin_ms >= 0 and entry.time_diff_s != passed:
                wrong.append((number, codes.ENTRY_TIME))
    return read, wrong, seen


@seeds(60)
def test_index_entries_are_compared_with_records(rng: random.Random) -> None:
    expected = sorted(
        ((rng.randrange(4), 100 + 10 * rng.randrange(12), 0) for _ in range(rng.randrange(20))),
        key=lambda one: one[1],
    )
    expected = [(code, offset, 5_000 + offset * 100) for code, offset, _ in expected]
    begin_ms = rng.choice((-1, 0, 5_000))
    entries = []
    for code, offset, stored in expected:
        passed = (stored - begin_ms) // 1000 if begin_ms > 0 else 0
        entry = IndexEntry(code, offset, passed, 0)
        faults = (
            entry._replace(key_hash=9),
            entry._replace(phy_offset=rng.randrange(300)),
            entry._replace(time_diff_s=3),
        )
        entries += [rng.choice(faults)] if rng.random() < 0.1 else [entry] * rng.choice((1, 1, 1, 2, 0))
    entries += [IndexEntry(1, 300 + number, 0, 0) for number in range(rng.randrange(12))]
    end_offset = rng.choice((150, 250, 400))
    assert compare(entries, expected, end_offset, begin_ms) == plain_compare(entries, expected, end_offset, begin_ms)
