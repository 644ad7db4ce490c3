"""Reading units against a plain loop over format.queue_entry."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import NAMES, golden_folder, seeds

from gantrymq.format.queue_entry import PRE_BLANK, UNIT_SIZE, QueueEntry, decode_entry, encode_entry
from gantrymq.kernels.api import rising_units, valid_units
from gantrymq.kernels.arrays import read_only

EXT_ADDRESSES = [-(2**31) - 1, -(2**31), -(2**63), 5, -1]


def plain_run(raw: bytes, start: int, stop: int, bound: int) -> int:
    position = start
    while position + UNIT_SIZE <= stop:
        entry = decode_entry(raw, position)
        if not entry.is_valid or entry.phy_offset >= bound:
            break
        position += UNIT_SIZE
    return position - start


def assert_same(raw: bytes, start: int, stop: int, bounds: list[int]) -> None:
    for bound in bounds:
        assert valid_units(read_only(raw), start, stop, bound) == plain_run(raw, start, stop, bound)


@pytest.mark.parametrize("name", NAMES)
def test_units_kernel_reads_golden_queues_like_reference(name: str) -> None:
    for path in (golden_folder(name) / "store" / "consumequeue").glob("*/*/*"):
        raw = path.read_bytes()
        assert_same(raw, 0, len(raw), [0, 100_000, 10**12])


@seeds(40)
def test_units_kernel_reads_random_runs_like_reference(rng: random.Random) -> None:
    offset, entries = 0, [PRE_BLANK] * rng.randrange(4)
    for _ in range(rng.randrange(30)):
        offset += rng.randrange(300)
        entries.append(QueueEntry(offset, rng.randrange(1, 500), rng.choice(EXT_ADDRESSES)))
    strange = [QueueEntry(-1, 5, 0), QueueEntry(7, 0, 0), QueueEntry(2**63 - 1, 2**31 - 1, 0), QueueEntry(3, -1, 0)]
    entries += rng.choice([[], [rng.choice(strange)]]) + [QueueEntry(offset, 9, -3)] * rng.randrange(2)
    raw = b"".join(map(encode_entry, entries)) + bytes(rng.randrange(60))
    start = UNIT_SIZE * rng.randrange(len(entries) + 1)
    for stop in (len(raw), rng.randrange(start, len(raw) + 1)):
        assert_same(raw, start, stop, [0, -5, offset, offset // 2, 2**63 - 1])


@given(st.binary(max_size=100))
def test_units_kernel_reads_arbitrary_bytes_like_reference(raw: bytes) -> None:
    assert_same(raw, 0, len(raw), [2**40])


def plain_rise(raw: bytes, start: int, stop: int, highest: int, limit: int) -> tuple[int, int]:
    position = start
    while position + UNIT_SIZE <= stop:
        entry = decode_entry(raw, position)
        if entry.size_bytes != PRE_BLANK.size_bytes:
            if entry.size_bytes <= 0 or not highest < entry.phy_offset < limit:
                break
            highest = entry.phy_offset
        position += UNIT_SIZE
    return position - start, highest


@seeds(40)
def test_units_kernel_reads_rising_units_like_reference(rng: random.Random) -> None:
    offset, entries = -1, []
    for _ in range(rng.randrange(30)):
        offset += rng.choice([1, 7, 300, rng.randrange(-2, 3)])
        entries.append(rng.choice([PRE_BLANK, QueueEntry(offset, rng.choice([1, 400, 400, 0, -1]), 5)]))
    raw = b"".join(map(encode_entry, entries)) + bytes(rng.randrange(30))
    for limit in (offset, 2**62):
        for highest in (-1, 0, rng.randrange(-1, 50)):
            expected = plain_rise(raw, 0, len(raw), highest, limit)
            assert rising_units(read_only(raw), 0, len(raw), highest, limit) == expected
            half = UNIT_SIZE * rng.randrange(len(entries) + 1)
            first, reached = rising_units(read_only(raw), 0, half, highest, limit)
            if first == half:  # a run goes on where the one before ended
                rest, last = rising_units(read_only(raw), half, len(raw), reached, limit)
                assert (first + rest, last) == expected
