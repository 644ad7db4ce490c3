"""A kernel's words are kept for the next call, and no call sees those of another."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gantrymq.format.queue_entry import QueueEntry, encode_entry
from gantrymq.kernels.api import assign_queues, crc32, valid_units
from gantrymq.kernels.arrays import new_columns, read_only
from gantrymq.kernels.queue_table import QueueTable, grow, new_table


def units(count: int) -> np.ndarray:
    return read_only(b"".join(encode_entry(QueueEntry(number, 1, 0)) for number in range(count)))


def test_numbers_and_arrays_may_change_from_call_to_call() -> None:
    ten, three = units(10), units(3)
    for buffer, stop, limit, wanted in [
        (ten, 200, 7, 7), (ten, 200, 4, 4), (ten, 60, 7, 3), (three, 60, 7, 3), (ten, 200, 9, 9), (three, 60, 2, 2),
        (units(5), 100, 9, 5), (units(6), 120, 9, 6),
    ]:  # fmt: skip
        assert valid_units(buffer, 0, np.int64(stop), limit) == wanted * 20


def test_kernel_accepts_grown_table() -> None:
    columns, numbers = new_columns(1), np.empty(1, np.int64)
    table: QueueTable = new_table()
    for _ in range(2):
        assert assign_queues(read_only(b""), columns, 0, 0, table, numbers)[0] == 0
        table = grow(table)


def test_unsuitable_array_after_valid_call_is_refused() -> None:
    buffer = units(10)
    assert valid_units(buffer, 0, 200, 5) == 100
    with pytest.raises(TypeError, match="C-contiguous"):
        valid_units(buffer[::2], 0, 100, 5)
    assert valid_units(buffer, 0, 200, 5) == 100


def test_arrays_are_not_kept_alive() -> None:
    buffer = units(10)
    assert valid_units(buffer, 0, 200, 5) == 100
    gone = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert gone() is None


def test_argument_words_are_separate_for_each_thread(rng) -> None:
    data = read_only(rng.randbytes(1 << 16))
    wanted = [int(crc32(data, 0, stop)) for stop in range(0, 1 << 16, 1 << 10)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(pool.map(lambda stop: int(crc32(data, 0, stop)), range(0, 1 << 16, 1 << 10))) == wanted
