"""digest against the kernels that find out one thing each."""

import random

import numpy as np
import pytest
from kernel_cases import NAMES, broken, golden_logs, random_log, seeds

from gantrymq.kernels import codes
from gantrymq.kernels.api import digest, first_torn, index_hashes, scan, tags_codes
from gantrymq.kernels.arrays import new_columns, read_only

BASE = 1 << 40
LEVELS = np.array([1000, 5000, 10_000], np.int64)
LIMIT_OF_HASHES = codes.MAX_HASHES_OF_RECORD


def one_by_one(raw: bytes, start: int, check: int, columns: np.ndarray):
    """(count, code, position, columns, tags codes, entries, first torn) of one batch."""
    buf = read_only(raw)
    count, code, position = scan(buf, start, len(raw), len(raw), check, columns)
    tags, hashes, records = np.empty(count, np.int64), np.empty(2 * LIMIT_OF_HASHES, np.int64), None
    tags_codes(buf, columns, count, LEVELS, tags)
    records = np.empty(2 * LIMIT_OF_HASHES, np.int64)
    found, done = index_hashes(buf, columns, 0, count, 1, hashes, records)
    assert done == count
    of = records[:found]
    entries = [hashes[:found], columns[codes.POS, of] + BASE, columns[codes.STORE_TIMESTAMP, of]]
    return count, code, position, columns[:, :count], tags, entries, first_torn(buf, columns, count)


def assert_same(raw: bytes, start: int, check: int, capacity: int) -> None:
    columns, tags = new_columns(capacity), np.empty(10_000, np.int64)
    entries = np.empty((3, 2 * LIMIT_OF_HASHES), np.int64)
    expected = one_by_one(raw, start, check, new_columns(capacity))
    count, code, position, found, torn = digest(
        read_only(raw), BASE, start, len(raw), len(raw), check, columns, LEVELS, tags, entries
    )
    assert (count, code, position, torn) == (*expected[:3], expected[6])
    np.testing.assert_array_equal(columns[:, :count], expected[3])
    np.testing.assert_array_equal(tags[:count], expected[4])
    np.testing.assert_array_equal(entries[:, :found], np.array(expected[5]))


@pytest.mark.parametrize("name", NAMES)
def test_golden_stores(name: str) -> None:
    for raw in golden_logs(name):
        assert_same(raw, 0, codes.CHECK_BODY, 4096)


@seeds(8)
def test_random_and_broken_logs(seed: int, rng: random.Random) -> None:
    raw = random_log(rng, 200)
    check = rng.choice([codes.CHECK_OFF, codes.CHECK_BODY, codes.CHECK_MARK])
    assert_same(raw, 0, check, rng.choice([8, 4096]))
    assert_same(broken(rng, raw), 0, check, 4096)


@seeds(3)
def test_where_the_entries_are_full_the_next_call_goes_on(seed: int, rng: random.Random) -> None:
    raw = random_log(rng, 100)
    columns, tags, entries = new_columns(100), np.empty(200, np.int64), np.empty((3, 400_000), np.int64)
    *_, code, position, found, _ = digest(
        read_only(raw), BASE, 0, len(raw), len(raw), codes.CHECK_OFF, columns, LEVELS, tags, entries
    )
    whole = entries[:, :found].copy()
    most = max(np.unique(whole[1], return_counts=True)[1]) if found else 1
    few, parts, at, last = np.empty((3, int(most)), np.int64), [], 0, codes.STOP_FULL
    while last == codes.STOP_FULL:
        _, last, at, n, _ = digest(
            read_only(raw), BASE, at, len(raw), len(raw), codes.CHECK_OFF, columns, LEVELS, tags, few
        )
        parts.append(few[:, :n].copy())
    assert (last, at) == (code, position)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_tags_bound_the_batch_as_columns_do() -> None:
    raw = random_log(random.Random(5), 50)
    columns, tags, entries = new_columns(64), np.empty(7, np.int64), np.empty((3, 400_000), np.int64)
    count, code, *_ = digest(
        read_only(raw), BASE, 0, len(raw), len(raw), codes.CHECK_OFF, columns, LEVELS, tags, entries
    )
    assert (count, code) == (7, codes.STOP_FULL)
