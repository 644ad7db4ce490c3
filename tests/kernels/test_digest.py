"""digest against the kernels that find out one thing each."""

import random

import numpy as np
import pytest
from kernel_cases import NAMES, broken, golden_logs, random_log, seeds

from gantrymq.kernels import codes
from gantrymq.kernels.api import assign_queues, digest, first_torn, index_hashes, scan, tags_codes
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.kernels.queue_table import QueueTable, grow, new_table

BASE = 1 << 40
LEVELS = np.array([1000, 5000, 10_000], np.int64)
LIMIT_OF_HASHES = codes.MAX_HASHES_OF_RECORD


def one_by_one(raw: bytes, start: int, check: int, columns: np.ndarray):
    """((count, code, position, first torn, first misplaced), columns, ordinals, tags codes, entries) of one batch."""
    buf = read_only(raw)
    count, code, position = scan(buf, start, len(raw), len(raw), check, columns)
    columns = np.ascontiguousarray(columns[:, :count])
    places = columns[codes.POS] + BASE
    wrong = np.flatnonzero(columns[codes.PHY_OFFSET] != places)
    firsts = first_torn(buf, columns, count), int([*wrong, count][0])
    columns[codes.PHY_OFFSET] = places
    if check == codes.CHECK_MARK:
        torn = [first_torn(buf, np.ascontiguousarray(columns[:, i : i + 1]), 1) == 0 for i in range(count)]
        columns[codes.CRC_OK, torn] = 0
    right = columns[codes.CRC_OK] == 1
    ordinals, tags = np.where(right, 0, -1), np.zeros(count, np.int64)
    some = np.ascontiguousarray(columns[:, right])
    n = some.shape[1]
    found_ordinals, found_tags = np.empty(n, np.int64), np.empty(n, np.int64)
    tags_codes(buf, some, n, LEVELS, found_tags)
    assert assign_queues(buf, some, 0, n, new_table(), found_ordinals)[0] == n
    ordinals[right], tags[right] = found_ordinals, found_tags
    hashes, records = np.empty((2, 2 * LIMIT_OF_HASHES), np.int32)
    found, done = index_hashes(buf, some, 0, n, 1, hashes, records)
    assert done == n
    entries = [hashes[:found], np.flatnonzero(right)[records[:found]]]
    return (count, code, position, *firsts), columns[: codes.N_DISPATCH_COLUMNS], ordinals, tags, entries


def few_columns(capacity: int) -> np.ndarray:
    return new_columns(capacity, codes.N_DISPATCH_COLUMNS)


def assert_same(raw: bytes, start: int, check: int, capacity: int) -> None:
    columns, ordinals, tags = few_columns(capacity), np.empty(10_000, np.int64), np.empty(10_000, np.int64)
    entries = np.empty((2, 2 * LIMIT_OF_HASHES), np.int32)
    expected = one_by_one(raw, start, check, new_columns(columns.shape[1]))
    where = (read_only(raw), BASE, start, len(raw), len(raw), check, new_columns(1))
    count, code, position, found, *firsts = digest(*where, columns, new_table(), ordinals, LEVELS, tags, *entries)
    assert (count, code, position, *firsts) == expected[0]
    np.testing.assert_array_equal(columns[:, :count], expected[1])
    np.testing.assert_array_equal(ordinals[:count], expected[2])
    np.testing.assert_array_equal(tags[:count], expected[3])
    np.testing.assert_array_equal(entries[:, :found], np.array(expected[4]))


@pytest.mark.parametrize("name", NAMES)
def test_digest_of_golden_stores_equals_reference(name: str) -> None:
    for raw in golden_logs(name):
        assert_same(raw, 0, codes.CHECK_BODY, 4096)


@seeds(8)
def test_digest_of_random_and_broken_logs_equals_reference(seed: int, rng: random.Random) -> None:
    raw = random_log(rng, 200)
    check = rng.choice([codes.CHECK_OFF, codes.CHECK_BODY, codes.CHECK_MARK])
    assert_same(raw, 0, check, rng.choice([8, 4096]))
    assert_same(broken(rng, raw), 0, check, 4096)


def in_steps(raw: bytes, table: QueueTable, tags_room: int, entries_room: int):
    """(counts, last code, last position, ordinals, entries of all records) of a log in as many calls as it takes."""
    columns, ordinals, tags = few_columns(256), np.empty(256, np.int64), np.empty(tags_room, np.int64)
    entries = np.empty((2, entries_room), np.int32)
    counts, queues, parts, position, code = [], [], [], 0, codes.STOP_FULL
    while code in (codes.STOP_FULL, codes.STOP_TABLE_FULL):
        where = (read_only(raw), BASE, position, len(raw), len(raw), codes.CHECK_OFF, new_columns(1))
        count, code, position, found, *_ = digest(*where, columns, table, ordinals, LEVELS, tags, *entries)
        if code == codes.STOP_TABLE_FULL:
            table = grow(table)
        counts.append(count)
        queues.append(ordinals[:count].copy())
        parts.append(entries[:, :found] + np.array([[0], [sum(counts[:-1])]], np.int32))
    return counts, code, position, np.concatenate(queues), np.concatenate(parts, axis=1)


@seeds(3)
def test_digest_resumes_after_full_table(seed: int, rng: random.Random) -> None:
    raw = random_log(rng, 100)
    counts, code, position, ordinals, entries = in_steps(raw, new_table(), 256, 400_000)
    assert len(counts) == 1
    most = int(max(np.unique(entries[1], return_counts=True)[1], default=1))
    for table, tags_room, entries_room in (
        (new_table(2), 256, 400_000),
        (new_table(), 7, 400_000),
        (new_table(4), 9, most),
    ):
        again = in_steps(raw, table, tags_room, entries_room)
        assert max(again[0]) <= tags_room
        assert again[1:3] == (code, position)
        np.testing.assert_array_equal(again[3], ordinals)
        np.testing.assert_array_equal(again[4], entries)
